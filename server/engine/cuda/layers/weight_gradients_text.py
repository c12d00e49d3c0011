"""The CUDA text of the gradients of several layers' weights and biases, in one launch.

A weight's gradient is the product of a transposed gradient with the layer's input. Both are read by rows, and added up
along them: each block has a tile of one result, and adds in the same order every time.
"""

from __future__ import annotations

from typing import Final

from server.engine.cuda.runtime.prelude import PRELUDE, assembled

MOST_PARTS: Final = 32
"""Layers in one launch."""
TILE: Final = (64, 32)
"""Rows and columns of a result that a block has."""
THREADS: Final = 256
NAME: Final = "weight_gradients"

_TEXT: Final = r"""
// A tile of N x K results is made by GROUPS of THREADS: each adds up every fourth slice of M rows, then all are added
enum { N = 64, K = 32, M = 8, GROUPS = 4, THREADS = 64 };
// What one layer is: the block that its blocks end before, sizes, tiles side by side, and how far rows are apart
struct part_t { u32 end, rows, n, k, across, grad_step, input_step; };
struct parts_t { part_t at[32]; };
struct addresses_t { u64 at[128]; };

// A slice of M rows and WIDTH columns, in registers until the threads have done with the slice before
template <int V, int WIDTH> struct slice_t {
    enum { ACROSS = WIDTH / V, COUNT = M * ACROSS / THREADS, DOWN = THREADS / ACROSS };
    vec<float, V> held[COUNT];
    __device__ __forceinline__ void read(
        u32 thread, const float* from, u32 step, u32 first, u32 rows, u32 column, u32 columns
    ) {
        const u32 at = column + thread % ACROSS * V;
        #pragma unroll
        for (int j = 0; j < COUNT; ++j) {
            const u32 row = first + thread / ACROSS + j * DOWN;
            #pragma unroll
            for (int e = 0; e < V; ++e) held[j].at[e] = 0;
            if (row < rows && at < columns) held[j] = *(const vec<float, V>*)(from + (i64)row * step + at);
        }
    }
    __device__ __forceinline__ void keep(u32 thread, float (*to)[WIDTH]) {
        #pragma unroll
        for (int j = 0; j < COUNT; ++j)
            *(vec<float, V>*)&to[thread / ACROSS + j * DOWN][thread % ACROSS * V] = held[j];
    }
};

template <int V> __device__ __forceinline__ void gradients_of(
    const part_t& part, u32 tile, const float* grad, const float* input, float* weight, float* bias
) {
    __shared__ vec<float, 4> held[GROUPS][2][M][(N + K) / 4];
    const u32 group = threadIdx.x / THREADS, thread = threadIdx.x % THREADS, x = thread % 8 * 4, y = thread / 8 * 4;
    const u32 n = tile / part.across * N, k = tile % part.across * K;
    float (*grads)[M][N] = (float (*)[M][N])held[group], (*inputs)[M][K] = (float (*)[M][K])(grads + 2);
    const bool sums_bias = bias && !k;
    slice_t<V, N> left;
    slice_t<V, K> right;
    float sums[8][4] = {}, totals[V] = {};
    left.read(thread, grad, part.grad_step, group * M, part.rows, n, part.n);
    right.read(thread, input, part.input_step, group * M, part.rows, k, part.k);
    for (u32 first = 0, now = 0; first < part.rows; first += GROUPS * M, now ^= 1) {
        left.keep(thread, grads[now]);
        right.keep(thread, inputs[now]);
        if (sums_bias)
            #pragma unroll
            for (int j = 0; j < slice_t<V, N>::COUNT; ++j)
                #pragma unroll
                for (int e = 0; e < V; ++e) totals[e] += left.held[j].at[e];
        __syncthreads();
        if (first + GROUPS * M < part.rows) {
            const u32 next = first + (GROUPS + group) * M;
            left.read(thread, grad, part.grad_step, next, part.rows, n, part.n);
            right.read(thread, input, part.input_step, next, part.rows, k, part.k);
        }
        #pragma unroll
        for (int m = 0; m < M; ++m) {
            const vec<float, 4> a = *(const vec<float, 4>*)&grads[now][m][y];
            const vec<float, 4> b = *(const vec<float, 4>*)&grads[now][m][y + N / 2];
            const vec<float, 4> c = *(const vec<float, 4>*)&inputs[now][m][x];
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sums[i][j] += a.at[i] * c.at[j];
                    sums[i + 4][j] += b.at[i] * c.at[j];
                }
        }
    }
    __syncthreads();
    float* parts = (float*)held;
    if (group)
        #pragma unroll
        for (int i = 0; i < 32; ++i) parts[((group - 1) * 32 + i) * THREADS + thread] = sums[i / 4][i % 4];
    __syncthreads();
    if (!group) {
        #pragma unroll
        for (int other = 0; other < GROUPS - 1; ++other)
            #pragma unroll
            for (int i = 0; i < 32; ++i) sums[i / 4][i % 4] += parts[(other * 32 + i) * THREADS + thread];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            const u32 row = n + y + i % 4 + i / 4 * (N / 2);
            #pragma unroll
            for (int j = 0; j < 4; j += V) {
                if (row >= part.n || k + x + j >= part.k) continue;
                vec<float, V> result;
                #pragma unroll
                for (int e = 0; e < V; ++e) result.at[e] = sums[i][j + e];
                *(vec<float, V>*)(weight + (i64)row * part.k + k + x + j) = result;
            }
        }
    }
    if (!sums_bias) return;
    __syncthreads();
    #pragma unroll
    for (int e = 0; e < V; ++e) parts[threadIdx.x / (N / V) * N + threadIdx.x % (N / V) * V + e] = totals[e];
    __syncthreads();
    if (threadIdx.x >= N || n + threadIdx.x >= part.n) return;
    float total = 0;
    #pragma unroll
    for (int row = 0; row < GROUPS * THREADS * V / N; ++row) total += parts[row * N + threadIdx.x];
    bias[n + threadIdx.x] = total;
}
"""
_KERNEL: Final = r"""
extern "C" __global__ void __launch_bounds__(256, 2) weight_gradients(addresses_t addresses, parts_t parts) {{
    u32 p = 0;
    while (blockIdx.x >= parts.at[p].end) ++p;
    const u64* at = addresses.at + 4 * p;
    const u32 tile = blockIdx.x - (p ? parts.at[p - 1].end : 0);
    gradients_of<{V}>(
        parts.at[p], tile, (const float*)at[0], (const float*)at[1], (float*)at[2], (float*)at[3]
    );
}}
"""


def text_of(vector: int) -> str:
    """The whole source for rows that are read in vectors of so many elements, of at most four."""
    return assembled(PRELUDE, _TEXT, _KERNEL.format(V=vector))
