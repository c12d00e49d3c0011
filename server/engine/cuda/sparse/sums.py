"""Text for sums of products, each of which a group of threads makes together."""

from __future__ import annotations

SUMS = r"""
template <class A> struct sum_of {
    A total = 0;
    template <class T> __device__ __forceinline__ void add(T a, T b) { total += (A)widen(a) * (A)widen(b); }
    template <int N> __device__ __forceinline__ void join(u32 mask) {
        for (int step = N / 2; step; step /= 2) total += (A)__shfl_xor_sync(mask, total, step);
    }
};
template <class R> struct sum_of<complex_t<R>> {
    complex_t<R> total = {0, 0};
    __device__ __forceinline__ void add(complex_t<R> a, complex_t<R> b) {
        total.re += a.re * b.re - a.im * b.im;
        total.im += a.re * b.im + a.im * b.re;
    }
    template <int N> __device__ __forceinline__ void join(u32 mask) {
        for (int step = N / 2; step; step /= 2) {
            total.re += __shfl_xor_sync(mask, total.re, step);
            total.im += __shfl_xor_sync(mask, total.im, step);
        }
    }
};
template <int LANES> __device__ __forceinline__ u32 mask_of_group() {
    return LANES == 32 ? 0xffffffffu : ((1u << LANES % 32) - 1) << (threadIdx.x % 32 / LANES * LANES);
}
"""
