"""LU factorizations by cuBLAS, for batches of small matrices, or cuSOLVER, and determinants made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.engine import keys
from server.engine.cuda.runtime.geometry import blocks
from server.engine.cuda.runtime.launch import load, pointer
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.device.cupy_module import cp
from server.engine.operators import Request
from server.engine.ops.linear_algebra.factorizations import zero_pivot
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.dtypes import DType
from telegrad_protocol.ops.linear_algebra import factorizations, solvers

from .arithmetic import ARITHMETIC
from .batches import Batch, FailureCheck, Scratch, are_packed, batch_of, gatherer, packed
from .libraries import IS_AVAILABLE, PREFIXES, blas_function, blas_on, solver_function, solver_on

MOST_IN_BATCHES = 512
"""Up to this size cuBLAS's batched factorization is faster than one matrix after the other."""
_THREADS = 128

DETERMINANT = r"""
template <class T> __device__ __forceinline__ T parity_of(const int* pivots, int n) {
    int exchanged = 0;
    for (int i = threadIdx.x % 32; i < n; i += 32) exchanged += pivots[i] != i + 1;
    return cast<T>(sum_of_warp(exchanged) % 2 ? -1 : 1);
}

template <class T> __device__ __forceinline__ void determinant(
    T* out, const T* lu, const int* pivots, i64 count, int n
) {
    const i64 matrix = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (matrix >= count) return;
    T product = cast<T>(1);
    for (int i = threadIdx.x % 32; i < n; i += 32) product = times(product, lu[matrix * n * n + (i64)i * (n + 1)]);
    product = times(product_of_warp(product), parity_of<T>(pivots + matrix * n, n));
    if (threadIdx.x % 32 == 0) out[matrix] = product;
}

template <class T> __device__ __forceinline__ void sign_and_logarithm(
    T* sign, real_t<T>* logarithm, const T* lu, const int* pivots, i64 count, int n
) {
    const i64 matrix = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (matrix >= count) return;
    T phase = cast<T>(1);
    real_t<T> sum = 0;
    for (int i = threadIdx.x % 32; i < n; i += 32) {
        const T pivot = lu[matrix * n * n + (i64)i * (n + 1)];
        const real_t<T> size = magnitude(pivot);
        phase = times(phase, size == 0 ? cast<T>(0) : scaled(pivot, 1 / size));
        sum += log(size);
    }
    phase = times(product_of_warp(phase), parity_of<T>(pivots + matrix * n, n));
    sum = sum_of_warp(sum);
    if (threadIdx.x % 32 == 0) sign[matrix] = phase, logarithm[matrix] = sum;
}
"""


class Factorization:
    """The LU factorization of a packed batch, in its memory; addresses of its matrices are needed if ``batched``."""

    def __init__(self, dtype: DType, batch: Batch, pivot: bool = True) -> None:
        self.batch = batch
        self.batched = batch.rows == batch.columns <= MOST_IN_BATCHES and batch.number > 1
        self.table_bytes = 8 * batch.number if self.batched else 0
        self._pivot, self._itemsize = pivot, dtype.itemsize
        self._getrf_batched = blas_function("getrf_batched", dtype)
        self._getrf = solver_function("getrf", dtype)
        self._size_of = solver_function("getrf_buffer_size", dtype)
        self._size = -1

    def run(self, backend: Any, factor: int, addresses: int, pivots: int, info: int) -> None:
        """Factorize; all are addresses, and ``pivots`` are counted from 1."""
        count, m, n = self.batch[:3]
        if self.batched:
            self._getrf_batched(blas_on(backend), n, addresses, n, pivots if self._pivot else 0, info, count)
            return
        handle, step = solver_on(backend), self.batch.size * self._itemsize
        if self._size < 0:
            self._size = self._size_of(handle, m, n, factor, m)
        work = cp.empty(self._size * self._itemsize, "b")
        for number in range(count):
            at_pivots = pivots + number * min(m, n) * 4 if self._pivot else 0
            self._getrf(handle, m, n, factor + number * step, m, work.data.ptr, at_pivots, info + number * 4)


@prepares(factorizations.lu_factor_ex, keys.CUDA)
def lu_factor_ex(request: Request) -> Launch | None:
    A, pivot, check_errors = request.args
    source = batch_of(A)
    if not IS_AVAILABLE or source is None or not pivot or not are_packed(request.outs):
        return None
    backend = request.backend
    gather, factorization = gatherer(A.dtype, source), Factorization(A.dtype, packed(*source[:3]))
    check = FailureCheck(backend, "linalg.lu_factor", A.shape[:-2], zero_pivot) if check_errors else None

    def launch(args: Any, outs: Any) -> None:
        factor, pivots, info = map(pointer, outs)
        scratch = Scratch(backend, [factorization.table_bytes]) if factorization.batched else None
        addresses = scratch.at[0] if scratch else 0
        gather(backend.stream, factor, pointer(args[0]), addresses, 0, info)
        factorization.run(backend, factor, addresses, pivots, info)
        if check is not None:
            check.run(info)

    return launch


def _of_diagonals(dtype: DType, batch: Batch, with_logarithm: bool) -> Callable[..., None]:
    """What computes determinants of factorizations; called with the stream, the results, the factors and the pivots."""
    ctype, real = CTYPES[dtype], CTYPES[dtype.to_real()]
    results, names = f"{ctype}* out", "out"
    if with_logarithm:
        results, names = f"{ctype}* sign, {real}* logarithm", "sign, logarithm"
    function = "sign_and_logarithm" if with_logarithm else "determinant"
    entry = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) run(
    {results}, const {ctype}* lu, const int* pivots, i64 count, int n
) {{
    {function}({names}, lu, pivots, count, n);
}}"""
    kernel = load(f"{PRELUDE}{ARITHMETIC}{DETERMINANT}{entry}", "run")
    constants = [("i64", batch.number), ("int", batch.rows)]
    return kernel.prepare(
        blocks(batch.number, _THREADS // 32), _THREADS, "PPPP" if with_logarithm else "PPP", constants
    )


def _determinants(request: Request, with_logarithm: bool) -> Launch | None:
    A = request.args[0]
    source = batch_of(A)
    if not IS_AVAILABLE or source is None or not A.numel or not all(out.is_contiguous for out in request.outs):
        return None
    backend, batch = request.backend, packed(*source[:3])
    gather, factorization = gatherer(A.dtype, source), Factorization(A.dtype, batch)
    finish = _of_diagonals(A.dtype, batch, with_logarithm)
    count, n = batch[:2]
    sizes = [8 * count, 4 * count * n, 4 * count, count * batch.size * A.dtype.itemsize]

    def launch(args: Any, outs: Any) -> None:
        scratch = Scratch(backend, sizes)
        addresses, pivots, info, factor = scratch.at
        gather(backend.stream, factor, pointer(args[0]), addresses if factorization.batched else 0, 0, info)
        factorization.run(backend, factor, addresses, pivots, info)
        finish(backend.stream, *map(pointer, outs), factor, pivots)

    return launch


@prepares(solvers.det, keys.CUDA)
def det(request: Request) -> Launch | None:
    return _determinants(request, False)


@prepares(solvers.slogdet, keys.CUDA)
def slogdet(request: Request) -> Launch | None:
    return _determinants(request, True)


def check_loads(dtype: DType) -> None:
    if dtype in PREFIXES:
        batch = packed(1, 4, 4)
        gatherer(dtype, batch)
        for with_logarithm in (False, True):
            _of_diagonals(dtype, batch, with_logarithm)
