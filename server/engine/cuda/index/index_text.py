"""CUDA text of reading and writing where indices point.

One kernel each, made for the operands: an element of the iterated shape lies somewhere in each operand (``layout``),
and every index tensor adds a number of steps to the place in the one that is indexed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

ATOMICS = r"""
// Replaces *at by f(*at), whatever others do to it at the same time.
template <class W, class T, class F> __device__ __forceinline__ void atomic_update_word(T* at, F f) {
    W* word = (W*)at;
    W seen = *word;
    for (;;) {
        T now = f(*(T*)&seen);
        W next = *(W*)&now, found = atomicCAS(word, seen, next);
        if (found == seen) return;
        seen = found;
    }
}
template <class T, class F> __device__ __forceinline__ void update(T* at, F f) {
    if constexpr (sizeof(T) == 8) atomic_update_word<u64>(at, f);
    else if constexpr (sizeof(T) == 4) atomic_update_word<u32>(at, f);
    else {
        u64 place = (u64)at;
        u32* word = (u32*)(place & ~3ull);
        int shift = (int)(place & 3) * 8;
        u32 mask = (sizeof(T) == 1 ? 0xffu : 0xffffu) << shift, seen = *word;
        for (;;) {
            u32 part = (seen & mask) >> shift, next = 0;
            T now = f(*(T*)&part);
            memcpy(&next, &now, sizeof(T));
            u32 found = atomicCAS(word, seen, (seen & ~mask) | (next << shift));
            if (found == seen) return;
            seen = found;
        }
    }
}

struct Assign { template <class T> static __device__ __forceinline__ void to(T* at, T v) { *at = v; } };
struct Add {
    static __device__ __forceinline__ void to(float* at, float v) { atomicAdd(at, v); }
    static __device__ __forceinline__ void to(double* at, double v) { atomicAdd(at, v); }
    static __device__ __forceinline__ void to(i32* at, i32 v) { atomicAdd(at, v); }
    static __device__ __forceinline__ void to(i64* at, i64 v) { atomicAdd((u64*)at, (u64)v); }
    static __device__ __forceinline__ void to(bool* at, bool v) { if (v) *at = true; }
    template <class R> static __device__ __forceinline__ void to(complex_t<R>* at, complex_t<R> v) {
        atomicAdd(&at->re, v.re);
        atomicAdd(&at->im, v.im);
    }
    template <class T> static __device__ __forceinline__ void to(T* at, T v) {
        update(at, [=](T old) { return (T)(old + v); });
    }
};
struct Multiply { template <class T> static __device__ __forceinline__ void to(T* at, T v) {
    update(at, [=](T old) { return (T)(old * v); });
} };
struct Max { template <class T> static __device__ __forceinline__ void to(T* at, T v) {
    update(at, [=](T old) { return widen(v) != widen(v) || widen(v) > widen(old) ? v : old; });
} };
struct Min { template <class T> static __device__ __forceinline__ void to(T* at, T v) {
    update(at, [=](T old) { return widen(v) != widen(v) || widen(v) < widen(old) ? v : old; });
} };

template <class How, class T, int W> __device__ __forceinline__ void update_vector(T* at, const vec<T, W>& v) {
    #pragma unroll
    for (int j = 0; j < W; ++j) How::to(at + j, v.at[j]);
}
template <> __device__ __forceinline__ void update_vector<Add, float, 4>(float* at, const vec<float, 4>& v) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
        :: "l"(at), "f"(v.at[0]), "f"(v.at[1]), "f"(v.at[2]), "f"(v.at[3]) : "memory");
#else
    #pragma unroll
    for (int j = 0; j < 4; ++j) atomicAdd(at + j, v.at[j]);
#endif
}
"""

THREADS = 256


def _given(types: Sequence[str], first: int) -> str:
    """Read each index tensor; operands ``first``, ... of the layout are the index tensors."""
    return " ".join(f"given{n}[u] = (i64)index{n}[at[u][{first + n}]];" for n in range(len(types)))


def _found(types: Sequence[str], wraps: bool) -> str:
    """Add what each index says to ``place[u]``."""
    lines = []
    for n in range(len(types)):
        wrap = f"if (k < 0) k += size{n};" if wraps else ""
        lines.append(
            f"{{ i64 k = given{n}[u]; {wrap}\n"
            f"  if ((u64)k < (u64)size{n}) place[u] += k * step{n};\n"
            f"  else {{ report(record, tag, given{n}[u], {n}); good[u] = false; }} }}"
        )
    return "\n".join(lines)


def _declared(types: Sequence[str]) -> str:
    return "".join(f", const {kind}* index{n}" for n, kind in enumerate(types))


def _sizes(types: Sequence[str]) -> str:
    return "".join(f", i64 size{n}, i64 step{n}" for n in range(len(types)))


def _places(layout: str, operands: int, items: int, types: Sequence[str], wraps: bool) -> str:
    """Where the elements of a thread lie; all indices are read before any is looked at."""
    held = "".join(f"i64 given{n}[{items}]; " for n in range(len(types)))
    return f"""
    bool good[{items}];
    {layout}::index at[{items}][{operands}];
    i64 place[{items}];
    {held}
    #pragma unroll
    for (int u = 0; u < {items}; ++u) {{
        i64 i = ((i64)blockIdx.x * {items} + u) * {THREADS} + threadIdx.x;
        good[u] = i < count;
        if (good[u]) {{ layout.find(i, at[u]); place[u] = at[u][1]; {_given(types, 2)} }}
    }}
    #pragma unroll
    for (int u = 0; u < {items}; ++u) if (good[u]) {{ {_found(types, wraps)} }}"""


FETCHING = r"""
// Stores what nobody reads soon, so that the cache keeps what indices point at
template <class T, int W> __device__ __forceinline__ void leave(T* at, const vec<T, W>& v) {
    if constexpr (sizeof(v) == 16) __stcs((uint4*)at, *(const uint4*)&v); else *(vec<T, W>*)at = v;
}
"""


@functools.lru_cache(maxsize=1 << 10)
def fetching(element: str, width: int, layout: str, types: tuple[str, ...], items: int, wraps: bool) -> str:
    """Kernel ``run``: out = in where the indices point, zero where they point nowhere. Units are moved as bits."""
    return f"""
extern "C" __global__ void __launch_bounds__({THREADS}) run(
    {element}* __restrict__ out, const {element}* __restrict__ in{_declared(types)}, fault_record* record,
    u64 tag, {layout} layout, i64 count{_sizes(types)}
) {{
    {_places(layout, 2 + len(types), items, types, wraps)}
    typedef vec<{element}, {width}> unit;
    unit held[{items}];
    #pragma unroll
    for (int u = 0; u < {items}; ++u) {{ held[u] = unit(); if (good[u]) held[u] = *(const unit*)(in + place[u]); }}
    #pragma unroll
    for (int u = 0; u < {items}; ++u) {{
        i64 i = ((i64)blockIdx.x * {items} + u) * {THREADS} + threadIdx.x;
        if (i < count) leave(out + at[u][0], held[u]);
    }}
}}
"""


def storing(
    how: str, target: str, source: str, width: int, layout: str, types: Sequence[str], items: int, wraps: bool
) -> str:
    """Kernel ``run``: in ``out``, what the indices point at is changed by ``how`` with ``source * alpha``.

    A value that is no tensor comes as ``number``. ``mode``: 0 write, 1 write unless the record is void, 2 check only.
    """
    return f"""
extern "C" __global__ void __launch_bounds__({THREADS}) run(
    {target}* out, const {source}* source{_declared(types)}, fault_record* record, u64 tag, int mode, {layout} layout,
    i64 count{_sizes(types)}, {target} number, compute_t<{target}> alpha, int scales
) {{
    if (mode == 1 && is_void(record)) return;
    {_places(layout, 2 + len(types), items, types, wraps)}
    if (mode == 2) return;
    vec<{target}, {width}> held[{items}];
    #pragma unroll
    for (int u = 0; u < {items}; ++u) if (good[u]) {{
        if (source) {{
            vec<{source}, {width}> given = *(const vec<{source}, {width}>*)(source + at[u][0]);
            #pragma unroll
            for (int j = 0; j < {width}; ++j) held[u].at[j] = scaled_source<{target}>(given.at[j], alpha, scales);
        }} else
            #pragma unroll
            for (int j = 0; j < {width}; ++j) held[u].at[j] = number;
    }}
    #pragma unroll
    for (int u = 0; u < {items}; ++u) if (good[u]) update_vector<{how}>(out + place[u], held[u]);
}}
"""


STORING = r"""
template <class To, class From, class A> __device__ __forceinline__ To scaled_source(From v, A alpha, int scales) {
    return scales ? scaled(cast<To>(v), alpha) : cast<To>(v);
}
"""
SCALED = r"""
template <class T> __device__ __forceinline__ T scaled(T v, T alpha) { return (T)(v * alpha); }
__device__ __forceinline__ bool scaled(bool v, bool alpha) { return v && alpha; }
template <class R> __device__ __forceinline__ complex_t<R> scaled(complex_t<R> v, complex_t<R> a) {
    return {v.re * a.re - v.im * a.im, v.re * a.im + v.im * a.re};
}
__device__ __forceinline__ f16 scaled(f16 v, float alpha) { return cast<f16>(widen(v) * alpha); }
__device__ __forceinline__ bf16 scaled(bf16 v, float alpha) { return cast<bf16>(widen(v) * alpha); }
"""
