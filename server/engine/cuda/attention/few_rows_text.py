"""The CUDA text of attention for few rows of queries, as in decoding: many threads share the keys of a few rows.

Each group of lanes takes a key of its own and keeps the largest score, the sum of the weights and the weighted sum of
the values that it has seen; groups, warps and blocks are then merged, always in the same order. Computed in float32.
"""

from __future__ import annotations

from functools import cache

from .rows_text import TEXT as ROWS

_TEXT = r"""
struct steps_t { i64 n, h, row, column; };
struct few_t { int heads, group, rows, columns, width, depth, tiles, causal, splits, span; float scale_2; };

template <class T, int V> __device__ __forceinline__ vec<T, V> read(const T* from, i64 step, int first, int size) {
    if (first >= size) return vec<T, V>{};
    if (V > 1) return *(const vec<T, V>*)(from + first);
    vec<T, V> one;
    one.at[0] = from[first * step];
    return one;
}
template <class T, int V, int P> __device__ __forceinline__ void widened(float* to, const vec<T, V>* from) {
    #pragma unroll
    for (int i = 0; i < P * V; ++i) to[i] = widen(from[i / V].at[i % V]);
}

// What a row has seen so far; scores are powers of two, whose largest exponent is ``top``
template <int N> struct seen_t {
    float top, total, sums[N];
    __device__ void merge(float other_top, float other_total, const float* other) {
        const float high = fmaxf(top, other_top), from = high == HIDDEN ? 0.0f : high;
        const float mine = power_of_two(top - from), its = power_of_two(other_top - from);
        total = total * mine + other_total * its;
        #pragma unroll
        for (int i = 0; i < N; ++i) sums[i] = sums[i] * mine + other[i] * its;
        top = high;
    }
};

// V elements are read at once, L lanes share a key, each of which has P times V elements; R rows; AHEAD keys at once
template <class T, class M, int V, int L, int P, int R, int THREADS, int AHEAD>
__device__ __forceinline__ void few_rows(
    T* out, float* parts, const T* q, const T* k, const T* v, const M* mask,
    steps_t so, steps_t sq, steps_t sk, steps_t sv, steps_t sm, few_t s
) {
    constexpr int N = P * V, D = L * N, GROUPS = THREADS / L, WARPS = THREADS / 32;
    __shared__ float tops[WARPS][R], totals[WARPS][R], kept[WARPS][R][D];
    const int lane = threadIdx.x % L, group = threadIdx.x / L, warp = threadIdx.x / 32;
    const int n = blockIdx.z, head = blockIdx.y / s.tiles, first = blockIdx.y % s.tiles * R, count = s.rows * s.group;
    k += n * sk.n + head * sk.h; v += n * sv.n + head * sv.h;
    const int begin = blockIdx.x * s.span, end = min(s.columns, begin + s.span);
    let_next_begin();
    const int near = begin + threadIdx.x;
    if (V * sizeof(T) == 16 && near < end) {
        fetch(k + near * sk.row, s.width * (int)sizeof(T));
        fetch(v + near * sv.row, s.depth * (int)sizeof(T));
    }
    wait_for_earlier();
    float query[R][N];
    seen_t<N> seen[R];
    #pragma unroll
    for (int r = 0; r < R; ++r) {
        const int row = first + r, at = head * s.group + row / s.rows;
        const T* from = q + n * sq.n + at * sq.h + row % s.rows * sq.row;
        vec<T, V> held[P];
        #pragma unroll
        for (int p = 0; p < P; ++p)
            held[p] = read<T, V>(from, sq.column, (p * L + lane) * V, row < count ? s.width : 0);
        widened<T, V, P>(query[r], held);
        seen[r].top = HIDDEN; seen[r].total = 0;
        #pragma unroll
        for (int i = 0; i < N; ++i) { query[r][i] *= s.scale_2; seen[r].sums[i] = 0; }
    }
    for (int start = begin + group; start - group < end; start += GROUPS * AHEAD) {
        vec<T, V> keys[AHEAD][P], values[AHEAD][P];
        #pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int column = start + u * GROUPS;
            #pragma unroll
            for (int p = 0; p < P; ++p) {
                const int at = (p * L + lane) * V;
                keys[u][p] = read<T, V>(k + column * sk.row, sk.column, at, column < end ? s.width : 0);
                values[u][p] = read<T, V>(v + column * sv.row, sv.column, at, column < end ? s.depth : 0);
            }
        }
        float scores[R][AHEAD], held[N];
        M masks[R][AHEAD];
        if (mask)
            #pragma unroll
            for (int r = 0; r < R; ++r) {
                const int row = min(first + r, count - 1), at = head * s.group + row / s.rows;
                const M* from = mask + n * sm.n + at * sm.h + row % s.rows * sm.row;
                #pragma unroll
                for (int u = 0; u < AHEAD; ++u)
                    masks[r][u] = from[min(start + u * GROUPS, end - 1) * sm.column];
            }
        #pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int column = start + u * GROUPS;
            widened<T, V, P>(held, keys[u]);
            #pragma unroll
            for (int r = 0; r < R; ++r) {
                float x = 0;
                #pragma unroll
                for (int i = 0; i < N; ++i) x += query[r][i] * held[i];
                #pragma unroll
                for (int apart = 1; apart < L; apart *= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
                if (mask) x = masked(x, masks[r][u]);
                scores[r][u] = column >= end || (s.causal && column > (first + r) % s.rows) ? HIDDEN : x;
            }
        }
        #pragma unroll
        for (int r = 0; r < R; ++r) {
            float high = seen[r].top;
            #pragma unroll
            for (int u = 0; u < AHEAD; ++u) high = fmaxf(high, scores[r][u]);
            const float from = high == HIDDEN ? 0.0f : high, shrink = power_of_two(seen[r].top - from);
            seen[r].top = high; seen[r].total *= shrink;
            #pragma unroll
            for (int i = 0; i < N; ++i) seen[r].sums[i] *= shrink;
            #pragma unroll
            for (int u = 0; u < AHEAD; ++u) seen[r].total += scores[r][u] = power_of_two(scores[r][u] - from);
        }
        #pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            widened<T, V, P>(held, values[u]);
            #pragma unroll
            for (int r = 0; r < R; ++r)
                #pragma unroll
                for (int i = 0; i < N; ++i) seen[r].sums[i] += scores[r][u] * held[i];
        }
    }
    #pragma unroll
    for (int r = 0; r < R; ++r) {
        #pragma unroll
        for (int apart = L; apart < 32; apart *= 2) {
            float other[N];
            #pragma unroll
            for (int i = 0; i < N; ++i) other[i] = __shfl_xor_sync(0xffffffffu, seen[r].sums[i], apart);
            const float top = __shfl_xor_sync(0xffffffffu, seen[r].top, apart);
            seen[r].merge(top, __shfl_xor_sync(0xffffffffu, seen[r].total, apart), other);
        }
        if (threadIdx.x % 32 < L) {
            tops[warp][r] = seen[r].top; totals[warp][r] = seen[r].total;
            #pragma unroll
            for (int i = 0; i < N; ++i) kept[warp][r][(i / V * L + lane) * V + i % V] = seen[r].sums[i];
        }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < R * s.depth; e += THREADS) {
        const int r = e / s.depth, d = e % s.depth, row = first + r, at = head * s.group + row / s.rows;
        if (row >= count) break;
        seen_t<1> all = {HIDDEN, 0, {0}};
        #pragma unroll
        for (int w = 0; w < WARPS; ++w) all.top = fmaxf(all.top, tops[w][r]);
        const float from = all.top == HIDDEN ? 0.0f : all.top;
        #pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const float its = power_of_two(tops[w][r] - from);
            all.total += totals[w][r] * its;
            all.sums[0] += kept[w][r][d] * its;
        }
        if (s.splits == 1) {
            out[n * so.n + at * so.h + row % s.rows * so.row + d * so.column] = cast<T>(all.sums[0] * share(all.total));
            continue;
        }
        float* part = parts + (((i64)n * s.heads + head) * count + row) * s.splits * (s.depth + 2);
        part += blockIdx.x * (s.depth + 2);
        part[d] = all.sums[0];
        if (d == 0) { part[s.depth] = all.top; part[s.depth + 1] = all.total; }
    }
}

// A block merges the parts of one row
template <class T> __device__ void merge_parts(T* out, const float* parts, steps_t so, few_t s) {
    const int count = s.rows * s.group, row = blockIdx.x % count, head = blockIdx.x / count % s.heads;
    let_next_begin();
    wait_for_earlier();
    const int n = blockIdx.x / count / s.heads, at = head * s.group + row / s.rows, step = s.depth + 2;
    parts += (i64)blockIdx.x * s.splits * step;
    for (int d = threadIdx.x; d < s.depth; d += blockDim.x) {
        seen_t<1> all = {HIDDEN, 0, {0}};
        for (int part = 0; part < s.splits; ++part) {
            const float* one = parts + part * step;
            all.merge(one[s.depth], one[s.depth + 1], one + d);
        }
        out[n * so.n + at * so.h + row % s.rows * so.row + d * so.column] = cast<T>(all.sums[0] * share(all.total));
    }
}
"""

_MASKED = {
    "bool": "__device__ __forceinline__ float masked(float x, bool taken) { return taken ? x : HIDDEN; }",
    "": "__device__ __forceinline__ float masked(float x, T added) { return x + widen(added) * LOG2_E; }",
}


@cache
def text_of(ctype: str, mask: str, vector: int, lanes: int, pieces: int, rows: int, threads: int) -> str:
    """The kernels for a C type, one of masks (``bool``, or empty for the elements' type), and what threads hold."""
    sizes = f"{vector}, {lanes}, {pieces}, {rows}, {threads}, {4 if rows * pieces * vector <= 32 else 2}"
    of_masks = mask or "T"
    return f"""{ROWS}
typedef {ctype} T;
{_MASKED[mask]}
{_TEXT}
extern "C" __global__ void __launch_bounds__({threads}) attention_few_rows(
    T* out, float* parts, const T* q, const T* k, const T* v, const {of_masks}* mask,
    steps_t so, steps_t sq, steps_t sk, steps_t sv, steps_t sm, few_t s
) {{ few_rows<T, {of_masks}, {sizes}>(out, parts, q, k, v, mask, so, sq, sk, sv, sm, s); }}
extern "C" __global__ void attention_merge_parts(T* out, const float* parts, steps_t so, few_t s) {{
    merge_parts<T>(out, parts, so, s);
}}
"""
