"""CUDA text of cumulative operations: what is carried along, and kernels that run along lines or down columns.

``scan_rows``: elements of a line are neighbours; a group of lanes or a block takes a tile of it, vectors at a time.
``scan_columns``: lines lie side by side; a block takes a tile of rows of 32 of them. Where a line has several tiles,
their totals are computed first, and what comes before each tile by ``exclusive_scan_tiles`` or ``exclusive_scan_rows``:
no block waits for another, and results are the same every time.
"""

from __future__ import annotations

LINE_ITEMS = 4
COLUMN_ROWS = 16
COLUMN_WARPS = 8
WHOLE, TOTALS, FINISH = range(3)
"""What a kernel does with a tile: all, as it is the whole line; or find its total; or start from what comes before."""

CARRIES = r"""
template <class T, class O, class A> struct RunningSum {
    typedef T In; typedef A Acc; typedef O First; typedef O Second;
    static const bool IS_PAIR = false, HAS_TWO = false, COMMUTES = true;
    DEV A identity() { return cast<A>(0); }
    DEV A of(T v, T, index_t) { return cast_via<T, O, A>::of(v); }
    DEV A combine(A a, A b) { return plus(a, b); }
    DEV O first(A a) { return cast<O>(a); }
    DEV O second(A a) { return cast<O>(a); }
};
template <class T, class O, class A> struct RunningProduct : RunningSum<T, O, A> {
    DEV A identity() { return cast<A>(1); }
    DEV A combine(A a, A b) { return times(a, b); }
};
template <class T, class A> struct RunningLogSum {
    typedef LogSumExp<T, T, A> Sum;
    typedef T In; typedef ScaledSum<A> Acc; typedef T First; typedef T Second;
    static const bool IS_PAIR = false, HAS_TWO = false, COMMUTES = true;
    DEV Acc identity() { return Sum::init(); }
    DEV Acc of(T v, T, index_t) { return {cast<A>(v), cast<A>(1)}; }
    DEV Acc combine(Acc a, Acc b) { return Sum::merge(a, b); }
    DEV T first(Acc a) { return cast<T>(a.largest + log_of(a.sum)); }
    DEV T second(Acc a) { return first(a); }
};
template <class T, class A, bool LARGEST> struct RunningExtreme {  // the best so far, and the last place that has it
    typedef T In; typedef ValueAndIndex<A> Acc; typedef T First; typedef i64 Second;
    static const bool IS_PAIR = false, HAS_TWO = true, COMMUTES = false;
    DEV Acc identity() { return {extreme_identity<A, LARGEST>(), NO_INDEX}; }
    DEV Acc of(T v, T, index_t at) { return {cast<A>(v), at}; }
    DEV Acc combine(Acc a, Acc b) {
        if (a.at == NO_INDEX || b.at == NO_INDEX) return b.at == NO_INDEX ? a : b;
        bool reaches = LARGEST ? b.value >= a.value : b.value <= a.value;
        return is_nan(b.value) || (reaches && !is_nan(a.value)) ? b : a;
    }
    DEV First first(Acc a) { return cast<T>(a.value); }
    DEV i64 second(Acc a) { return (i64)a.at; }
};
// y = decay * y + x; as a map it is what takes the y before to the y after
template <class A> struct Affine { A decay, x; };
template <class T, class A> struct Recurrence {
    typedef T In; typedef Affine<A> Acc; typedef T First; typedef T Second;
    static const bool IS_PAIR = true, HAS_TWO = false, COMMUTES = false;
    DEV Acc identity() { return {cast<A>(1), cast<A>(0)}; }
    DEV Acc of(T decay, T x, index_t at) { return {at ? cast<A>(decay) : cast<A>(0), cast<A>(x)}; }
    DEV Acc combine(Acc a, Acc b) { return {times(a.decay, b.decay), plus(times(b.decay, a.x), b.x)}; }
    DEV T first(Acc a) { return cast<T>(a.x); }
    DEV T second(Acc a) { return cast<T>(a.x); }
};
"""

KERNELS = r"""
const int WHOLE = 0, TOTALS = 1, FINISH = 2;
struct Scan {
    lines_t lines;                 // of the inputs and the results
    index_t count, length;         // lines, elements of each
    index_t tiles, parts;          // tiles of each, parts of a tile that a block takes one after the other
    index_t step[4];               // from one element to the next, in each operand
};
struct Pointers { const void* in; const void* other; void* first; void* second; };

template <class A> DEV A shuffle_up(A a, int distance) {
    const int N = sizeof(A) / 4;
    union U { A value; u32 at[N]; __device__ U() {} } u;
    u.value = a;
#pragma unroll
    for (int k = 0; k < N; ++k) u.at[k] = __shfl_up_sync(0xffffffff, u.at[k], distance);
    return u.value;
}
template <class A> DEV A shuffle(A a, int lane) {
    const int N = sizeof(A) / 4;
    union U { A value; u32 at[N]; __device__ U() {} } u;
    u.value = a;
#pragma unroll
    for (int k = 0; k < N; ++k) u.at[k] = __shfl_sync(0xffffffff, u.at[k], lane);
    return u.value;
}
// everything up to each of G lanes
template <class Op, int G> DEV typename Op::Acc warp_inclusive_scan(typename Op::Acc a, u32 lane) {
#pragma unroll
    for (int d = 1; d < G; d *= 2) {
        typename Op::Acc before = shuffle_up(a, d);
        if (lane >= d) a = Op::combine(before, a);
    }
    return a;
}

template <class T, int V> DEV void store_vector(T* to, const vec<T, V>& v) {
    const int BYTES = sizeof(T) * V, STEP = BYTES < 16 ? BYTES : 16;
    typedef typename bits<STEP>::type B;
#pragma unroll
    for (int k = 0; k < BYTES / STEP; ++k) ((B*)to)[k] = ((const B*)&v)[k];
}

// thread 0 gets the total of a block's tile, where the order does not matter: each thread goes through it alone
template <class Op, int V, int K, int WARPS>
DEV typename Op::Acc total_of(const typename Op::In* line, const Scan& scan, index_t tile, typename Op::Acc* across) {
    typedef typename Op::Acc Acc;
    typedef typename Op::In T;
    const index_t STEP = WARPS * 32 * V;
    index_t end = (tile + 1) * scan.parts * (K * STEP);
    if (end > scan.length) end = scan.length;
    Acc own = Op::identity();
    for (index_t place = tile * scan.parts * (K * STEP) + threadIdx.x * V; place < end; place += K * STEP) {
        vec<T, V> x[K];
#pragma unroll
        for (int k = 0; k < K; ++k)
            if (place + k * STEP < end) x[k] = load_vector<T, V>(line + place + k * STEP);
#pragma unroll
        for (int k = 0; k < K; ++k)
            if (place + k * STEP < end)
#pragma unroll
                for (int v = 0; v < V; ++v) own = Op::combine(own, Op::of(x[k].at[v], x[k].at[v], 0));
    }
    own = shuffle(warp_inclusive_scan<Op, 32>(own, threadIdx.x % 32), 31);
    if (threadIdx.x % 32 == 0) across[threadIdx.x / 32] = own;
    __syncthreads();
    own = Op::identity();
    for (u32 w = 0; w < WARPS; ++w) own = Op::combine(own, across[w]);
    return own;
}

// G lanes, or a block of WARPS warps, takes V * K elements each, V at a time
template <class Op, int V, int K, int G, int WARPS, int PHASE>
DEV void scan_rows(const Pointers& to, const Scan& scan, typename Op::Acc* totals) {
    typedef typename Op::Acc Acc;
    typedef typename Op::In T;
    const int LANES = G * WARPS;
    __shared__ alignas(16) u64 memory[WARPS * sizeof(Acc) / 8 + 2];
    Acc* across = (Acc*)memory;
    u32 lane = threadIdx.x % G, warp = WARPS > 1 ? threadIdx.x / 32 : 0;
    // from the end, where the totals' kernel has left the elements in the cache
    u32 block = PHASE == FINISH ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    u64 number = block * (u64)(blockDim.x / LANES) + threadIdx.x / LANES;
    index_t line = number / scan.tiles, tile = number % scan.tiles;
    bool is_line = line < scan.count;
    index_t at[4] = {0, 0, 0, 0};
    if (is_line) scan.lines.find(line, at);
    if constexpr (PHASE == TOTALS && Op::COMMUTES) {
        Acc total = total_of<Op, V, K, WARPS>((const T*)to.in + at[0], scan, tile, across);
        if (threadIdx.x == 0) totals[number] = total;
        return;
    }
    Acc carry = PHASE == FINISH && is_line ? totals[number] : Op::identity();
    for (index_t part = tile * scan.parts; part < (tile + 1) * scan.parts; ++part) {
        index_t place = part * (LANES * V * K) + warp * (G * V * K) + lane * V;
        vec<T, V> x[K], y[K];
#pragma unroll
        for (int k = 0; k < K; ++k) {
            index_t p = place + k * (G * V);
            if (is_line && p < scan.length) {
                x[k] = load_vector<T, V>((const T*)to.in + at[0] + p);
                if (Op::IS_PAIR) y[k] = load_vector<T, V>((const T*)to.other + at[1] + p);
            }
        }
        Acc before[K], own = Op::identity();
#pragma unroll
        for (int k = 0; k < K; ++k) {
            index_t p = place + k * (G * V);
            Acc a = Op::identity();
            if (is_line && p < scan.length)
#pragma unroll
                for (int v = 0; v < V; ++v) a = Op::combine(a, Op::of(x[k].at[v], y[k].at[v], p + v));
            a = warp_inclusive_scan<Op, G>(a, lane);
            Acc left = shuffle_up(a, 1);
            before[k] = lane ? Op::combine(own, left) : own;
            own = Op::combine(own, shuffle(a, threadIdx.x % 32 / G * G + G - 1));
        }
        Acc start = carry;
        if (WARPS > 1) {
            __syncthreads();
            if (lane == 0) across[warp] = own;
            __syncthreads();
            for (u32 w = 0; w < WARPS; ++w) {
                if (w < warp) start = Op::combine(start, across[w]);
                carry = Op::combine(carry, across[w]);
            }
        }
        if (PHASE == TOTALS) continue;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            index_t p = place + k * (G * V);
            if (is_line && p < scan.length) {
                Acc a = Op::combine(start, before[k]);
                vec<typename Op::First, V> first;
                vec<typename Op::Second, V> second;
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    a = Op::combine(a, Op::of(x[k].at[v], y[k].at[v], p + v));
                    first.at[v] = Op::first(a);
                    second.at[v] = Op::second(a);
                }
                store_vector((typename Op::First*)to.first + at[2] + p, first);
                if (Op::HAS_TWO) store_vector((typename Op::Second*)to.second + at[3] + p, second);
            }
        }
    }
    if (PHASE == TOTALS && threadIdx.x == 0) totals[number] = carry;
}

// a block per line: totals of tiles become what comes before each
template <class Op> DEV void exclusive_scan_tiles(typename Op::Acc* totals, index_t tiles) {
    typedef typename Op::Acc Acc;
    __shared__ alignas(16) u64 memory[32 * sizeof(Acc) / 8 + 2];
    Acc* across = (Acc*)memory;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    totals += (u64)blockIdx.x * tiles;
    Acc carry = Op::identity();
    for (index_t from = 0; from < tiles; from += blockDim.x) {
        index_t tile = from + threadIdx.x;
        Acc a = warp_inclusive_scan<Op, 32>(tile < tiles ? totals[tile] : Op::identity(), lane);
        Acc left = shuffle_up(a, 1);
        if (lane == 31) across[warp] = a;
        __syncthreads();
        Acc start = carry;
        for (u32 w = 0; w < warps; ++w) {
            if (w < warp) start = Op::combine(start, across[w]);
            carry = Op::combine(carry, across[w]);
        }
        if (tile < tiles) totals[tile] = lane ? Op::combine(start, left) : start;
        __syncthreads();
    }
}

// 32 lanes have V lines each; WARPS warps have R rows of them each
template <class Op, int V, int R, int WARPS, int PHASE>
DEV void scan_columns(const Pointers& to, const Scan& scan, typename Op::Acc* totals) {
    typedef typename Op::Acc Acc;
    typedef typename Op::In T;
    __shared__ alignas(16) u64 memory[(WARPS * 32 * V * sizeof(Acc) + 7) / 8];
    Acc* across = (Acc*)memory;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    index_t strips = (scan.count / V + 31) / 32;
    index_t strip = blockIdx.x % strips, tile = blockIdx.x / strips, line = (strip * 32 + lane) * V;
    bool is_line = line < scan.count;
    index_t at[4] = {0, 0, 0, 0};
    if (is_line) scan.lines.find(line, at);
    totals += ((u64)blockIdx.x * 32 + lane) * V;
    Acc carry[V];
#pragma unroll
    for (int v = 0; v < V; ++v) carry[v] = PHASE == FINISH ? totals[v] : Op::identity();
    for (index_t part = tile * scan.parts; part < (tile + 1) * scan.parts; ++part) {
        index_t row = (part * WARPS + warp) * R;
        vec<T, V> x[R], y[R];
        Acc total[V], start[V];
#pragma unroll
        for (int r = 0; r < R; ++r)
            if (is_line && row + r < scan.length) {
                x[r] = load_vector<T, V>((const T*)to.in + at[0] + (row + r) * scan.step[0]);
                if (Op::IS_PAIR) y[r] = load_vector<T, V>((const T*)to.other + at[1] + (row + r) * scan.step[1]);
            }
#pragma unroll
        for (int v = 0; v < V; ++v) {
            start[v] = carry[v];
            total[v] = Op::identity();
#pragma unroll
            for (int r = 0; r < R; ++r)
                if (is_line && row + r < scan.length)
                    total[v] = Op::combine(total[v], Op::of(x[r].at[v], y[r].at[v], row + r));
        }
        if (WARPS > 1) {
            __syncthreads();
#pragma unroll
            for (int v = 0; v < V; ++v) across[(warp * 32 + lane) * V + v] = total[v];
            __syncthreads();
#pragma unroll
            for (int v = 0; v < V; ++v)
                for (u32 w = 0; w < WARPS; ++w) {
                    if (w < warp) start[v] = Op::combine(start[v], across[(w * 32 + lane) * V + v]);
                    carry[v] = Op::combine(carry[v], across[(w * 32 + lane) * V + v]);
                }
        }
        if (PHASE == TOTALS) continue;
#pragma unroll
        for (int r = 0; r < R; ++r)
            if (is_line && row + r < scan.length) {
                vec<typename Op::First, V> first;
                vec<typename Op::Second, V> second;
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    start[v] = Op::combine(start[v], Op::of(x[r].at[v], y[r].at[v], row + r));
                    first.at[v] = Op::first(start[v]);
                    second.at[v] = Op::second(start[v]);
                }
                store_vector((typename Op::First*)to.first + at[2] + (row + r) * scan.step[2], first);
                if (Op::HAS_TWO)
                    store_vector((typename Op::Second*)to.second + at[3] + (row + r) * scan.step[3], second);
            }
    }
    if (PHASE == TOTALS && warp == 0)
#pragma unroll
        for (int v = 0; v < V; ++v) totals[v] = carry[v];
}

// a thread per line: totals of tiles, which lie `width` apart, become what comes before each
template <class Op> DEV void exclusive_scan_rows(typename Op::Acc* totals, index_t tiles, index_t width) {
    typedef typename Op::Acc Acc;
    const int AT_ONCE = 8;
    index_t line = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (line >= width) return;
    Acc carry = Op::identity();
    for (index_t from = 0; from < tiles; from += AT_ONCE) {
        Acc total[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k)
            if (from + k < tiles) total[k] = totals[(u64)(from + k) * width + line];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k)
            if (from + k < tiles) {
                totals[(u64)(from + k) * width + line] = carry;
                carry = Op::combine(carry, total[k]);
            }
    }
}
"""
