"""The CUDA text of attention in tiles of 64 rows, computed in float32: the forward pass, and the kernels by name.

T. Dao, FlashAttention-2 (2023): scores live in registers, a tile at a time; backward computes them anew from the rows'
logarithms. Every sum is made in a fixed order, so results do not vary. Exponentials are powers of two: ``scale_2`` is
the scale times log2(e).
"""

from __future__ import annotations

from typing import NamedTuple

from . import backward_text as attention_gradients
from . import products_text as attention_products
from . import rows_text as attention_rows
from .products_text import PAD, THREADS, TILE

_SHAPE = r"""
struct shape_t { int batch, heads, group, rows, columns, width, depth, causal; float scale, scale_2; };
"""

_FORWARD = r"""
template <int D, int N, int STAGES, bool FAST, bool IS_EXACT, class T> __device__ __forceinline__ bool forward(
    T* out, float* logsum, const T* q, const T* k, const T* v, steps_t so, steps_t sq, steps_t sk, steps_t sv,
    shape_t s) {
    constexpr int LD = D + PAD;
    extern __shared__ float4 memory[];
    float *q_tile = (float*)memory, *stages = q_tile + TILE * LD;
    const thread_t me;
    const block_t block(s.heads, s.batch, true);
    const int head = block.head, n = block.n, first = block.first;
    const int mine = first + me.warp_row, end = s.causal ? min(s.columns, first + TILE) : s.columns;
    q += n * sq.n + head * sq.h; k += n * sk.n + head / s.group * sk.h;
    v += n * sv.n + head / s.group * sv.h; out += n * so.n + head * so.h;
    const auto prefetch = [&](int start) {
        float* stage = stages + start / N % STAGES * (2 * N * LD);
        load_tile<D, N, FAST>(stage, k, sk, start, s.columns, s.width);
        load_tile<D, N, FAST>(stage + N * LD, v, sv, start, s.columns, s.depth);
    };
    load_tile<D, TILE, FAST>(q_tile, q, sq, first, s.rows, s.width);
    prefetch(0);
    float sums[D / 8][4] = {}, top[2] = {HIDDEN, HIDDEN}, total[2] = {};
    for (int start = 0; start < end; start += N) {
        wait_for_tiles();
        if (STAGES == 2 && start + N < end) prefetch(start + N);
        const float *k_tile = stages + start / N % STAGES * (2 * N * LD), *v_tile = k_tile + N * LD;
        if (!s.causal || start < mine + 16) {
            float scores[N / 8][4];
            by_rows<N, D, IS_EXACT>(scores, q_tile + me.warp_row * LD, k_tile);
            const bool is_edge = start + N > (s.causal ? min(s.columns, mine + 1) : s.columns);
            for_each<N>([&](int j, int i) {
                const int column = start + 8 * j + 2 * me.quad + i % 2, row = mine + me.row + i / 2 * 8;
                float& x = scores[j][i];
                x *= s.scale_2;
                if (is_edge && (column >= s.columns || (s.causal && column > row))) x = HIDDEN;
            });
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int e = 2 * half;
                float high = top[half], part = 0;
                #pragma unroll
                for (int j = 0; j < N / 8; ++j) high = fmaxf(high, fmaxf(scores[j][e], scores[j][e + 1]));
                high = row_max(high);
                const float from = high == HIDDEN ? 0.0f : high, shrink = power_of_two(top[half] - from);
                #pragma unroll
                for (int j = 0; j < N / 8; ++j) {
                    scores[j][e] = power_of_two(scores[j][e] - from);
                    scores[j][e + 1] = power_of_two(scores[j][e + 1] - from);
                    part += scores[j][e] + scores[j][e + 1];
                }
                total[half] = total[half] * shrink + part;
                top[half] = high;
                #pragma unroll
                for (int c = 0; c < D / 8; ++c) { sums[c][e] *= shrink; sums[c][e + 1] *= shrink; }
            }
            by_columns<N, D, IS_EXACT>(sums, scores, v_tile);
        }
        if (STAGES == 1 && start + N < end) { __syncthreads(); prefetch(start + N); }
    }
    vec<float, 2> factor;
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = mine + me.row + 8 * half;
        const float sum = row_sum(total[half]);
        if (logsum && me.quad == 0 && row < s.rows)
            logsum[((i64)n * s.heads + head) * s.rows + row] = logarithm(top[half], sum);
        factor.at[half] = share(sum);
    }
    store_tile<D, FAST>(out, so, sums, first, s.rows, s.depth, factor);
    return __syncthreads_and(are_finite<D>(sums));
}
"""

TEXT = attention_products.TEXT + attention_rows.TEXT + _SHAPE + _FORWARD + attention_gradients.TEXT

_OPERANDS = {
    "forward": ("T* out, float* logsum, const T* q, const T* k, const T* v", "so sq sk sv"),
    "by_query": (
        "T* dq, float* delta, const T* grad, const T* out, const T* q, const T* k, const T* v, const float* logsum",
        "sdq sg so sq sk sv",
    ),
    "by_key": (
        "T* dk, T* dv, const T* grad, const T* q, const T* k, const T* v, const float* logsum, const float* delta",
        "sdk sdv sg sq sk sv",
    ),
}


class Tiling(NamedTuple):
    """The tiling of a kernel: rows per step, stages in shared memory, and resident blocks per multiprocessor."""

    rows: int
    stages: int
    blocks: int


TILINGS = {
    "forward": {32: Tiling(64, 2, 3), 64: Tiling(32, 2, 3), 96: Tiling(32, 2, 2), 128: Tiling(32, 2, 2)},
    "by_query": {32: Tiling(32, 2, 3), 64: Tiling(32, 2, 3), 96: Tiling(32, 2, 2), 128: Tiling(32, 1, 2)},
    "by_key": {32: Tiling(64, 2, 3), 64: Tiling(32, 2, 3), 96: Tiling(32, 2, 2), 128: Tiling(32, 1, 2)},
}
"""The tilings by kernel and by the width to which heads are padded."""


def shared_bytes(kernel: str, depth: int) -> int:
    """The shared memory of a block of ``kernel``, in bytes."""
    tiling, statistics = TILINGS[kernel][depth], 2 if kernel == "by_key" else 0
    own = TILE * (1 if kernel == "forward" else 2)
    return 4 * (own * (depth + PAD) + tiling.stages * tiling.rows * (2 * (depth + PAD) + statistics))


def text_of(kernel: str, ctype: str, depth: int, is_fast: bool) -> str:
    """The text of a kernel for a C type and heads up to ``depth`` wide; rows are vectors of four if ``is_fast``."""
    rows, stages, blocks = TILINGS[kernel][depth]
    operands, steps = _OPERANDS[kernel]
    parameters = f"{operands}, {', '.join(f'steps_t {name}' for name in steps.split())}, shape_t s"
    arguments = ", ".join(word.split()[-1].lstrip("*") for word in parameters.split(","))
    sizes = f"{depth}, {rows}, {stages}, {str(is_fast).lower()}"
    return f"""{TEXT}
typedef {ctype} T;
__device__ __noinline__ void exactly({parameters}) {{ {kernel}<{sizes}, true>({arguments}); }}
extern "C" __global__ void __launch_bounds__({THREADS}, {blocks}) attention_{kernel}({parameters}) {{
    if (!{kernel}<{sizes}, false>({arguments})) exactly({arguments});
}}
"""
