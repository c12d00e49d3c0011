"""CUDA text of selection by rank: the digits of an element's key are found from the top, by counting.

``select_rank`` gives the element of one rank of each line, ``best`` the first few, in order. Goes with ``sort_text``.
"""

from __future__ import annotations

THREADS = 512

SELECTION = r"""
const int SELECT_THREADS = 512, BINS = 2048;

struct Digit { u32 bin, before, count; };
// the bin in which the element of a rank is, how many come before the bin and how many are in it
DEV Digit bin_of(const u32* counts, u32 rank, u32* shared) {
    const int EACH = BINS / SELECT_THREADS;
    __shared__ Digit found;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = 0;
#pragma unroll
    for (int k = 0; k < EACH; ++k) own += counts[threadIdx.x * EACH + k];
    u32 sum = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        u32 left = __shfl_up_sync(0xffffffff, sum, d);
        if (lane >= d) sum += left;
    }
    if (lane == 31) shared[warp] = sum;
    __syncthreads();
    sum -= own;
    for (u32 w = 0; w < warp; ++w) sum += shared[w];
    if (sum <= rank && rank < sum + own) {
        int k = 0;
        while (sum + counts[threadIdx.x * EACH + k] <= rank) sum += counts[threadIdx.x * EACH + k++];
        found = {threadIdx.x * EACH + k, sum, counts[threadIdx.x * EACH + k]};
    }
    __syncthreads();
    return found;
}

// elements of a part of a line: of the input, or candidates with the places they came from
template <class U> struct Part {
    const U* bits; const u32* places; index_t step; u32 begin, length;
    __device__ __forceinline__ U load(u32 i) const { return bits[(index_t)(begin + i) * step]; }
    __device__ __forceinline__ u32 place(u32 i) const { return places ? places[begin + i] : begin + i; }
};
template <class U> struct RadixPrefix { U prefix, mask; u32 before, count; };

// narrows down to keys that begin as that of a rank does, until at most `enough` are not after it
template <class O>
DEV RadixPrefix<typename O::U> radix_select(
    const Part<typename O::U>& part, u32 rank, u32 enough, u32* counts, u32* shared
) {
    typedef typename O::U U;
    RadixPrefix<U> chosen = {0, 0, 0, part.length};
    int bits = 8 * sizeof(U);
    do {
        int width = bits < 11 ? bits : 11;
        bits -= width;
        for (u32 k = threadIdx.x; k < BINS; k += SELECT_THREADS) counts[k] = 0;
        __syncthreads();
        const int AT_ONCE = 4;
        for (u32 i = threadIdx.x; i < part.length; i += AT_ONCE * SELECT_THREADS) {
            U b[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; ++u)
                if (i + u * SELECT_THREADS < part.length) b[u] = part.load(i + u * SELECT_THREADS);
#pragma unroll
            for (int u = 0; u < AT_ONCE; ++u)
                if (i + u * SELECT_THREADS < part.length) {
                    U key = O::key(b[u]);
                    if ((U)(key & chosen.mask) == chosen.prefix)
                        atomicAdd(counts + ((u32)(key >> bits) & ((1u << width) - 1)), 1);
                }
        }
        __syncthreads();
        Digit digit = bin_of(counts, rank - chosen.before, shared);
        chosen.prefix |= (U)((U)digit.bin << bits);
        chosen.mask |= (U)((U)((1u << width) - 1) << bits);
        chosen.before += digit.before;
        chosen.count = digit.count;
        __syncthreads();
    } while (bits && chosen.before + chosen.count > enough);
    return chosen;
}

// calls `found(i, n)` for the elements with the chosen key, in the order of places, n counting them, up to a number
template <class O, class F>
DEV void for_each_in_order(const Part<typename O::U>& part, typename O::U key, u32 most, u32* shared, F found) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, seen = 0;
    for (u32 from = 0; from < part.length && seen < most; from += SELECT_THREADS) {
        u32 i = from + threadIdx.x;
        bool is = i < part.length && O::key(part.load(i)) == key;
        u32 votes = __ballot_sync(0xffffffff, is);
        if (lane == 0) shared[warp] = __popc(votes);
        __syncthreads();
        u32 n = seen + __popc(votes & ((1u << lane) - 1));
        for (u32 w = 0; w < SELECT_THREADS / 32; ++w) {
            if (w < warp) n += shared[w];
            seen += shared[w];
        }
        if (is && n < most) found(i, n);
        __syncthreads();
    }
}

// the element of a rank of each line, and its place; MEDIAN: of the middle rank, or the first NaN
template <class O, bool MEDIAN>
DEV void select_rank(const typename O::U* in, typename O::U* values, i64* indices, const Lines& job) {
    typedef typename O::U U;
    __shared__ u32 counts[BINS], shared[32];
    __shared__ u32 nan_count;
    index_t at[3];
    offsets_of(job, blockIdx.x, at);
    Part<U> part = {in + at[0], 0, job.step[0], 0, job.length};
    u32 rank = job.from;
    if (MEDIAN) {
        if (threadIdx.x == 0) nan_count = 0;
        __syncthreads();
        u32 own = 0;
        for (u32 i = threadIdx.x; i < part.length; i += SELECT_THREADS) own += O::is_nan(part.load(i));
        own = __reduce_add_sync(0xffffffff, own);
        if (threadIdx.x % 32 == 0 && own) atomicAdd(&nan_count, own);
        __syncthreads();
        rank = window_of(job, nan_count);
    }
    RadixPrefix<U> chosen = radix_select<O>(part, rank, 0, counts, shared);
    u32 wanted = rank - chosen.before;
    for_each_in_order<O>(part, chosen.prefix, wanted + 1, shared, [&](u32 i, u32 n) {
        if (n == wanted) {
            values[at[1]] = part.load(i);
            indices[at[2]] = i;
        }
    });
}

// the best `job.size` of each of `parts` parts of each line, best first
template <class O, int CAPACITY, bool FIRST, bool LAST>
DEV void best(
    const typename O::U* in, const u32* in_places, typename O::U* out, u32* out_places, typename O::U* values,
    i64* indices, const Lines& job, u32 parts
) {
    typedef typename O::U U;
    __shared__ u32 counts[BINS], shared[32], taken;
    __shared__ U keys[CAPACITY];
    __shared__ u32 items[CAPACITY];
    u32 line = blockIdx.x / parts, number = blockIdx.x % parts, k = job.size;
    index_t at[3];
    offsets_of(job, line, at);
    u64 row = (u64)line * job.length;
    u32 begin = (u64)job.length * number / parts, end = (u64)job.length * (number + 1) / parts;
    Part<U> part = {in + (FIRST ? (u64)at[0] : row), FIRST ? 0 : in_places + row, FIRST ? job.step[0] : 1,
                    begin, end - begin};
    RadixPrefix<U> chosen = radix_select<O>(part, k - 1, CAPACITY, counts, shared);
    bool fits = chosen.before + chosen.count <= CAPACITY;
    if (threadIdx.x == 0) taken = 0;
    for (u32 i = threadIdx.x; i < CAPACITY; i += SELECT_THREADS) { keys[i] = (U)~(U)0; items[i] = ~0u; }
    __syncthreads();
    for (u32 i = threadIdx.x; i < part.length; i += SELECT_THREADS) {
        U key = O::key(part.load(i)), head = key & chosen.mask;
        if (head < chosen.prefix || (fits && head == chosen.prefix)) {
            u32 to = atomicAdd(&taken, 1);
            keys[to] = key;
            items[to] = i;
        }
    }
    __syncthreads();
    if (!fits)
        for_each_in_order<O>(part, chosen.prefix, k - chosen.before, shared, [&](u32 i, u32 n) {
            keys[chosen.before + n] = chosen.prefix;
            items[chosen.before + n] = i;
        });
    u32 count = fits ? chosen.before + chosen.count : k, size = 2;
    while (size < count) size *= 2;
    __syncthreads();
    for (u32 span = 2; span <= size; span *= 2)
        for (u32 j = span / 2; j; j /= 2) {
            for (u32 n = threadIdx.x; n < size / 2; n += SELECT_THREADS) {
                u32 a = (n / j) * 2 * j + n % j, b = a + j;
                bool is_after = keys[a] > keys[b] || (keys[a] == keys[b] && items[a] > items[b]);
                if (is_after == ((a & span) == 0)) {
                    U key = keys[a]; keys[a] = keys[b]; keys[b] = key;
                    u32 item = items[a]; items[a] = items[b]; items[b] = item;
                }
            }
            __syncthreads();
        }
    for (u32 n = threadIdx.x; n < k; n += SELECT_THREADS) {
        U bits = part.load(items[n]);
        u32 place = part.place(items[n]);
        u64 to = ((u64)line * parts + number) * k + n;
        if (LAST) {
            values[at[1] + n * job.step[1]] = bits;
            indices[at[2] + n * job.step[2]] = place;
        } else {
            out[to] = bits;
            out_places[to] = place;
        }
    }
}
"""
