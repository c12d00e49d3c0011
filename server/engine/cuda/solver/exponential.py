"""Exponentials of small matrices, a block per matrix, computed in double precision in shared memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from server.engine import keys
from server.engine.cuda.runtime.launch import load, pointer
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.cuda.texts import Call, call, tensor
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.ops.linear_algebra import matrix_functions as ops

from .arithmetic import ARITHMETIC
from .batches import Batch, batch_of
from .libraries import PREFIXES

_MOST_SHARED = 200 << 10
"""The bytes of shared memory that a block may ask for on a GPU of data centres."""
_MATRICES = 6
_DEGREE = 16
_RADIUS = 0.78
"""Up to this 1-norm the Taylor polynomial of degree 16 is exact in double precision (Bader, Blanes and Casas 2019)."""

EXPONENTIAL = r"""
template <class T> __device__ void product(T* out, const T* left, const T* right, int n) {
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) {
        const int row = i / n, column = i % n;
        T sum = cast<T>(0);
        for (int k = 0; k < n; ++k) sum = plus(sum, times(left[row * n + k], right[k * n + column]));
        out[i] = sum;
    }
    __syncthreads();
}

// The 1-norm, which is NaN where an element is.
template <class T> __device__ double norm_of(const T* a, double* sums, int n) {
    for (int column = threadIdx.x; column < n; column += blockDim.x) {
        double sum = 0;
        for (int row = 0; row < n; ++row) sum += magnitude(a[row * n + column]);
        sums[column] = sum;
    }
    __syncthreads();
    double norm = 0;
    for (int column = 0; column < n; ++column) {
        const double sum = sums[column];
        norm = sum > norm || sum != sum ? sum : norm;
    }
    return norm;
}

// By Paterson and Stockmeyer: four polynomials of degree 3 in a, combined by Horner's rule in its fourth power.
template <class T, class W> __device__ __forceinline__ void exponential(
    T* out, const T* in, int n, double radius, i64 step, i64 row_step, i64 column_step
) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int size = n * n;
    W *const a = (W*)memory, *const a2 = a + size, *const a3 = a2 + size, *const a4 = a3 + size;
    W *sum = a4 + size, *other = sum + size;
    in += blockIdx.x * step;
    for (int i = threadIdx.x; i < size; i += blockDim.x) a[i] = cast<W>(in[i / n * row_step + i % n * column_step]);
    __syncthreads();
    const double norm = norm_of(a, (double*)a2, n);
    int squarings = norm > radius && norm < 1e300 ? (int)ceil(log2(norm / radius)) : 0;
    __syncthreads();
    const double shrink = exp2((double)-squarings);
    for (int i = threadIdx.x; i < size; i += blockDim.x) a[i] = scaled(a[i], shrink);
    __syncthreads();
    product(a2, a, a, n);
    product(a3, a2, a, n);
    product(a4, a2, a2, n);
    for (int i = threadIdx.x; i < size; i += blockDim.x) sum[i] = scaled(a4[i], COEFFICIENTS[16]);
    __syncthreads();
    for (int block = 3; block >= 0; --block) {
        const double* const c = COEFFICIENTS + 4 * block;
        for (int i = threadIdx.x; i < size; i += blockDim.x) {
            const W cubic = plus(plus(scaled(a[i], c[1]), scaled(a2[i], c[2])), scaled(a3[i], c[3]));
            sum[i] = plus(sum[i], plus(cubic, cast<W>(i / n == i % n ? c[0] : 0.0)));
        }
        __syncthreads();
        if (block == 0) break;
        product(other, sum, a4, n);
        W* const swap = sum;
        sum = other, other = swap;
    }
    for (; squarings; --squarings) {
        product(other, sum, sum, n);
        W* const swap = sum;
        sum = other, other = swap;
    }
    out += (i64)blockIdx.x * size;
    for (int i = threadIdx.x; i < size; i += blockDim.x) out[i] = cast<T>(sum[i]);
}
"""
_COEFFICIENTS = ", ".join([repr(1 / math.factorial(k)) for k in range(_DEGREE + 1)])


def _computer(dtype: DType, source: Batch) -> Callable[..., None]:
    """What computes the exponentials of a batch; called with the stream and the addresses of results and matrices."""
    ctype, wide = CTYPES[dtype], _wide(dtype)
    threads = 1024 if source.rows > 32 else 256 if source.rows > 8 else 64
    entry = f"""
extern "C" __global__ void __launch_bounds__({threads}) run(
    {ctype}* out, const {ctype}* in, int n, double radius, i64 step, i64 row_step, i64 column_step
) {{
    exponential<{ctype}, {CTYPES[wide]}>(out, in, n, radius, step, row_step, column_step);
}}"""
    coefficients = f"__device__ const double COEFFICIENTS[] = {{{_COEFFICIENTS}}};\n"
    kernel = load(f"{PRELUDE}{ARITHMETIC}{coefficients}{EXPONENTIAL}{entry}", "run")
    constants = [("int", source.rows), ("double", _RADIUS), *[("i64", step) for step in source[3:]]]
    return kernel.prepare(source.number, threads, "PP", constants, _shared(dtype, source.rows))


def _wide(dtype: DType) -> DType:
    return dtypes.complex128 if dtype.is_complex else dtypes.float64


def _shared(dtype: DType, n: int) -> int:
    return _MATRICES * n * n * _wide(dtype).itemsize


@prepares(ops.matrix_exp, keys.CUDA, deferrable=True)
def matrix_exp(request: Request) -> Launch | None:
    A, out, backend = request.args[0], request.outs[0], request.backend
    source = batch_of(A)
    if A.dtype not in PREFIXES or source is None or not A.numel or not out.is_contiguous:
        return None
    if _shared(A.dtype, source.rows) > _MOST_SHARED:
        return None
    compute = _computer(A.dtype, source)

    def launch(args: Any, outs: Any) -> None:
        compute(backend.stream, pointer(outs[0]), pointer(args[0]))

    return launch


def check_calls(dtype: DType) -> Iterator[Call]:
    if dtype in PREFIXES:
        for n in (4, 16, 40):
            yield call("matrix_exp", tensor(dtype, n, n))
