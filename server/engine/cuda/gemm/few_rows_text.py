"""The CUDA text of products with few rows: the sums of columns of weights that warps read in vectors.

``V`` elements are read at once, ``M`` rows are multiplied by what was read, ``P`` matrices of weights have a column
each, and ``SPLIT`` warps share a column.
"""

from __future__ import annotations

from typing import Final

WARPS: Final = 8
"""Warps of a block."""
AHEAD: Final = 4
"""Vectors of a column that a thread reads at once."""

COLUMNS = r"""
constexpr int WARPS = 8, AHEAD = 4;

// A column of each of P matrices of weights; a thread holds the vectors that it reads next. A column that is not there
// has no depth.
template <class T, int V, int P, int SPLIT> struct columns_t {
    static constexpr int STEP = SPLIT * 32 * V;
    const T* w[P];
    int depth, at;
    vec<T, V> held[P][AHEAD];
    __device__ __forceinline__ void begin(int length) {
        depth = length;
        at = (threadIdx.x / 32 % SPLIT * 32 + threadIdx.x % 32) * V;
    }
    // Brings what is read first into the cache
    __device__ __forceinline__ void fetch_first() const {
        if (threadIdx.x % (32 * SPLIT) == 0 && depth)
            #pragma unroll
            for (int p = 0; p < P; ++p) fetch(w[p], (int)(min(depth, AHEAD * STEP) * sizeof(T)));
    }
    __device__ __forceinline__ void read() {
        #pragma unroll
        for (int p = 0; p < P; ++p)
            #pragma unroll
            for (int u = 0; u < AHEAD; ++u)
                if (at + u * STEP < depth) held[p][u] = *(const vec<T, V>*)(w[p] + at + u * STEP);
    }
    // Products with rows of x, for which the first weights were read, summed in the same order each time
    template <int M> __device__ __forceinline__ void multiply(float (&sum)[P][M], const T* x, int apart, int rows) {
        #pragma unroll
        for (int i = 0; i < P * M; ++i) sum[i / M][i % M] = 0;
        for (; at < depth; at += AHEAD * STEP, read())
            #pragma unroll
            for (int u = 0; u < AHEAD; ++u) if (at + u * STEP < depth)
                #pragma unroll
                for (int m = 0; m < M; ++m) {
                    const vec<T, V> row = *(const vec<T, V>*)(x + min(m, rows - 1) * apart + at + u * STEP);
                    #pragma unroll
                    for (int p = 0; p < P; ++p)
                        #pragma unroll
                        for (int e = 0; e < V; ++e) sum[p][m] += widen(held[p][u].at[e]) * widen(row.at[e]);
                }
    }
    // The sums over all threads of a column, which all of them get. ``parts`` is of this block, and must not be used
    // again without a barrier in between.
    template <int M> __device__ __forceinline__ void combine(float (&sum)[P][M], float (*parts)[P * M]) const {
        #pragma unroll
        for (int i = 0; i < P * M; ++i)
            #pragma unroll
            for (int apart = 16; apart; apart /= 2)
                sum[i / M][i % M] += __shfl_xor_sync(0xffffffffu, sum[i / M][i % M], apart);
        if (SPLIT == 1) return;
        const int warp = threadIdx.x / 32;
        if (threadIdx.x % 32 == 0)
            #pragma unroll
            for (int i = 0; i < P * M; ++i) parts[warp][i] = sum[i / M][i % M];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < P * M; ++i) {
            float whole = 0;
            #pragma unroll
            for (int part = 0; part < SPLIT; ++part) whole += parts[warp / SPLIT * SPLIT + part][i];
            sum[i / M][i % M] = whole;
        }
    }
};

// The number that belongs to the row of a lane
template <int M> __device__ __forceinline__ float row_of_lane(const float (&sum)[M], int lane) {
    float found = sum[0];
    #pragma unroll
    for (int m = 1; m < M; ++m) found = lane == m ? sum[m] : found;
    return found;
}
"""
