"""What all CUDA texts begin with: element types and their conversions, vectors, and sums over warps and blocks.

Half precision is held as bits and computed in float, so no CUDA header is read. Names of element types by dtype are in
``CTYPES``; ``compute_t<T>`` is the type that an element is computed in.
"""

from __future__ import annotations

import functools

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

CTYPES: dict[DType, str] = {
    dtypes.float16: "f16", dtypes.bfloat16: "bf16", dtypes.float32: "float", dtypes.float64: "double",
    dtypes.complex64: "c64", dtypes.complex128: "c128", dtypes.uint8: "u8", dtypes.int8: "i8", dtypes.int16: "i16",
    dtypes.int32: "i32", dtypes.int64: "i64", dtypes.bool_: "bool",
    dtypes.uint16: "u16", dtypes.uint32: "u32", dtypes.uint64: "u64", dtypes.complex32: "c32",
}  # fmt: skip


@functools.lru_cache(maxsize=1 << 12)
def assembled(*parts: str) -> str:
    """The text of these parts, the same object each time, whose hash is known: by it the kernel is found.

    Where a kernel's text is made anew for each launch that is prepared, to make and to hash it takes most of the time.
    """
    return "\n".join(parts)


PRELUDE = r"""
typedef unsigned char u8; typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;

struct f16 { u16 bits; };
struct bf16 { u16 bits; };
template <class R> struct alignas(2 * sizeof(R)) complex_t { R re, im; };
typedef complex_t<float> c64;
typedef complex_t<double> c128;
struct alignas(4) c32 { f16 re, im; };

__device__ __forceinline__ float widen(f16 v) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits)); return r; }
__device__ __forceinline__ float widen(bf16 v) { return __uint_as_float((u32)v.bits << 16); }
__device__ __forceinline__ c64 widen(c32 v) { return {widen(v.re), widen(v.im)}; }
template <class T> __device__ __forceinline__ T widen(T v) { return v; }

template <class T> struct compute { typedef T type; };
template <> struct compute<f16> { typedef float type; };
template <> struct compute<bf16> { typedef float type; };
template <> struct compute<c32> { typedef c64 type; };
template <class T> using compute_t = typename compute<T>::type;

// cast<To>(from) converts as PyTorch's .to() does; a complex number loses its imaginary part
#define OF static __device__ __forceinline__
template <class To> struct caster {
    template <class From> OF To of(From v) { return (To)v; }
    template <class S> OF To of(complex_t<S> v) { return (To)v.re; }
};
template <> struct caster<f16> {
    OF f16 of(float v) { f16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v)); return r; }
    template <class From> OF f16 of(From v) { return of((float)v); }
    template <class S> OF f16 of(complex_t<S> v) { return of(v.re); }
};
template <> struct caster<bf16> {
    OF bf16 of(float v) { bf16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v)); return r; }
    template <class From> OF bf16 of(From v) { return of((float)v); }
    template <class S> OF bf16 of(complex_t<S> v) { return of(v.re); }
};
template <> struct caster<u8> {
    OF u8 of(float v) { return (u8)(i64)v; }
    OF u8 of(double v) { return (u8)(i64)v; }
    template <class From> OF u8 of(From v) { return (u8)v; }
    template <class S> OF u8 of(complex_t<S> v) { return of(v.re); }
};
template <> struct caster<u16> {
    OF u16 of(float v) { return (u16)(i64)v; }
    OF u16 of(double v) { return (u16)(i64)v; }
    template <class From> OF u16 of(From v) { return (u16)v; }
    template <class S> OF u16 of(complex_t<S> v) { return of(v.re); }
};
template <> struct caster<u32> {
    OF u32 of(float v) { return (u32)(i64)v; }
    OF u32 of(double v) { return (u32)(i64)v; }
    template <class From> OF u32 of(From v) { return (u32)v; }
    template <class S> OF u32 of(complex_t<S> v) { return of(v.re); }
};
template <> struct caster<c32> {
    template <class From> OF c32 of(From v) { return {caster<f16>::of(v), caster<f16>::of(0.0f)}; }
    template <class S> OF c32 of(complex_t<S> v) { return {caster<f16>::of(v.re), caster<f16>::of(v.im)}; }
};
template <> struct caster<bool> {
    template <class From> OF bool of(From v) { return v != 0; }
    template <class S> OF bool of(complex_t<S> v) { return v.re != 0 || v.im != 0; }
};
template <class R> struct caster<complex_t<R>> {
    template <class From> OF complex_t<R> of(From v) { return {(R)v, (R)0}; }
    template <class S> OF complex_t<R> of(complex_t<S> v) { return {(R)v.re, (R)v.im}; }
};
#undef OF
template <class To, class From> __device__ __forceinline__ To cast(From v) { return caster<To>::of(widen(v)); }

// N elements that move in one access
template <class T, int N> struct alignas(sizeof(T) * N) vec { T at[N]; };
"""
