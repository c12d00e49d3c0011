"""CUDA text that computes with real and complex numbers alike, after ``PRELUDE``."""

from __future__ import annotations

ARITHMETIC = r"""
template <class T> struct real_of { typedef T type; };
template <class R> struct real_of<complex_t<R>> { typedef R type; };
template <class T> using real_t = typename real_of<T>::type;

template <class R> __device__ __forceinline__ R times(R a, R b) { return a * b; }
template <class R> __device__ __forceinline__ complex_t<R> times(complex_t<R> a, complex_t<R> b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class R> __device__ __forceinline__ R plus(R a, R b) { return a + b; }
template <class R> __device__ __forceinline__ complex_t<R> plus(complex_t<R> a, complex_t<R> b) {
    return {a.re + b.re, a.im + b.im};
}
template <class R> __device__ __forceinline__ R minus(R a, R b) { return a - b; }
template <class R> __device__ __forceinline__ complex_t<R> minus(complex_t<R> a, complex_t<R> b) {
    return {a.re - b.re, a.im - b.im};
}
template <class R> __device__ __forceinline__ R conjugate(R a) { return a; }
template <class R> __device__ __forceinline__ complex_t<R> conjugate(complex_t<R> a) { return {a.re, -a.im}; }
template <class R> __device__ __forceinline__ R magnitude(R a) { return a < 0 ? -a : a; }
template <class R> __device__ __forceinline__ R magnitude(complex_t<R> a) { return (R)hypot(a.re, a.im); }
template <class R> __device__ __forceinline__ R scaled(R a, R factor) { return a * factor; }
template <class R> __device__ __forceinline__ complex_t<R> scaled(complex_t<R> a, R factor) {
    return {a.re * factor, a.im * factor};
}

template <class R> __device__ __forceinline__ R from_lane(R a, int distance) {
    return __shfl_xor_sync(0xffffffff, a, distance);
}
template <class R> __device__ __forceinline__ complex_t<R> from_lane(complex_t<R> a, int distance) {
    return {__shfl_xor_sync(0xffffffff, a.re, distance), __shfl_xor_sync(0xffffffff, a.im, distance)};
}
template <class T> __device__ __forceinline__ T sum_of_warp(T a) {
    for (int distance = 16; distance; distance /= 2) a = plus(a, from_lane(a, distance));
    return a;
}
template <class T> __device__ __forceinline__ T product_of_warp(T a) {
    for (int distance = 16; distance; distance /= 2) a = times(a, from_lane(a, distance));
    return a;
}
"""
