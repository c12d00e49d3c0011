"""The CUDA text of attention's backward pass: a kernel for the query's gradient, and one for the key's and value's.

T. Dao, FlashAttention-2 (2023), algorithm 2. A block writes the gradients of its own rows and loops over the other
operand in order, so every sum has a fixed order; therefore both kernels compute the scores. The gradient of a score is
weight * (gradient of the weight - delta), where delta is the sum of grad * out along the row.
"""

from __future__ import annotations

TEXT = r"""
// delta[half] = the sum of grad * out along this thread's rows ``row`` and ``row + 8``
template <int D, bool FAST, class T> __device__ __forceinline__ void row_products(
    float (&delta)[2], const T* grad, const T* out, steps_t sg, steps_t so, int first, shape_t s) {
    const thread_t me;
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first + me.warp_row + me.row + 8 * half;
        float sum = 0;
        if (row < s.rows) {
            const T *g = grad + (i64)row * sg.t, *o = out + (i64)row * so.t;
            #pragma unroll
            for (int d = 4 * me.quad; d < D; d += 16) {
                if (d >= s.depth) break;
                const float4_t x = load_four<FAST>(g, sg.d, d, s.depth), y = load_four<FAST>(o, so.d, d, s.depth);
                #pragma unroll
                for (int i = 0; i < 4; ++i) sum = fmaf(x.at[i], y.at[i], sum);
            }
        }
        delta[half] = row_sum(sum);
    }
}

template <int D, int N, int STAGES, bool FAST, bool IS_EXACT, class T> __device__ __forceinline__ bool by_query(
    T* dq, float* delta, const T* grad, const T* out, const T* q, const T* k, const T* v, const float* logsum,
    steps_t sdq, steps_t sg, steps_t so, steps_t sq, steps_t sk, steps_t sv, shape_t s) {
    constexpr int LD = D + PAD;
    extern __shared__ float4 memory[];
    float *q_tile = (float*)memory, *grad_tile = q_tile + TILE * LD, *stages = grad_tile + TILE * LD;
    const thread_t me;
    const block_t block(s.heads, s.batch, true);
    const int head = block.head, n = block.n, first = block.first;
    const int mine = first + me.warp_row, end = s.causal ? min(s.columns, first + TILE) : s.columns;
    q += n * sq.n + head * sq.h; k += n * sk.n + head / s.group * sk.h; v += n * sv.n + head / s.group * sv.h;
    grad += n * sg.n + head * sg.h; out += n * so.n + head * so.h; dq += n * sdq.n + head * sdq.h;
    const auto prefetch = [&](int start) {
        float* stage = stages + start / N % STAGES * (2 * N * LD);
        load_tile<D, N, FAST>(stage, k, sk, start, s.columns, s.width);
        load_tile<D, N, FAST>(stage + N * LD, v, sv, start, s.columns, s.depth);
    };
    load_tile<D, TILE, FAST>(q_tile, q, sq, first, s.rows, s.width);
    load_tile<D, TILE, FAST>(grad_tile, grad, sg, first, s.rows, s.depth);
    prefetch(0);
    float sums[D / 8][4] = {}, means[2], lse[2] = {};
    row_products<D, FAST>(means, grad, out, sg, so, first, s);
    const i64 statistic = ((i64)n * s.heads + head) * s.rows;
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = mine + me.row + 8 * half;
        if (row >= s.rows) continue;
        lse[half] = logsum[statistic + row] * LOG2_E;
        if (me.quad == 0) delta[statistic + row] = means[half];
    }
    for (int start = 0; start < end; start += N) {
        wait_for_tiles();
        if (STAGES == 2 && start + N < end) prefetch(start + N);
        const float *k_tile = stages + start / N % STAGES * (2 * N * LD), *v_tile = k_tile + N * LD;
        if (!s.causal || start < mine + 16) {
            float weights[N / 8][4], change[N / 8][4];
            by_rows<N, D, IS_EXACT>(weights, q_tile + me.warp_row * LD, k_tile);
            by_rows<N, D, IS_EXACT>(change, grad_tile + me.warp_row * LD, v_tile);
            const bool is_edge = start + N > (s.causal ? min(s.columns, mine + 1) : s.columns);
            for_each<N>([&](int j, int i) {
                const int column = start + 8 * j + 2 * me.quad + i % 2;
                float& x = change[j][i];
                x = power_of_two(weights[j][i] * s.scale_2 - lse[i / 2]) * (x - means[i / 2]);
                if (is_edge && (column >= s.columns || (s.causal && column > mine + me.row + i / 2 * 8))) x = 0;
            });
            by_columns<N, D, IS_EXACT>(sums, change, k_tile);
        }
        if (STAGES == 1 && start + N < end) { __syncthreads(); prefetch(start + N); }
    }
    store_tile<D, FAST>(dq, sdq, sums, first, s.rows, s.width, {s.scale, s.scale});
    return __syncthreads_and(are_finite<D>(sums));
}

template <int D, int N, int STAGES, bool FAST, bool IS_EXACT, class T> __device__ __forceinline__ bool by_key(
    T* dk, T* dv, const T* grad, const T* q, const T* k, const T* v, const float* logsum, const float* delta,
    steps_t sdk, steps_t sdv, steps_t sg, steps_t sq, steps_t sk, steps_t sv, shape_t s) {
    constexpr int LD = D + PAD, STAGE = 2 * N * LD + 2 * N;
    extern __shared__ float4 memory[];
    float *k_tile = (float*)memory, *v_tile = k_tile + TILE * LD, *stages = v_tile + TILE * LD;
    const thread_t me;
    const block_t block(s.heads / s.group, s.batch, false);
    const int shared_head = block.head, n = block.n, first = block.first, mine = first + me.warp_row;
    k += n * sk.n + shared_head * sk.h; v += n * sv.n + shared_head * sv.h;
    const int skipped = s.causal ? first / N : 0, per_head = max(0, (s.rows + N - 1) / N - skipped);
    const int tiles = per_head * s.group;
    const auto prefetch = [&](int tile) {
        const int head = shared_head * s.group + tile / per_head, start = (skipped + tile % per_head) * N;
        float* stage = stages + tile % STAGES * STAGE;
        load_tile<D, N, FAST>(stage, q + n * sq.n + head * sq.h, sq, start, s.rows, s.width);
        load_tile<D, N, FAST>(stage + N * LD, grad + n * sg.n + head * sg.h, sg, start, s.rows, s.depth);
        const i64 statistic = ((i64)n * s.heads + head) * s.rows + start;
        for (int i = threadIdx.x; i < 2 * N; i += THREADS) {  // missing rows are zero in all
            const int is_there = start + i % N < s.rows;
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::
                "r"((u32)__cvta_generic_to_shared(stage + 2 * N * LD + i)),
                "l"((i < N ? logsum : delta) + (is_there ? statistic + i % N : 0)), "r"(4 * is_there) : "memory");
        }
    };
    load_tile<D, TILE, FAST>(k_tile, k, sk, first, s.columns, s.width);
    load_tile<D, TILE, FAST>(v_tile, v, sv, first, s.columns, s.depth);
    if (tiles) prefetch(0);
    float by_k[D / 8][4] = {}, by_v[D / 8][4] = {};
    for (int tile = 0; tile < tiles; ++tile) {
        wait_for_tiles();
        if (STAGES == 2 && tile + 1 < tiles) prefetch(tile + 1);
        const int start = (skipped + tile % per_head) * N;
        const float *q_tile = stages + tile % STAGES * STAGE, *grad_tile = q_tile + N * LD, *lse = grad_tile + N * LD;
        if (!s.causal || start + N > mine) {
            float weights[N / 8][4], change[N / 8][4];
            by_rows<N, D, IS_EXACT>(weights, k_tile + me.warp_row * LD, q_tile);
            const bool is_edge = start + N > s.rows || (s.causal && start < mine + 15);
            for_each<N>([&](int j, int i) {
                const int at = 8 * j + 2 * me.quad + i % 2, row = start + at;
                float& x = weights[j][i];
                x = power_of_two(x * s.scale_2 - lse[at] * LOG2_E);
                if (is_edge && (row >= s.rows || (s.causal && mine + me.row + i / 2 * 8 > row))) x = 0;
            });
            by_columns<N, D, IS_EXACT>(by_v, weights, grad_tile);
            by_rows<N, D, IS_EXACT>(change, v_tile + me.warp_row * LD, grad_tile);
            for_each<N>([&](int j, int i) {
                float& x = change[j][i];  // a masked score adds nothing, not even where a value is infinite
                x = weights[j][i] == 0 ? 0 : weights[j][i] * (x - lse[N + 8 * j + 2 * me.quad + i % 2]);
            });
            by_columns<N, D, IS_EXACT>(by_k, change, q_tile);
        }
        if (STAGES == 1 && tile + 1 < tiles) { __syncthreads(); prefetch(tile + 1); }
    }
    store_tile<D, FAST>(dk + n * sdk.n + shared_head * sdk.h, sdk, by_k, first, s.columns, s.width, {s.scale, s.scale});
    store_tile<D, FAST>(dv + n * sdv.n + shared_head * sdv.h, sdv, by_v, first, s.columns, s.depth, {1, 1});
    return __syncthreads_and(are_finite<D>(by_k) && are_finite<D>(by_v));
}
"""
