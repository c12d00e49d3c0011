"""CUDA text of cumulative operations: what is carried along, and kernels that run along lines or down columns.

``along_lines``: elements of a line are neighbours; a group of lanes or a block takes a tile of it, vectors at a time.
``down_columns``: lines lie side by side; a block takes a tile of rows of 32 of them. Where a line has several tiles,
each publishes its total and gathers those before it, always in the same order: results are the same every time.
"""

from __future__ import annotations

GROUP = 64
"""Tiles whose totals are published together."""
LINE_ITEMS = 4
SHARED_LINE_ITEMS = 8
"""Vectors of a thread, where a line has one tile or several."""
COLUMN_ROWS = 16
COLUMN_WARPS = 8

CARRIES = r"""
template <class T, class O, class A> struct RunningSum {
    typedef T In; typedef A Acc; typedef O First; typedef O Second;
    static const bool IS_PAIR = false, HAS_TWO = false;
    DEV A nothing() { return cast<A>(0); }
    DEV A of(T v, T, index_t) { return through<T, O, A>::of(v); }
    DEV A then(A a, A b) { return plus(a, b); }
    DEV O first(A a) { return cast<O>(a); }
    DEV O second(A a) { return cast<O>(a); }
};
template <class T, class O, class A> struct RunningProduct : RunningSum<T, O, A> {
    DEV A nothing() { return cast<A>(1); }
    DEV A then(A a, A b) { return times(a, b); }
};
template <class T, class A, bool LARGEST> struct RunningExtreme {  // the best so far, and the last place that has it
    typedef T In; typedef Place<A> Acc; typedef T First; typedef i64 Second;
    static const bool IS_PAIR = false, HAS_TWO = true;
    DEV Acc nothing() { return {worst_of<A, LARGEST>(), NOWHERE}; }
    DEV Acc of(T v, T, index_t at) { return {cast<A>(v), at}; }
    DEV Acc then(Acc a, Acc b) {
        if (a.at == NOWHERE || b.at == NOWHERE) return b.at == NOWHERE ? a : b;
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
    static const bool IS_PAIR = true, HAS_TWO = false;
    DEV Acc nothing() { return {cast<A>(1), cast<A>(0)}; }
    DEV Acc of(T decay, T x, index_t at) { return {at ? cast<A>(decay) : cast<A>(0), cast<A>(x)}; }
    DEV Acc then(Acc a, Acc b) { return {times(a.decay, b.decay), plus(times(b.decay, a.x), b.x)}; }
    DEV T first(Acc a) { return cast<T>(a.x); }
    DEV T second(Acc a) { return cast<T>(a.x); }
};
"""

KERNELS = r"""
const int GROUP = 64;
struct Scan {
    lines_t lines;               // of the inputs and the results
    index_t count, length, tiles;  // lines, elements of each, tiles of each
    index_t step[4];             // from one element to the next, in each operand
};
struct Shared { u32* counters; void* totals; };  // counters are zero before and after
struct Pointers { const void* in; const void* other; void* first; void* second; };

template <class A> DEV A lane_before(A a, int distance) {
    const int N = sizeof(A) / 4;
    union U { A value; u32 at[N]; __device__ U() {} } u;
    u.value = a;
#pragma unroll
    for (int k = 0; k < N; ++k) u.at[k] = __shfl_up_sync(0xffffffff, u.at[k], distance);
    return u.value;
}
template <class A> DEV A of_lane(A a, int lane) {
    const int N = sizeof(A) / 4;
    union U { A value; u32 at[N]; __device__ U() {} } u;
    u.value = a;
#pragma unroll
    for (int k = 0; k < N; ++k) u.at[k] = __shfl_sync(0xffffffff, u.at[k], lane);
    return u.value;
}
// everything up to each of G lanes
template <class Op, int G> DEV typename Op::Acc up_to_lane(typename Op::Acc a, u32 lane) {
#pragma unroll
    for (int d = 1; d < G; d *= 2) {
        typename Op::Acc before = lane_before(a, d);
        if (lane >= d) a = Op::then(before, a);
    }
    return a;
}

template <class A> DEV void publish(A* to, u32* flag, A value) {
    *to = value;
    __threadfence();
    *(volatile u32*)flag = 1;
}
template <class A> DEV A awaited(const A* from, const u32* flag) {
    while (!*(const volatile u32*)flag) {}
    __threadfence();
    union U { A value; u32 at[sizeof(A) / 4]; __device__ U() {} } u;
#pragma unroll
    for (int k = 0; k < sizeof(A) / 4; ++k) u.at[k] = ((const volatile u32*)from)[k];
    return u.value;
}

// where totals and their flags are: of tiles, and of whole groups of them
template <class A> struct Board {
    A* totals; A* groups;
    u32 *ticket, *done, *flags, *group_flags;
    u64 lanes;  // totals of one tile
    __device__ __forceinline__ Board(const Shared& shared, u64 tiles, u64 lanes) : lanes(lanes) {
        ticket = shared.counters; done = ticket + 1; flags = ticket + 2; group_flags = flags + tiles;
        totals = (A*)shared.totals; groups = totals + tiles * lanes;
    }
};
// tiles are handed out in order, so that those before are on their way
DEV u32 next_tile(u32* ticket) {
    __shared__ u32 mine;
    if (threadIdx.x == 0) mine = atomicAdd(ticket, 1);
    __syncthreads();
    return mine;
}
// the last block to get here leaves all counters at zero
DEV void leave(u32* counters, u32 used) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(counters + 1, 1) + 1 == gridDim.x;
    __syncthreads();
    if (last) for (u32 k = threadIdx.x; k < used; k += blockDim.x) counters[k] = 0;
}

template <class T, int V> DEV void stored(T* to, const vec<T, V>& v) {
    const int BYTES = sizeof(T) * V, STEP = BYTES < 16 ? BYTES : 16;
    typedef typename bits<STEP>::type B;
#pragma unroll
    for (int k = 0; k < BYTES / STEP; ++k) ((B*)to)[k] = ((const B*)&v)[k];
}

// total number i of those before a tile: first those of whole groups, then those of the tile's own group
template <class Op>
DEV typename Op::Acc total_before(
    const Board<typename Op::Acc>& board, u64 line, index_t tiles, index_t groups, index_t i, index_t end
) {
    if (i >= end) return Op::nothing();
    index_t per_line = (tiles + GROUP - 1) / GROUP;
    u64 group = line * per_line + i, tile = line * tiles + groups * GROUP + (i - groups);
    return i < groups ? awaited(board.groups + group, board.group_flags + group)
                      : awaited(board.totals + tile, board.flags + tile);
}
// the whole block: the total of all tiles of the line before this one, for each thread; `across` has WARPS places
template <class Op, int WARPS>
DEV typename Op::Acc before_tile(
    const Board<typename Op::Acc>& board, u64 line, index_t tiles, index_t tile, typename Op::Acc* across
) {
    typedef typename Op::Acc Acc;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    index_t groups = tile / GROUP, end = groups + tile % GROUP;
    Acc found = Op::nothing();
    for (index_t from = 0; from < end; from += 32 * WARPS) {
        Acc a = total_before<Op>(board, line, tiles, groups, from + threadIdx.x, end);
        __syncwarp();
        a = up_to_lane<Op, 32>(a, lane);
        __syncthreads();
        if (lane == 31) across[warp] = a;
        __syncthreads();
        for (u32 w = 0; w < WARPS && from + 32 * w < end; ++w) found = Op::then(found, across[w]);
    }
    return found;
}
// one warp of the last tile of a group publishes the group's total
template <class Op>
DEV void publish_group(const Board<typename Op::Acc>& board, u64 line, index_t tiles, index_t tile) {
    typedef typename Op::Acc Acc;
    u32 lane = threadIdx.x % 32;
    u64 first = line * tiles + tile / GROUP * GROUP, group = line * ((tiles + GROUP - 1) / GROUP) + tile / GROUP;
    Acc total = Op::nothing();
    __syncwarp();
    for (u32 from = 0; from < GROUP; from += 32) {
        Acc a = awaited(board.totals + first + from + lane, board.flags + first + from + lane);
        __syncwarp();
        total = Op::then(total, of_lane(up_to_lane<Op, 32>(a, lane), 31));
    }
    if (lane == 0) publish(board.groups + group, board.group_flags + group, total);
}

// G lanes (or, where tiles are shared, WARPS warps) take V * K elements each, V at a time
template <class Op, int V, int K, int G, int WARPS, bool SHARED>
DEV void along_lines(const Pointers& to, const Scan& scan, const Shared& shared) {
    typedef typename Op::Acc Acc;
    typedef typename Op::In T;
    const int LANES = G * WARPS;
    __shared__ alignas(16) u64 memory[WARPS * sizeof(Acc) / 8 + 2];
    Acc* across = (Acc*)memory;
    u32 lane = threadIdx.x % G, warp = WARPS > 1 ? threadIdx.x / 32 : 0;
    Board<Acc> board(shared, (u64)scan.count * scan.tiles, 1);
    u64 number = SHARED ? next_tile(board.ticket) : blockIdx.x * (u64)(blockDim.x / LANES) + threadIdx.x / LANES;
    index_t line = SHARED ? number / scan.tiles : number, tile = SHARED ? number % scan.tiles : 0;
    bool is_line = line < scan.count;
    index_t at[4] = {0, 0, 0, 0};
    if (is_line) scan.lines.find(line, at);
    index_t place = tile * (LANES * V * K) + warp * (G * V * K) + lane * V;

    vec<T, V> x[K], y[K];
    Acc before[K], carry = Op::nothing();
#pragma unroll
    for (int k = 0; k < K; ++k) {
        index_t p = place + k * (G * V);
        if (is_line && p < scan.length) {
            x[k] = loaded<T, V>((const T*)to.in + at[0] + p);
            if (Op::IS_PAIR) y[k] = loaded<T, V>((const T*)to.other + at[1] + p);
        }
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
        index_t p = place + k * (G * V);
        Acc a = Op::nothing();
        if (is_line && p < scan.length)
#pragma unroll
            for (int v = 0; v < V; ++v) a = Op::then(a, Op::of(x[k].at[v], y[k].at[v], p + v));
        a = up_to_lane<Op, G>(a, lane);
        Acc left = lane_before(a, 1);
        before[k] = lane ? Op::then(carry, left) : carry;
        carry = Op::then(carry, of_lane(a, threadIdx.x % 32 / G * G + G - 1));
    }
    Acc start = Op::nothing();
    if (WARPS > 1) {
        if (lane == 0) across[warp] = carry;
        __syncthreads();
        for (u32 w = 0; w < warp; ++w) start = Op::then(start, across[w]);
    }
    if (SHARED) {
        if (warp == WARPS - 1 && lane == 0)
            publish(board.totals + number, board.flags + number, Op::then(start, carry));
        if (warp == WARPS - 1 && tile % GROUP == GROUP - 1) publish_group<Op>(board, line, scan.tiles, tile);
        start = Op::then(before_tile<Op, WARPS>(board, line, scan.tiles, tile, across), start);
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
        index_t p = place + k * (G * V);
        if (is_line && p < scan.length) {
            Acc a = Op::then(start, before[k]);
            vec<typename Op::First, V> first;
            vec<typename Op::Second, V> second;
#pragma unroll
            for (int v = 0; v < V; ++v) {
                a = Op::then(a, Op::of(x[k].at[v], y[k].at[v], p + v));
                first.at[v] = Op::first(a);
                second.at[v] = Op::second(a);
            }
            stored((typename Op::First*)to.first + at[2] + p, first);
            if (Op::HAS_TWO) stored((typename Op::Second*)to.second + at[3] + p, second);
        }
    }
    if (SHARED) leave(shared.counters, 2 + scan.count * (scan.tiles + (scan.tiles + GROUP - 1) / GROUP));
}

// each warp its part of what is awaited, in order; the parts joined in order
template <class Op, int V, int WARPS>
DEV void gather(
    typename Op::Acc (&found)[V], const typename Op::Acc* totals, const u32* flags, typename Op::Acc* across,
    index_t strip, index_t strips, index_t begin, index_t end
) {
    typedef typename Op::Acc Acc;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    index_t each = (end - begin + WARPS - 1) / WARPS, from = begin + warp * each;
    index_t to = from + each < end ? from + each : end;
    Acc part[V];
#pragma unroll
    for (int v = 0; v < V; ++v) part[v] = Op::nothing();
    for (index_t t = from; t < to; ++t) {
        u64 at = (u64)t * strips + strip;
#pragma unroll
        for (int v = 0; v < V; ++v) part[v] = Op::then(part[v], awaited(totals + (at * 32 + lane) * V + v, flags + at));
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; ++v) across[(warp * 32 + lane) * V + v] = part[v];
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; ++v) {
        found[v] = Op::nothing();
        for (u32 w = 0; w < WARPS; ++w) found[v] = Op::then(found[v], across[(w * 32 + lane) * V + v]);
    }
}
template <class Op, int V, int WARPS>
DEV void join_tiles(
    const Board<typename Op::Acc>& board, typename Op::Acc* across, typename Op::Acc (&start)[V], index_t strip,
    index_t strips, index_t tile, index_t tiles
) {
    typedef typename Op::Acc Acc;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    index_t group = tile / GROUP;
    Acc own[V], found[V];
    gather<Op, V, WARPS>(own, board.totals, board.flags, across, strip, strips, group * GROUP, tile);
    if (tile % GROUP == GROUP - 1 && warp == 0) {
        u64 mine = (u64)tile * strips + strip, at = (u64)group * strips + strip;
#pragma unroll
        for (int v = 0; v < V; ++v)
            board.groups[(at * 32 + lane) * V + v] =
                Op::then(own[v], awaited(board.totals + (mine * 32 + lane) * V + v, board.flags + mine));
        __threadfence();
        __syncwarp();
        if (lane == 0) *(volatile u32*)(board.group_flags + at) = 1;
    }
    gather<Op, V, WARPS>(found, board.groups, board.group_flags, across, strip, strips, (index_t)0, group);
#pragma unroll
    for (int v = 0; v < V; ++v) start[v] = Op::then(Op::then(found[v], own[v]), start[v]);
}

// 32 lanes have V lines each; WARPS warps have R rows of them each
template <class Op, int V, int R, int WARPS, bool SHARED>
DEV void down_columns(const Pointers& to, const Scan& scan, const Shared& shared) {
    typedef typename Op::Acc Acc;
    typedef typename Op::In T;
    __shared__ alignas(16) u64 memory[(WARPS * 32 * V * sizeof(Acc) + 7) / 8];
    Acc* across = (Acc*)memory;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    index_t strips = (scan.count / V + 31) / 32;
    Board<Acc> board(shared, (u64)strips * scan.tiles, 32 * V);
    u64 number = SHARED ? next_tile(board.ticket) : blockIdx.x;
    index_t strip = number % strips, tile = number / strips, line = (strip * 32 + lane) * V;
    bool is_line = line < scan.count;
    index_t at[4] = {0, 0, 0, 0};
    if (is_line) scan.lines.find(line, at);
    index_t row = (tile * WARPS + warp) * R;

    vec<T, V> x[R], y[R];
    Acc total[V], start[V];
#pragma unroll
    for (int r = 0; r < R; ++r)
        if (is_line && row + r < scan.length) {
            x[r] = loaded<T, V>((const T*)to.in + at[0] + (row + r) * scan.step[0]);
            if (Op::IS_PAIR) y[r] = loaded<T, V>((const T*)to.other + at[1] + (row + r) * scan.step[1]);
        }
#pragma unroll
    for (int v = 0; v < V; ++v) {
        total[v] = start[v] = Op::nothing();
#pragma unroll
        for (int r = 0; r < R; ++r)
            if (is_line && row + r < scan.length)
                total[v] = Op::then(total[v], Op::of(x[r].at[v], y[r].at[v], row + r));
    }
    if (SHARED || WARPS > 1) {
#pragma unroll
        for (int v = 0; v < V; ++v) across[(warp * 32 + lane) * V + v] = total[v];
        __syncthreads();
#pragma unroll
        for (int v = 0; v < V; ++v)
            for (u32 w = 0; w < warp; ++w) start[v] = Op::then(start[v], across[(w * 32 + lane) * V + v]);
    }
    if (SHARED) {
        if (warp == WARPS - 1) {
#pragma unroll
            for (int v = 0; v < V; ++v) board.totals[(number * 32 + lane) * V + v] = Op::then(start[v], total[v]);
            __threadfence();
            __syncwarp();
            if (lane == 0) *(volatile u32*)(board.flags + number) = 1;
        }
        __syncthreads();
        join_tiles<Op, V, WARPS>(board, across, start, strip, strips, tile, scan.tiles);
    }
#pragma unroll
    for (int r = 0; r < R; ++r)
        if (is_line && row + r < scan.length) {
            vec<typename Op::First, V> first;
            vec<typename Op::Second, V> second;
#pragma unroll
            for (int v = 0; v < V; ++v) {
                start[v] = Op::then(start[v], Op::of(x[r].at[v], y[r].at[v], row + r));
                first.at[v] = Op::first(start[v]);
                second.at[v] = Op::second(start[v]);
            }
            stored((typename Op::First*)to.first + at[2] + (row + r) * scan.step[2], first);
            if (Op::HAS_TWO) stored((typename Op::Second*)to.second + at[3] + (row + r) * scan.step[3], second);
        }
    if (SHARED) leave(shared.counters, 2 + strips * (scan.tiles + (scan.tiles + GROUP - 1) / GROUP));
}
"""
