"""CUDA text of sorting: keys that order as elements do, sorts of short, middling and long lines, and selection.

An element is its bits; ``Order`` gives the unsigned key by which it is sorted, NaN last and both zeros equal. Equal
keys keep the order of their places. Of the sorted line a window is written. ``warp_sort``: a warp sorts a line in
registers; ``block_radix_sort``: a block sorts one in shared memory, digit by digit; ``count_digits`` and ``radix_pass``
sort long ones through global memory, one pass per digit.
"""

from __future__ import annotations

ORDER = r"""
#define DEV static __device__ __forceinline__
// U: an element's bits; FLOAT: those of infinity, 0 for integers; SIGN: the sign bit or 0; DOWN: largest first
template <class U_, u64 FLOAT, u64 SIGN, bool DOWN_> struct Order {
    typedef U_ U;
    static const bool DOWN = DOWN_;
    DEV bool is_nan(U b) { return FLOAT && (b & (U)~SIGN) > (U)FLOAT; }
    DEV U rising(U b) {
        if (FLOAT) {
            if (is_nan(b)) return (U)~(U)0;
            if ((U)(b & (U)~SIGN) == 0) return (U)SIGN;
            return b & (U)SIGN ? (U)~b : (U)(b | (U)SIGN);
        }
        return b ^ (U)SIGN;
    }
    DEV U key(U b) { return DOWN ? (U)~rising(b) : rising(b); }
};
"""

KERNELS = r"""
struct Lines {
    lines_t lines;                        // of the input, the values and the indices
    index_t step[3];                      // from one element of a line to the next
    index_t count; u32 length, from, size;  // lines; elements of each; the window of places that is written
    u32 digits;                             // how many bytes of the keys tell them apart, the lowest first
};
DEV void offsets_of(const Lines& job, index_t line, index_t (&at)[3]) { job.lines.find(line, at); }

template <class O> DEV void write_window(
    typename O::U* values, i64* indices, const Lines& job, const index_t (&at)[3], u32 from, u32 rank,
    typename O::U bits, u32 place
) {
    u32 p = rank - from;
    if (rank < from || p >= job.size) return;
    if (values) values[at[1] + p * job.step[1]] = bits;
    indices[at[2] + p * job.step[2]] = place;
}
// where the window begins; a median's at the first NaN if there is one
DEV u32 window_of(const Lines& job, u32 nans) { return nans ? job.length - nans : job.from; }

template <class U> struct wider { typedef u32 type; };
template <> struct wider<u64> { typedef u64 type; };

// a warp has a line of at most 32 * E elements; a bitonic network over keys made different by their places
template <class U> struct KeyAndIndex { U key; u32 place; };
template <class U> DEV bool after(const KeyAndIndex<U>& a, const KeyAndIndex<U>& b) {
    return a.key > b.key || (a.key == b.key && a.place > b.place);
}
template <class U> DEV KeyAndIndex<U> shuffle_xor(const KeyAndIndex<U>& a, int mask) {
    return {(U)__shfl_xor_sync(0xffffffff, a.key, mask), __shfl_xor_sync(0xffffffff, a.place, mask)};
}

template <class O, int E, bool MEDIAN>
DEV void warp_sort(const typename O::U* in, typename O::U* values, i64* indices, const Lines& job) {
    typedef typename O::U U;
    typedef typename wider<U>::type W;  // a number that shuffles
    u32 lane = threadIdx.x % 32;
    index_t line = (index_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (line >= job.count) return;
    index_t at[3];
    offsets_of(job, line, at);
    KeyAndIndex<W> x[E];
    u32 nans = 0;
#pragma unroll
    for (int e = 0; e < E; ++e) {
        u32 p = e * 32 + lane;
        bool is = p < job.length;
        U bits = is ? in[at[0] + p * job.step[0]] : (U)0;
        if (MEDIAN) nans += __popc(__ballot_sync(0xffffffff, is && O::is_nan(bits)));
        x[e] = {is ? (W)O::key(bits) : (W)~(W)0, is ? p : ~0u};
    }
    u32 from = window_of(job, nans);
    // number lane * E + e of the network
#pragma unroll
    for (int k = 2; k <= 32 * E; k *= 2)
#pragma unroll
        for (int j = k / 2; j; j /= 2) {
            if (j >= E) {
#pragma unroll
                for (int e = 0; e < E; ++e) {
                    KeyAndIndex<W> y = shuffle_xor(x[e], j / E);
                    u32 n = lane * E + e;
                    bool up = (n & k) == 0, lower = (n & j) == 0;
                    if (after(x[e], y) == (up == lower)) x[e] = y;
                }
            } else {
#pragma unroll
                for (int e = 0; e < E; ++e) {
                    u32 n = lane * E + e;
                    if ((e & j) == 0 && after(x[e], x[e | j]) == ((n & k) == 0)) {
                        KeyAndIndex<W> t = x[e]; x[e] = x[e | j]; x[e | j] = t;
                    }
                }
            }
        }
#pragma unroll
    for (int e = 0; e < E; ++e)
        if (x[e].place != ~0u)
            write_window<O>(
                values, indices, job, at, from, lane * E + e, in[at[0] + x[e].place * job.step[0]], x[e].place);
}

// the lanes that have the same 8 bits
DEV u32 match_digit(u32 digit) {
    u32 peers = 0xffffffff;
#pragma unroll
    for (int b = 0; b < 8; ++b) {
        bool is = digit >> b & 1;
        u32 votes = __ballot_sync(0xffffffff, is);
        peers &= is ? votes : ~votes;
    }
    return peers;
}

// ranks of a block's elements by one digit; element i of a lane comes after those of all lanes before it
template <int WARPS, int ITEMS> struct BlockRanks {
    static const int THREADS = WARPS * 32;
    u32 counts[WARPS][256];
    u32 starts[256];  // of each digit in the block's order
    u32 warp_sums[8];

    template <class F> __device__ __forceinline__ void rank(const F& digit_of, u32 (&ranks)[ITEMS]) {
        u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (u32 k = threadIdx.x; k < WARPS * 256; k += THREADS) (&counts[0][0])[k] = 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            u32 digit = digit_of(i), peers = match_digit(digit);
            u32 first = __ffs(peers) - 1, before = __popc(peers & ((1u << lane) - 1)), had = 0;
            if (lane == first) {
                had = counts[warp][digit];
                counts[warp][digit] = had + __popc(peers);
            }
            ranks[i] = __shfl_sync(0xffffffff, had, first) + before;
            __syncwarp();
        }
        __syncthreads();
        for (u32 d = threadIdx.x; d < 256; d += THREADS) {
            u32 sum = 0;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                u32 had = counts[w][d];
                counts[w][d] = sum;
                sum += had;
            }
            starts[d] = sum;
        }
        __syncthreads();
    }
    // turns totals in `starts` into starts; a warp has 32 digits at a time
    __device__ __forceinline__ void scan() {
        u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (u32 part = warp; part < 8; part += WARPS) {
            u32 own = starts[part * 32 + lane], sum = own;
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                u32 left = __shfl_up_sync(0xffffffff, sum, d);
                if (lane >= d) sum += left;
            }
            starts[part * 32 + lane] = sum - own;
            if (lane == 31) warp_sums[part] = sum;
        }
        __syncthreads();
        for (u32 d = threadIdx.x; d < 256; d += THREADS) {
            u32 sum = starts[d];
            for (u32 part = 0; part < d / 32; ++part) sum += warp_sums[part];
            starts[d] = sum;
        }
        __syncthreads();
    }
    __device__ __forceinline__ u32 place(u32 digit, u32 rank) const {
        return starts[digit] + counts[threadIdx.x / 32][digit] + rank;
    }
};

// a block has a line
template <class O, int WARPS, int ITEMS, bool MEDIAN>
DEV void block_radix_sort(const typename O::U* in, typename O::U* values, i64* indices, const Lines& job) {
    typedef typename O::U U;
    const int TILE = WARPS * 32 * ITEMS;
    extern __shared__ __align__(16) unsigned char dynamic[];
    BlockRanks<WARPS, ITEMS>& ranking = *(BlockRanks<WARPS, ITEMS>*)dynamic;
    U* keys = (U*)(dynamic + sizeof(BlockRanks<WARPS, ITEMS>));
    u16* places = (u16*)(keys + TILE);
    index_t at[3];
    offsets_of(job, blockIdx.x, at);
    u32 begin = threadIdx.x / 32 * (32 * ITEMS) + threadIdx.x % 32;
    U key[ITEMS];
    u32 place[ITEMS], ranks[ITEMS], nans = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        place[i] = begin + i * 32;
        bool is = place[i] < job.length;
        U bits = is ? in[at[0] + place[i] * job.step[0]] : (U)0;
        if (MEDIAN) nans += __syncthreads_count(is && O::is_nan(bits));
        key[i] = is ? O::key(bits) : (U)~(U)0;
    }
    u32 from = window_of(job, nans);
    for (int shift = 0; shift < 8 * (int)job.digits; shift += 8) {
        auto digit_of = [&](int i) { return (u32)(key[i] >> shift) & 255; };
        ranking.rank(digit_of, ranks);
        ranking.scan();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            u32 to = ranking.place(digit_of(i), ranks[i]);
            keys[to] = key[i];
            places[to] = place[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            key[i] = keys[begin + i * 32];
            place[i] = places[begin + i * 32];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
        if (begin + i * 32 < job.length)
            write_window<O>(
                values, indices, job, at, from, begin + i * 32, in[at[0] + place[i] * job.step[0]], place[i]);
}

// how often each digit of each pass occurs in each line; `histograms` is [line][pass][256]
template <class O, int WARPS, int ITEMS>
DEV void count_digits(const typename O::U* in, u32* histograms, const Lines& job, u32 tiles) {
    typedef typename O::U U;
    const int THREADS = WARPS * 32, PASSES = sizeof(U);
    __shared__ u32 counts[PASSES * 256];
    for (u32 k = threadIdx.x; k < PASSES * 256; k += THREADS) counts[k] = 0;
    __syncthreads();
    u32 line = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    index_t at[3];
    offsets_of(job, line, at);
    u32 begin = tile * (THREADS * ITEMS) + threadIdx.x;
    U bits[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        u32 p = begin + i * THREADS;
        bits[i] = p < job.length ? in[at[0] + p * job.step[0]] : (U)0;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        bool is = begin + i * THREADS < job.length;
        U key = O::key(bits[i]);
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            if (pass >= (int)job.digits) break;
            u32 digit = (u32)(key >> (8 * pass)) & 255;
            if (pass + 1 < PASSES) {
                if (is) atomicAdd(counts + pass * 256 + digit, 1);
            } else {  // most have one of a few exponents
                u32 peers = __match_any_sync(0xffffffff, digit) & __ballot_sync(0xffffffff, is);
                if (is && __ffs(peers) - 1 == threadIdx.x % 32) atomicAdd(counts + pass * 256 + digit, __popc(peers));
            }
        }
    }
    __syncthreads();
    for (u32 k = threadIdx.x; k < PASSES * 256; k += THREADS)
        if (counts[k]) atomicAdd(histograms + (u64)line * (PASSES * 256) + k, counts[k]);
}

const u32 PART = 1u << 30, WHOLE = 2u << 30, VALUE = PART - 1;

// how often a digit occurs in all tiles of the line before this one; several states are read at once
DEV u32 look_back(const u32* state, const u32* line, u32 digit) {
    const int AHEAD = 8;
    u32 before = 0;
    while (state != line) {
        u32 found[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; ++k)
            found[k] = state - line >= 256 * (k + 1) ? *(const volatile u32*)(state - 256 * (k + 1) + digit) : 0;
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            if (!(found[k] & (PART | WHOLE))) break;
            before += found[k] & VALUE;
            if (found[k] & WHOLE) return before;
            state -= 256;
        }
    }
    return before;
}

// one pass over all lines: stable by the digit at `shift`; tiles look back at the counts of those before
template <class O, int WARPS, int ITEMS, bool FIRST, bool LAST>
DEV void radix_pass(
    const typename O::U* in, const u32* in_places, typename O::U* out, u32* out_places, typename O::U* values,
    i64* indices, const u32* histograms, u32* ticket, u32* states, const Lines& job, u32 tiles, int pass
) {
    typedef typename O::U U;
    const int THREADS = WARPS * 32, TILE = THREADS * ITEMS, PASSES = sizeof(U);
    extern __shared__ __align__(16) unsigned char dynamic[];
    BlockRanks<WARPS, ITEMS>& ranking = *(BlockRanks<WARPS, ITEMS>*)dynamic;
    U* keys = (U*)(dynamic + sizeof(BlockRanks<WARPS, ITEMS>));
    u32* places = (u32*)(keys + TILE);
    __shared__ u32 base[256], mine;
    if (threadIdx.x == 0) mine = atomicAdd(ticket, 1);
    __syncthreads();
    u32 number = mine, line = number / tiles, tile = number % tiles;
    index_t at[3];
    offsets_of(job, line, at);
    u64 row = (u64)line * job.length;
    u32 left = job.length - tile * TILE, valid = left < TILE ? left : TILE;
    u32 begin = threadIdx.x / 32 * (32 * ITEMS) + threadIdx.x % 32, from = tile * TILE;
    U bits[ITEMS];
    u32 old[ITEMS], ranks[ITEMS];  // all that is read is asked for at once
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        u32 p = begin + i * 32;
        bits[i] = p >= valid ? (U)0 : FIRST ? in[at[0] + (index_t)(from + p) * job.step[0]] : in[row + from + p];
        old[i] = FIRST ? from + p : p < valid ? in_places[row + from + p] : 0;
    }
    auto digit_of = [&](int i) { return begin + i * 32 < valid ? (u32)(O::key(bits[i]) >> (8 * pass)) & 255 : 255; };
    ranking.rank(digit_of, ranks);
    u32* state = states + (u64)number * 256;
    for (u32 d = threadIdx.x; d < 256; d += THREADS) {
        u32 total = ranking.starts[d] - (d == 255 ? TILE - valid : 0);
        *(volatile u32*)(state + d) = total | (tile ? PART : WHOLE);
        base[d] = total;
    }
    __syncthreads();
    ranking.scan();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        u32 to = ranking.place(digit_of(i), ranks[i]);
        keys[to] = bits[i];
        places[to] = old[i];
    }
    for (u32 d = threadIdx.x; d < 256; d += THREADS) {
        u32 before = look_back(state, states + (u64)line * tiles * 256, d);
        if (tile) *(volatile u32*)(state + d) = (before + base[d]) | WHOLE;
        base[d] = before;
    }
    // places of digits in the whole line
    __syncthreads();
    if (threadIdx.x < 32) {
        u32 sum = 0;
        for (u32 part = 0; part < 8; ++part) {
            u32 d = part * 32 + threadIdx.x, own = histograms[((u64)line * PASSES + pass) * 256 + d], to = own;
#pragma unroll
            for (int s = 1; s < 32; s *= 2) {
                u32 lower = __shfl_up_sync(0xffffffff, to, s);
                if (threadIdx.x >= s) to += lower;
            }
            base[d] += sum + to - own - ranking.starts[d];
            sum += __shfl_sync(0xffffffff, to, 31);
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        u32 p = i * THREADS + threadIdx.x;
        if (p >= valid) continue;
        U b = keys[p];
        u32 to = base[(u32)(O::key(b) >> (8 * pass)) & 255] + p, window = to - job.from;
        if (!LAST) {
            out[row + to] = b;
            out_places[row + to] = places[p];
        } else if (window < job.size) {
            if (values) values[at[1] + (index_t)window * job.step[1]] = b;
            indices[at[2] + (index_t)window * job.step[2]] = places[p];
        }
    }
}
"""
