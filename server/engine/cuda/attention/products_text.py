"""The CUDA text under attention's kernels: tiles of rows in shared memory, and their products on tensor cores.

Tensor cores multiply TF32 with eleven significant bits; a float32 product takes three of these (S. Markidis et al.,
NVIDIA Tensor Core Programmability, 2018; H. Ootomo and R. Yokota, 2022): each factor is split into a big and a small
part, and the product of the small parts is left out. Sums are float32, but tensor cores round them towards zero: their
own sums are short, 32 numbers along a tile, and are added up by additions that round to nearest.

A warp multiplies 16 rows. Its fragments are those of ``mma.m16n8k8`` (PTX ISA, matrix fragments), but which
element a place in a fragment stands for is ours to choose, as long as both factors agree: a thread's elements lie side
by side, so tiles are read and results written in vectors, and the result of one product is the factor of the next as
it is. Rows of a tile lie ``width + 4`` floats apart, which lets the threads of a warp reach different banks in each of
these patterns.

The parts of an infinity, and their products, add up to NaN. A block whose results are not finite therefore computes
them again without splitting: with IS_EXACT. Knows nothing of softmax.
"""

from __future__ import annotations

TILE = 64
"""Rows of a block: sixteen per warp."""
THREADS = 128
"""Threads of a block."""
PAD = 4
"""Padding of a row in shared memory, in floats, against bank conflicts."""

TEXT = (
    f"""
#define TILE {TILE}
#define THREADS {THREADS}
#define PAD {PAD}
"""
    + r"""
struct steps_t { i64 n, h, t, d; };
typedef vec<float, 4> float4_t;

// What a block computes: rows of a head from ``first`` on. Blocks with the most columns start first (the last rows of
// all heads, or the first ones), so that no long block runs alone at the end.
struct block_t {
    int head, n, first;
    __device__ __forceinline__ block_t(int heads, int batch, bool is_last_first) {
        u32 rest = is_last_first ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
        head = rest % heads; rest /= heads;
        n = rest % batch; first = rest / batch * TILE;
    }
};

// A thread's coordinates: the first row of its warp in the tile, its row in a fragment, and its lane among four
struct thread_t {
    int warp_row, row, quad;
    __device__ __forceinline__ thread_t()
        : warp_row(threadIdx.x / 32 * 16), row(threadIdx.x % 32 / 4), quad(threadIdx.x % 4) {}
};

// K numbers, each the sum of two numbers that TF32 represents exactly
template <int K> struct halves_t {
    u32 big[K], small[K];
    __device__ __forceinline__ void set(int k, float x) {
        big[k] = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
        small[k] = __float_as_uint(x - __uint_as_float(big[k]));
    }
};

__device__ __forceinline__ void multiply(float (&sums)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};" : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four neighbouring fragments; the sums of the small terms may be accumulated separately
__device__ __forceinline__ void multiply(
    float (*sums)[4], float (*small)[4], const halves_t<4>& a, const halves_t<2> (&b)[4]) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) multiply(small[j], a.small, b[j].big);
    #pragma unroll
    for (int j = 0; j < 4; ++j) multiply(sums[j], a.big, b[j].big);
    #pragma unroll
    for (int j = 0; j < 4; ++j) multiply(small[j], a.big, b[j].small);
}

template <int N> __device__ __forceinline__ void add(float (*sums)[4], const float (&part)[N][4]) {
    #pragma unroll
    for (int j = 0; j < N; ++j)
        #pragma unroll
        for (int i = 0; i < 4; ++i) sums[j][i] += part[j][i];
}

// Call f(j, i) for element i of fragment j, for all elements that a thread has of N columns
template <int N, class F> __device__ __forceinline__ void for_each(F f) {
    #pragma unroll
    for (int j = 0; j < N / 8; ++j)
        #pragma unroll
        for (int i = 0; i < 4; ++i) f(j, i);
}

template <int N> __device__ __forceinline__ bool are_finite(const float (&sums)[N / 8][4]) {
    float sum_of_zeros = 0;
    for_each<N>([&](int j, int i) { sum_of_zeros = fmaf(sums[j][i], 0.0f, sum_of_zeros); });
    return sum_of_zeros == 0;
}

template <int N, int D> __device__ __forceinline__ void product_by_rows_exact(
    float (&sums)[N / 8][4], const float* a, const float* b) {
    constexpr int LD = D + PAD;
    const thread_t me;
    for_each<N>([&](int j, int i) { sums[j][i] = 0; });
    #pragma unroll 1
    for (int d = 0; d < D; ++d)
        for_each<N>([&](int j, int i) {
            const float left = a[(me.row + i / 2 * 8) * LD + d], right = b[(8 * j + 2 * me.quad + i % 2) * LD + d];
            sums[j][i] = fmaf(left, right, sums[j][i]);
        });
}

// sums = a @ b.T: 16 rows of ``a``, N rows of ``b``. A thread has columns 8 j + 2 quad and the next in sums[j], of row
// ``row`` in [0] and [1], of row ``row + 8`` in [2] and [3].
template <int N, int D, bool IS_EXACT> __device__ __forceinline__ void by_rows(
    float (&sums)[N / 8][4], const float* a, const float* b) {
    if constexpr (IS_EXACT) return product_by_rows_exact<N, D>(sums, a, b);
    constexpr int LD = D + PAD;
    const thread_t me;
    a += me.row * LD + 8 * me.quad; b += me.row * LD + 8 * me.quad;
    for_each<N>([&](int j, int i) { sums[j][i] = 0; });
    float small[N / 8][4] = {};
    #pragma unroll
    for (int c = 0; c < D / 16; ++c) {
        const int d = c / 2 * 32 + c % 2 * 4;
        const float4_t upper = *(const float4_t*)(a + d), lower = *(const float4_t*)(a + 8 * LD + d);
        halves_t<4> left[2];
        #pragma unroll
        for (int s = 0; s < 2; ++s) {
            left[s].set(0, upper.at[2 * s]); left[s].set(1, lower.at[2 * s]);
            left[s].set(2, upper.at[2 * s + 1]); left[s].set(3, lower.at[2 * s + 1]);
        }
        #pragma unroll
        for (int n = 0; n < N / 8; n += 4) {
            float4_t loaded[4];
            #pragma unroll
            for (int j = 0; j < 4; ++j) loaded[j] = *(const float4_t*)(b + (n + j) * 8 * LD + d);
            #pragma unroll
            for (int s = 0; s < 2; ++s) {
                halves_t<2> right[4];
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    right[j].set(0, loaded[j].at[2 * s]); right[j].set(1, loaded[j].at[2 * s + 1]);
                }
                multiply(sums + n, small + n, left[s], right);
            }
        }
    }
    add<N / 8>(sums, small);
}

template <int N, int D> __device__ __forceinline__ void product_by_columns_exact(
    float (&sums)[D / 8][4], const float (&a)[N / 8][4], const float* b) {
    const thread_t me;
    #pragma unroll
    for (int k = 0; k < N / 8; ++k)
        #pragma unroll
        for (int i = 0; i < 2; ++i)
            #pragma unroll 1
            for (int owner = 0; owner < 4; ++owner) {
                const float* line = b + (8 * k + 2 * owner + i) * (D + PAD) + 8 * me.quad;
                const float left[2] = {
                    __shfl_sync(0xffffffffu, a[k][i], owner, 4), __shfl_sync(0xffffffffu, a[k][i + 2], owner, 4)};
                for_each<D>([&](int j, int at) {
                    sums[j][at] = fmaf(left[at / 2], line[j / 4 * 32 + at % 2 * 4 + j % 4], sums[j][at]);
                });
            }
}

// sums += a @ b: ``a`` as by_rows leaves it, N rows of ``b``. A thread has columns 32 c + 8 quad + i in
// sums[4 c + i % 4], of row ``row`` in [i / 4], of row ``row + 8`` in [2 + i / 4].
template <int N, int D, bool IS_EXACT> __device__ __forceinline__ void by_columns(
    float (&sums)[D / 8][4], const float (&a)[N / 8][4], const float* b) {
    if constexpr (IS_EXACT) return product_by_columns_exact<N, D>(sums, a, b);
    constexpr int LD = D + PAD;
    const thread_t me;
    b += 2 * me.quad * LD + 4 * me.row;
    #pragma unroll
    for (int start = 0; start < N / 8; start += 4) {
        halves_t<4> left[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k)
            #pragma unroll
            for (int i = 0; i < 4; ++i) left[k].set(i, a[start + k][i % 2 * 2 + i / 2]);
        #pragma unroll
        for (int c = 0; c < D / 32; ++c) {
            float part[4][4] = {};
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float* line = b + 8 * (start + k) * LD + 32 * c;
                const float4_t even = *(const float4_t*)line, odd = *(const float4_t*)(line + LD);
                halves_t<2> right[4];
                #pragma unroll
                for (int j = 0; j < 4; ++j) { right[j].set(0, even.at[j]); right[j].set(1, odd.at[j]); }
                multiply(part, part, left[k], right);
            }
            add<4>(sums + 4 * c, part);
        }
    }
}

// Four elements of a row, with zeros from ``end`` on; if FAST, all or none of them are before ``end``
template <bool FAST, class T> __device__ __forceinline__ float4_t load_four(const T* from, i64 step, int d, int end) {
    float4_t loaded = {};
    if constexpr (FAST) {
        const vec<T, 4> read = *(const vec<T, 4>*)(from + d);
        #pragma unroll
        for (int i = 0; i < 4; ++i) loaded.at[i] = cast<float>(read.at[i]);
    } else {
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            if (d + i < end) loaded.at[i] = cast<float>(from[(d + i) * step]);
    }
    return loaded;
}

template <bool FAST, class T> __device__ __forceinline__ void store_four(T* to, i64 step, int d, int end, float4_t v) {
    if constexpr (FAST) {
        vec<T, 4> written;
        #pragma unroll
        for (int i = 0; i < 4; ++i) written.at[i] = cast<T>(v.at[i]);
        if (d < end) *(vec<T, 4>*)(to + d) = written;
    } else {
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            if (d + i < end) to[(d + i) * step] = cast<T>(v.at[i]);
    }
}

// Start to load ROWS rows from ``first`` on into a tile of shared memory; missing rows become zero
template <int D, int ROWS, bool FAST, class T> __device__ __forceinline__ void load_tile(
    float* to, const T* from, steps_t step, int first, int rows, int width) {
    constexpr bool IS_COPY = FAST && sizeof(T) == 4;
    constexpr int LINE = D / 4, PASS = THREADS / LINE;
    const int start = threadIdx.x / LINE, d = threadIdx.x % LINE * 4;
    if (PASS * LINE < THREADS && start >= PASS) return;
    const T* row = from + (i64)(first + start) * step.t;
    #pragma unroll (IS_COPY ? 16 : 4)
    for (int r = start; r < ROWS; r += PASS, row += PASS * step.t) {
        const bool is_there = first + r < rows && d < width;
        float* place = to + r * (D + PAD) + d;
        if constexpr (IS_COPY)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
                "r"((u32)__cvta_generic_to_shared(place)), "l"(is_there ? row + d : from), "r"(is_there ? 16 : 0)
                : "memory");
        else
            *(float4_t*)place = is_there ? load_four<FAST>(row, step.d, d, width) : float4_t{};
    }
}

// Wait until the tiles that were loaded are visible to all threads
__device__ __forceinline__ void wait_for_tiles() {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
}

// Store a warp's rows of a result of by_columns, times a factor for each of a thread's rows
template <int D, bool FAST, class T> __device__ __forceinline__ void store_tile(
    T* to, steps_t step, const float (&sums)[D / 8][4], int first, int rows, int width, vec<float, 2> factor) {
    const thread_t me;
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first + me.warp_row + me.row + 8 * half;
        if (row >= rows) continue;
        T* line = to + (i64)row * step.t;
        #pragma unroll
        for (int c = 0; c < D / 32; ++c)
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                float4_t v;
                #pragma unroll
                for (int j = 0; j < 4; ++j) v.at[j] = sums[4 * c + j][2 * half + e] * factor.at[half];
                store_four<FAST>(line, step.d, 32 * c + 8 * me.quad + 4 * e, width, v);
            }
    }
}
"""
)
