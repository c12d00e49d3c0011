"""The CUDA text of attention in tiles of 64 rows by 64 columns, computed in float32.

T. Dao, FlashAttention-2 (2023): scores live in registers, a tile at a time; backward computes them anew from the rows'
logarithms. Every sum is made by one thread in a fixed order, so results do not vary. A tile that is multiplied along
its rows is kept turned, element d of row r at [d][r], so that both factors of a product are read as vectors.
"""

from __future__ import annotations

TILE = 64
THREADS = 128
LEADING = TILE + 4
"""Floats from one line of a turned tile to the next: vectors stay aligned, lines lie in different banks."""
PAD = 4

TEXT = (
    f"""
#define TILE {TILE}
#define THREADS {THREADS}
#define LD {LEADING}
"""
    + r"""#define HIDDEN __int_as_float(0xff800000)

struct steps_t { i64 n, h, t, d; };
struct shape_t { int heads, group, rows, columns, width, depth, causal; float scale; };

// sums[r][c] += sum over k of a[k][r] * b[k][c]: eight rows and C columns per thread
template <int C> __device__ __forceinline__ void product(
    float (&sums)[8][C], const float* a, const float* b, int b_line, int depth) {
    constexpr int W = C < 4 ? C : 4;
    #pragma unroll 4
    for (int k = 0; k < depth; ++k) {
        vec<float, 4> left[2];
        left[0] = *(const vec<float, 4>*)(a + k * LD);
        left[1] = *(const vec<float, 4>*)(a + k * LD + 4);
        vec<float, W> right[C / W];
        #pragma unroll
        for (int w = 0; w < C / W; ++w) right[w] = *(const vec<float, W>*)(b + k * b_line + w * W);
        #pragma unroll
        for (int r = 0; r < 8; ++r)
            #pragma unroll
            for (int c = 0; c < C; ++c) sums[r][c] = fmaf(left[r / 4].at[r % 4], right[c / W].at[c % W], sums[r][c]);
    }
}

// A tile of rows from ``first`` on as to[d][r], zero where there is none
template <class T, int D> __device__ __forceinline__ void turned(
    float* to, const T* from, steps_t step, int first, int rows, int width) {
    const int r = threadIdx.x % TILE;
    const T* row = from + (i64)(first + r) * step.t;
    #pragma unroll 8
    for (int d = threadIdx.x / TILE; d < D; d += THREADS / TILE)
        to[d * LD + r] = first + r < rows && d < width ? cast<float>(row[d * step.d]) : 0.0f;
}

// The same as to[r][d]
template <class T, int D> __device__ __forceinline__ void upright(
    float* to, const T* from, steps_t step, int first, int rows, int width) {
    const int d = threadIdx.x % D;
    #pragma unroll 8
    for (int r = threadIdx.x / D; r < TILE; r += THREADS / D) {
        const bool is_there = first + r < rows && d < width;
        to[r * (D + 4) + d] = is_there ? cast<float>(from[(i64)(first + r) * step.t + d * step.d]) : 0.0f;
    }
}

// This thread's part of a tile as to[column][row], for the threads of its rows, which are in one warp
__device__ __forceinline__ void hand_over(float* to, const float (&part)[8][4]) {
    #pragma unroll
    for (int c = 0; c < 4; ++c)
        #pragma unroll
        for (int r = 0; r < 8; ++r) to[c * LD + r] = part[r][c];
    __syncwarp();
}

template <int D, class T> __device__ __forceinline__ void write(
    T* to, steps_t step, const float (&sums)[8][D / 16], int row, int rows, int column, int width) {
    #pragma unroll
    for (int r = 0; r < 8; ++r)
        #pragma unroll
        for (int c = 0; c < D / 16; ++c)
            if (row + r < rows && column + c < width)
                to[(i64)(row + r) * step.t + (column + c) * step.d] = cast<T>(sums[r][c]);
}

// Over the sixteen threads of a row
__device__ __forceinline__ float row_max(float x) {
    #pragma unroll
    for (int step = 8; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
__device__ __forceinline__ float row_sum(float x) {
    #pragma unroll
    for (int step = 8; step; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

template <class T, int D> __device__ __forceinline__ void forward(
    T* out, float* logsum, const T* q, const T* k, const T* v, steps_t so, steps_t sq, steps_t sk, steps_t sv,
    shape_t s) {
    constexpr int C = D / 16;
    extern __shared__ float4 memory[];
    float *qt = (float*)memory, *kt = qt + D * LD, *vr = kt + D * LD, *pt = vr + TILE * (D + 4);
    const int head = blockIdx.y, n = blockIdx.z, first = (gridDim.x - 1 - blockIdx.x) * TILE;
    const int tx = threadIdx.x % 16, row0 = threadIdx.x / 16 * 8;
    q += n * sq.n + head * sq.h; k += n * sk.n + head / s.group * sk.h;
    v += n * sv.n + head / s.group * sv.h; out += n * so.n + head * so.h;
    float sums[8][C] = {}, top[8], total[8] = {};
    #pragma unroll
    for (int r = 0; r < 8; ++r) top[r] = HIDDEN;
    turned<T, D>(qt, q, sq, first, s.rows, s.width);
    const int end = s.causal ? min(s.columns, first + TILE) : s.columns;
    for (int start = 0; start < end; start += TILE) {
        __syncthreads();
        turned<T, D>(kt, k, sk, start, s.columns, s.width);
        upright<T, D>(vr, v, sv, start, s.columns, s.depth);
        __syncthreads();
        float scores[8][4] = {};
        product<4>(scores, qt + row0, kt + 4 * tx, LD, s.width);
        #pragma unroll
        for (int r = 0; r < 8; ++r) {
            float high = top[r], part = 0;
            #pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int column = start + 4 * tx + c;
                const bool seen = column < s.columns && !(s.causal && column > first + row0 + r);
                scores[r][c] = seen ? scores[r][c] * s.scale : HIDDEN;
                high = fmaxf(high, scores[r][c]);
            }
            high = row_max(high);
            const float from = high == HIDDEN ? 0.0f : high, shrink = expf(top[r] - from);
            #pragma unroll
            for (int c = 0; c < 4; ++c) part += scores[r][c] = expf(scores[r][c] - from);
            total[r] = total[r] * shrink + row_sum(part);
            top[r] = high;
            #pragma unroll
            for (int c = 0; c < C; ++c) sums[r][c] *= shrink;
        }
        hand_over(pt + 4 * tx * LD + row0, scores);
        product<C>(sums, pt + row0, vr + C * tx, D + 4, TILE);
        __syncwarp();
    }
    #pragma unroll
    for (int r = 0; r < 8; ++r) {
        const int row = first + row0 + r;
        if (logsum && tx == 0 && row < s.rows)
            logsum[((i64)n * s.heads + head) * s.rows + row] = top[r] + logf(total[r]);
        #pragma unroll
        for (int c = 0; c < C; ++c) sums[r][c] /= total[r];
    }
    write<D>(out, so, sums, first + row0, s.rows, C * tx, s.depth);
}

// delta[row] = sum of grad * out over a row, a warp each
template <class T> __device__ __forceinline__ void deltas(
    float* delta, const T* grad, const T* out, steps_t sg, steps_t so, shape_t s, i64 count) {
    const i64 row = blockIdx.x * (i64)(blockDim.x / 32) + threadIdx.x / 32;
    if (row >= count) return;
    const i64 t = row % s.rows, h = row / s.rows % s.heads, n = row / s.rows / s.heads;
    const T *g = grad + n * sg.n + h * sg.h + t * sg.t, *o = out + n * so.n + h * so.h + t * so.t;
    float sum = 0;
    for (int d = threadIdx.x % 32; d < s.depth; d += 32) sum += cast<float>(g[d * sg.d]) * cast<float>(o[d * so.d]);
    #pragma unroll
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) delta[row] = sum;
}

template <class T, int D> __device__ __forceinline__ void by_query(
    T* dq, const T* grad, const T* q, const T* k, const T* v, const float* logsum, const float* delta,
    steps_t sdq, steps_t sg, steps_t sq, steps_t sk, steps_t sv, shape_t s) {
    constexpr int C = D / 16;
    extern __shared__ float4 memory[];
    float *qt = (float*)memory, *gt = qt + D * LD, *kt = gt + D * LD, *vt = kt + D * LD;
    float *kr = vt + D * LD, *st = kr + TILE * (D + 4);
    const int head = blockIdx.y, n = blockIdx.z, first = (gridDim.x - 1 - blockIdx.x) * TILE;
    const int tx = threadIdx.x % 16, row0 = threadIdx.x / 16 * 8;
    q += n * sq.n + head * sq.h; k += n * sk.n + head / s.group * sk.h; v += n * sv.n + head / s.group * sv.h;
    grad += n * sg.n + head * sg.h; dq += n * sdq.n + head * sdq.h;
    const i64 statistic = ((i64)n * s.heads + head) * s.rows;
    float sums[8][C] = {}, lse[8], mean[8];
    #pragma unroll
    for (int r = 0; r < 8; ++r) {
        const int row = first + row0 + r;
        lse[r] = row < s.rows ? logsum[statistic + row] : 0;
        mean[r] = row < s.rows ? delta[statistic + row] : 0;
    }
    turned<T, D>(qt, q, sq, first, s.rows, s.width);
    turned<T, D>(gt, grad, sg, first, s.rows, s.depth);
    const int end = s.causal ? min(s.columns, first + TILE) : s.columns;
    for (int start = 0; start < end; start += TILE) {
        __syncthreads();
        turned<T, D>(kt, k, sk, start, s.columns, s.width);
        turned<T, D>(vt, v, sv, start, s.columns, s.depth);
        upright<T, D>(kr, k, sk, start, s.columns, s.width);
        __syncthreads();
        float scores[8][4] = {}, change[8][4] = {};
        product<4>(scores, qt + row0, kt + 4 * tx, LD, s.width);
        product<4>(change, gt + row0, vt + 4 * tx, LD, s.depth);
        #pragma unroll
        for (int r = 0; r < 8; ++r)
            #pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int column = start + 4 * tx + c;
                const bool seen = column < s.columns && !(s.causal && column > first + row0 + r);
                const float weight = seen ? expf(scores[r][c] * s.scale - lse[r]) : 0.0f;
                change[r][c] = seen ? weight * (change[r][c] - mean[r]) * s.scale : 0.0f;
            }
        hand_over(st + 4 * tx * LD + row0, change);
        product<C>(sums, st + row0, kr + C * tx, D + 4, TILE);
        __syncwarp();
    }
    write<D>(dq, sdq, sums, first + row0, s.rows, C * tx, s.width);
}

template <class T, int D> __device__ __forceinline__ void by_key(
    T* dk, T* dv, const T* grad, const T* q, const T* k, const T* v, const float* logsum, const float* delta,
    steps_t sdk, steps_t sdv, steps_t sg, steps_t sq, steps_t sk, steps_t sv, shape_t s) {
    constexpr int C = D / 16;
    extern __shared__ float4 memory[];
    float *kt = (float*)memory, *vt = kt + D * LD, *qt = vt + D * LD, *gt = qt + D * LD;
    float *qr = gt + D * LD, *gr = qr + TILE * (D + 4), *st = gr + TILE * (D + 4);
    const int shared_head = blockIdx.y, n = blockIdx.z, first = blockIdx.x * TILE;
    const int tx = threadIdx.x % 16, row0 = threadIdx.x / 16 * 8;
    k += n * sk.n + shared_head * sk.h; v += n * sv.n + shared_head * sv.h;
    float by_k[8][C] = {}, by_v[8][C] = {};
    turned<T, D>(kt, k, sk, first, s.columns, s.width);
    turned<T, D>(vt, v, sv, first, s.columns, s.depth);
    for (int head = shared_head * s.group; head < (shared_head + 1) * s.group; ++head) {
        const T *qh = q + n * sq.n + head * sq.h, *gh = grad + n * sg.n + head * sg.h;
        const i64 statistic = ((i64)n * s.heads + head) * s.rows;
        for (int start = s.causal ? first : 0; start < s.rows; start += TILE) {
            __syncthreads();
            turned<T, D>(qt, qh, sq, start, s.rows, s.width);
            turned<T, D>(gt, gh, sg, start, s.rows, s.depth);
            upright<T, D>(qr, qh, sq, start, s.rows, s.width);
            upright<T, D>(gr, gh, sg, start, s.rows, s.depth);
            __syncthreads();
            float weights[8][4] = {}, change[8][4] = {};
            product<4>(weights, kt + row0, qt + 4 * tx, LD, s.width);
            #pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int row = start + 4 * tx + c;
                const float lse = row < s.rows ? logsum[statistic + row] : 0.0f;
                #pragma unroll
                for (int r = 0; r < 8; ++r) {
                    const int column = first + row0 + r;
                    const bool seen = row < s.rows && column < s.columns && !(s.causal && column > row);
                    weights[r][c] = seen ? expf(weights[r][c] * s.scale - lse) : 0.0f;
                }
            }
            hand_over(st + 4 * tx * LD + row0, weights);
            product<C>(by_v, st + row0, gr + C * tx, D + 4, TILE);
            product<4>(change, vt + row0, gt + 4 * tx, LD, s.depth);
            #pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int row = start + 4 * tx + c;
                const float mean = row < s.rows ? delta[statistic + row] : 0.0f;
                #pragma unroll
                for (int r = 0; r < 8; ++r) change[r][c] = weights[r][c] * (change[r][c] - mean) * s.scale;
            }
            __syncwarp();
            hand_over(st + 4 * tx * LD + row0, change);
            product<C>(by_k, st + row0, qr + C * tx, D + 4, TILE);
        }
    }
    write<D>(dk + n * sdk.n + shared_head * sdk.h, sdk, by_k, first + row0, s.columns, C * tx, s.width);
    write<D>(dv + n * sdv.n + shared_head * sdv.h, sdv, by_v, first + row0, s.columns, C * tx, s.depth);
}
"""
)


def kernels(ctype: str, depth: int) -> str:
    """The four kernels for elements of a C type and heads up to ``depth`` wide: 32, 64 or 128."""
    steps = ", ".join(f"steps_t {name}" for name in ("so", "sq", "sk", "sv"))
    operands = f"const {ctype}* q, const {ctype}* k, const {ctype}* v"
    saved = "const float* logsum, const float* delta"
    bounds = f'extern "C" __global__ void __launch_bounds__({THREADS})'
    return f"""
{bounds} attention_forward({ctype}* out, float* logsum, {operands}, {steps}, shape_t s) {{
    forward<{ctype}, {depth}>(out, logsum, q, k, v, so, sq, sk, sv, s);
}}
{bounds} attention_deltas(float* delta, const {ctype}* grad, const {ctype}* out, steps_t sg, steps_t so, shape_t s,
                          i64 count) {{
    deltas<{ctype}>(delta, grad, out, sg, so, s, count);
}}
{bounds} attention_by_query({ctype}* dq, const {ctype}* grad, {operands}, {saved}, steps_t sdq, steps_t sg, steps_t sq,
                            steps_t sk, steps_t sv, shape_t s) {{
    by_query<{ctype}, {depth}>(dq, grad, q, k, v, logsum, delta, sdq, sg, sq, sk, sv, s);
}}
{bounds} attention_by_key({ctype}* dk, {ctype}* dv, const {ctype}* grad, {operands}, {saved}, steps_t sdk, steps_t sdv,
                          steps_t sg, steps_t sq, steps_t sk, steps_t sv, shape_t s) {{
    by_key<{ctype}, {depth}>(dk, dv, grad, q, k, v, logsum, delta, sdk, sdv, sg, sq, sk, sv, s);
}}
"""
