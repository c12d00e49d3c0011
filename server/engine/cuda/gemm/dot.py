"""Dot products of vectors: each block sums a part, one more block sums the parts, always in the same order."""

from __future__ import annotations

from typing import Any

from server.engine import keys
from server.engine.cuda.runtime.geometry import blocks, layout_of, vector_width
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra import linalg as ops

_THREADS = 256
_MOST_PARTS = 1024
_PER_BLOCK = _THREADS * 8

_TEXT = r"""
__device__ __forceinline__ float zero(float) { return 0; }
__device__ __forceinline__ double zero(double) { return 0; }
__device__ __forceinline__ i64 zero(i64) { return 0; }
template <class R> __device__ __forceinline__ complex_t<R> zero(complex_t<R>) { return {0, 0}; }
template <class S> __device__ __forceinline__ S plus(S a, S b) { return a + b; }
template <class R> __device__ __forceinline__ complex_t<R> plus(complex_t<R> a, complex_t<R> b) {
    return {a.re + b.re, a.im + b.im};
}
template <bool CONJ, class S> __device__ __forceinline__ S times(S a, S b) { return a * b; }
template <bool CONJ, class R> __device__ __forceinline__ complex_t<R> times(complex_t<R> a, complex_t<R> b) {
    R im = CONJ ? -a.im : a.im;
    return {a.re * b.re - im * b.im, a.re * b.im + im * b.re};
}

// the sum over a block of 256 threads, in thread 0
template <class S> __device__ S block_sum(S mine) {
    __shared__ S sums[256];
    sums[threadIdx.x] = mine;
    for (int half = 128; half; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] = plus(sums[threadIdx.x], sums[threadIdx.x + half]);
    }
    return sums[0];
}

// N neighbours are read at once, where vectors lie so after ``head`` elements; several before the first is used
template <class T, class S, class To, bool CONJ, int N>
__device__ void dot(To* out, const T* a, const T* b, i64 n, i64 head, i64 step_a, i64 step_b) {
    const int AHEAD = 4;
    i64 first = blockIdx.x * 256ll + threadIdx.x, step = gridDim.x * 256ll, count = (n - head) / N, i = first;
    vec<T, N> x[AHEAD], y[AHEAD];
    S sum[AHEAD];
    for (int u = 0; u < AHEAD; ++u) sum[u] = zero(S());
    for (; i + (AHEAD - 1) * step < count; i += AHEAD * step) {
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            x[u] = *(const vec<T, N>*)(a + head + (i + u * step) * N * step_a);
            y[u] = *(const vec<T, N>*)(b + head + (i + u * step) * N * step_b);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
#pragma unroll
            for (int k = 0; k < N; ++k)
                sum[u] = plus(sum[u], times<CONJ>(cast<S>(x[u].at[k]), cast<S>(y[u].at[k])));
    }
    for (i64 e = head + i * N; i < count; i += step, e = head + i * N)
#pragma unroll
        for (int k = 0; k < N; ++k)
            sum[0] = plus(sum[0], times<CONJ>(cast<S>(a[(e + k) * step_a]), cast<S>(b[(e + k) * step_b])));
    for (i64 rest = first; rest < n - count * N; rest += step) {
        i64 e = rest < head ? rest : count * N + rest;
        sum[0] = plus(sum[0], times<CONJ>(cast<S>(a[e * step_a]), cast<S>(b[e * step_b])));
    }
    S all = block_sum(plus(plus(sum[0], sum[1]), plus(sum[2], sum[3])));
    if (threadIdx.x == 0) out[blockIdx.x] = cast<To>(all);
}

template <class T, class S> __device__ void total(T* out, const S* parts, i64 n) {
    S sum = zero(S());
    for (i64 i = threadIdx.x; i < n; i += 256) sum = plus(sum, parts[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = cast<T>(sum);
}
"""


def _summed(dtype: DType) -> DType:
    """The type of the sum."""
    if dtype.is_complex or dtype in (dtypes.float32, dtypes.float64):
        return dtype
    return dtypes.float32 if dtype.is_floating_point else dtypes.int64


def _source(dtype: DType, width: int) -> str:
    kernels = []
    element, total = CTYPES[dtype], CTYPES[_summed(dtype)]
    for name, conjugates in (("dot", "false"), ("vdot", "true")):
        for suffix, to in (("", element), ("_parts", total)):
            kernels.append(
                f'extern "C" __global__ void __launch_bounds__(256) {name}{suffix}({to}* out, const {element}* a, '
                f"const {element}* b, i64 n, i64 head, i64 step_a, i64 step_b) "
                f"{{ dot<{element}, {total}, {to}, {conjugates}, {width}>(out, a, b, n, head, step_a, step_b); }}"
            )
    kernels.append(
        f'extern "C" __global__ void __launch_bounds__(256) total_of_parts({element}* out, const {total}* parts, '
        f"i64 n) {{ total<{element}, {total}>(out, parts, n); }}"
    )
    return PRELUDE + _TEXT + "\n".join(kernels)


def _width(left: Meta, right: Meta) -> tuple[int, int]:
    """How many neighbours are read at once, and the elements before the first of them."""
    if left.strides != (1,) or right.strides != (1,):
        return 1, 0
    return vector_width(layout_of(left.shape, (left, right)), (left.dtype.itemsize, right.dtype.itemsize))


@prepares(ops.dot, keys.CUDA, deferrable=True)
@prepares(ops.vdot, keys.CUDA, deferrable=True)
def dot(request: Request) -> Launch | None:
    left, right = request.args
    out, backend, name = request.outs[0], request.backend, request.op.name
    count, (width, head) = left.shape[0], _width(left, right)
    source = _source(left.dtype, width)
    parts = min(blocks(count, _PER_BLOCK), _MOST_PARTS)
    constants = [("i64", number) for number in (count, head, left.strides[0], right.strides[0])]
    a, b, o = (meta.offset * meta.dtype.itemsize for meta in (left, right, out))
    first = load(source, name if parts == 1 else f"{name}_parts").prepare(parts, _THREADS, "PPP", constants)

    def launch(args: Any, outs: Any, into: int | None = None) -> None:
        target = outs[0].storage.block.pointer + o if into is None else into
        first(backend.stream, target, args[0].storage.block.pointer + a, args[1].storage.block.pointer + b)

    if parts == 1:
        return launch
    scratch = Meta.of((parts,), _summed(left.dtype), backend.device)
    second = load(source, "total_of_parts").prepare(1, _THREADS, "PP", [("i64", parts)])

    def launch_both(args: Any, outs: Any) -> None:
        partial = backend.empty(scratch)
        launch(args, outs, partial.storage.block.pointer)
        second(backend.stream, outs[0].storage.block.pointer + o, partial.storage.block.pointer)

    return launch_both
