"""Eigenvalues of Hermitian matrices and singular values by cuSOLVER, many matrices in one call where it has one."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.cuda.gemm.cublaslt import DATA_TYPES
from server.engine.cuda.runtime.launch import pointer
from server.engine.device.cupy_module import cp
from server.engine.operators import Request
from server.engine.ops.linear_algebra.spectra import not_converged, svd_failed
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.dtypes import DType
from telegrad_protocol.ops.linear_algebra import spectra as ops

from . import libraries
from .batches import Batch, FailureCheck, Scratch, batch_of, gatherer, is_packed, looker, packed
from .libraries import IS_AVAILABLE, LOWER, PREFIXES, UPPER, solver_function, solver_on

_VALUES, _VECTORS = 0, 1
_MOST_TOGETHER = 512
"""The largest matrices whose eigenvalues are computed for the whole batch in one call."""
_SMALL = 32
"""The largest matrices that the batched Jacobi method takes."""


@functools.cache
def _parameters() -> int:
    return int(libraries.solver.create_params())


@functools.cache
def _jacobi_of_hermitian() -> int:
    """The parameters of Jacobi's method: eigenvalues are sorted."""
    parameters = int(libraries.solver.create_syevj_info())
    libraries.solver.xsyevj_set_sort_eig(parameters, 1)
    return parameters


@functools.cache
def _jacobi() -> int:
    """The parameters of Jacobi's method: singular values are sorted."""
    parameters = int(libraries.solver.create_gesvdj_info())
    libraries.solver.xgesvdj_set_sort_eig(parameters, 1)
    return parameters


class _Eigenvalues:
    """Computes the eigenvalues of packed Hermitian matrices, and vectors in their memory."""

    def __init__(self, dtype: DType, batch: Batch, upper: bool, with_vectors: bool) -> None:
        self._batch, self._itemsize, self._real = batch, dtype.itemsize, dtype.to_real().itemsize
        self._kind, self._values = DATA_TYPES[dtype], DATA_TYPES[dtype.to_real()]
        self._mode = (_VECTORS if with_vectors else _VALUES, UPPER if upper else LOWER, batch.rows)
        self._together = (batch.number,) if batch.number > 1 and batch.rows <= _MOST_TOGETHER else ()
        self._sizes: tuple[int, int] | None = None
        self._host: Any = None
        """The memory of the host that the last call uses, until somebody has waited for it."""

    def run(self, backend: Any, matrices: int, values: int, info: int) -> bool:
        """Return whether the library may still use memory of the host.

        All are addresses; ``info`` has room for one number per matrix.
        """
        handle, n, together = solver_on(backend), self._batch.rows, self._together
        compute = libraries.solver.xsyev_batched if together else libraries.solver.xsyevd
        fixed = (handle, _parameters(), *self._mode, self._kind)
        if self._sizes is None:
            sizes_of = libraries.solver.xsyev_batched_buffer_size if together else libraries.solver.xsyevd_buffer_size
            self._sizes = sizes_of(*fixed, matrices, n, self._values, values, self._kind, *together)
        on_device, on_host = self._sizes
        work = cp.empty(max(on_device, 1), "b")
        host = self._host = np.empty(max(on_host, 1), np.uint8)
        for number in range(1 if together else self._batch.number):
            compute(
                *fixed, matrices + number * n * n * self._itemsize, n, self._values, values + number * n * self._real,
                self._kind, work.data.ptr, on_device, host.ctypes.data, on_host, info + 4 * number, *together,
            )  # fmt: skip
        return on_host > 0


class _SmallEigenvalues:
    """The same for batches of small matrices, by Jacobi's method, which takes less time for these."""

    def __init__(self, dtype: DType, batch: Batch, upper: bool, with_vectors: bool) -> None:
        name = "heevj_batched" if dtype.is_complex else "syevj_batched"
        self._compute = solver_function(name, dtype)
        self._size_of = solver_function(f"{name}_buffer_size", dtype)
        self._mode = (_VECTORS if with_vectors else _VALUES, UPPER if upper else LOWER, batch.rows)
        self._count, self._itemsize, self._size = batch.number, dtype.itemsize, -1

    def run(self, backend: Any, matrices: int, values: int, info: int) -> bool:
        handle, n, parameters = solver_on(backend), self._mode[2], _jacobi_of_hermitian()
        if self._size < 0:
            self._size = self._size_of(handle, *self._mode, matrices, n, values, parameters, self._count)
        work = cp.empty(max(self._size, 1) * self._itemsize, "b")
        self._compute(
            handle, *self._mode, matrices, n, values, work.data.ptr, self._size, info, parameters, self._count
        )  # fmt: skip
        return False


def _eigenvalues_of(dtype: DType, batch: Batch, upper: bool, with_vectors: bool) -> _Eigenvalues | _SmallEigenvalues:
    is_small = batch.number > 1 and batch.rows <= _SMALL
    return (_SmallEigenvalues if is_small else _Eigenvalues)(dtype, batch, upper, with_vectors)


@prepares(ops.eigh, keys.CUDA)
def eigh(request: Request) -> Launch | None:
    A, triangle = request.args
    source, (values, vectors), backend = batch_of(A), request.outs, request.backend
    if not IS_AVAILABLE or source is None or not is_packed(vectors) or not values.is_contiguous:
        return None
    gather, eigenvalues = gatherer(A.dtype, source), _eigenvalues_of(A.dtype, source, triangle in "Uu", True)

    check = FailureCheck(backend, "linalg.eigh", values.shape[:-1], not_converged, values)

    def launch(args: Any, outs: Any) -> None:
        at_values, at_vectors = map(pointer, outs)
        info = Scratch(backend, [4 * source.number]).at[0]
        gather(backend.stream, at_vectors, pointer(args[0]), 0, 0, info)
        uses_host = eigenvalues.run(backend, at_vectors, at_values, info)
        check.run(info, at_values, uses_host)

    return launch


@prepares(ops.plain_eigvalsh, keys.CUDA)
def plain_eigvalsh(request: Request) -> Launch | None:
    A, triangle = request.args
    source, values, backend = batch_of(A), request.outs[0], request.backend
    if not IS_AVAILABLE or source is None or not A.numel or not values.is_contiguous:
        return None
    gather, eigenvalues = gatherer(A.dtype, source), _eigenvalues_of(A.dtype, source, triangle in "Uu", False)
    check = FailureCheck(backend, "linalg.eigvalsh", values.shape[:-1], not_converged, values)

    def launch(args: Any, outs: Any) -> None:
        info, copy = Scratch(backend, [4 * source.number, A.numel * A.dtype.itemsize]).at
        gather(backend.stream, copy, pointer(args[0]), 0, 0, info)
        uses_host = eigenvalues.run(backend, copy, pointer(outs[0]), info)
        check.run(info, pointer(outs[0]), uses_host)

    return launch


class _SingularValues:
    """Computes the singular values of packed matrices, which it overwrites, by Jacobi's method.

    U is m x m and V n x n, or both have min(m, n) columns if ``thin``.
    """

    def __init__(self, dtype: DType, batch: Batch, full: bool, with_vectors: bool) -> None:
        self._batch, self._mode, self._dtype = batch, _VECTORS if with_vectors else _VALUES, dtype
        _, m, n = batch[:3]
        self._together = m <= _SMALL and n <= _SMALL
        self.thin = not full and not self._together
        k = min(m, n)
        self.columns = (k, k) if self.thin else (m, n)
        self._steps = tuple(
            [dtype.itemsize * size for size in (m * n, m * self.columns[0], n * self.columns[1])]
        ) + (dtype.to_real().itemsize * k,)  # fmt: skip
        self._size = -1

    def run(self, backend: Any, matrices: int, values: int, left: int, right: int, info: int) -> None:
        """All are addresses; ``right`` is where V goes."""
        handle, (count, m, n), mode = solver_on(backend), self._batch[:3], self._mode
        name = "gesvdj_batched" if self._together else "gesvdj"
        fixed = (handle, mode, m, n) if self._together else (handle, mode, int(self.thin), m, n)
        together = (count,) if self._together else ()
        if self._size < 0:
            self._size = solver_function(f"{name}_buffer_size", self._dtype)(
                *fixed, matrices, m, values, left, m, right, n, _jacobi(), *together
            )
        work, compute = cp.empty(self._size * self._dtype.itemsize, "b"), solver_function(name, self._dtype)
        step, left_step, right_step, values_step = self._steps
        for i in range(1 if together else count):
            compute(
                *fixed, matrices + i * step, m, values + i * values_step, left + i * left_step, m,
                right + i * right_step, n, work.data.ptr, self._size, info + 4 * i, _jacobi(), *together,
            )  # fmt: skip


@prepares(ops.svd, keys.CUDA)
def svd(request: Request) -> Launch | None:
    A, full = request.args[:2]
    (U, S, Vh), source, backend, dtype = request.outs, batch_of(A), request.backend, A.dtype
    if not IS_AVAILABLE or source is None or not (is_packed(U) and is_packed(Vh) and S.is_contiguous):
        return None
    count, m, n = source[:3]
    computed = _SingularValues(dtype, source, full, True)
    left, right = computed.columns
    gather = gatherer(dtype, source)
    is_direct = left == U.shape[-1]
    gather_left = gatherer(dtype, packed(count, m, left).cut(m, U.shape[-1]))
    gather_right = gatherer(dtype, packed(count, n, right).transposed.cut(Vh.shape[-2], n), conjugate=True)
    sizes = [4 * count, *[count * size * dtype.itemsize for size in (m * n, n * right, 0 if is_direct else m * left)]]
    check = FailureCheck(backend, "linalg.svd", S.shape[:-1], svd_failed, S)

    def launch(args: Any, outs: Any) -> None:
        (at_u, at_s, at_vh), stream = map(pointer, outs), backend.stream
        info, copy, v, whole_u = Scratch(backend, sizes).at
        gather(stream, copy, pointer(args[0]), 0, 0, info)
        computed.run(backend, copy, at_s, at_u if is_direct else whole_u, v, info)
        if not is_direct:
            gather_left(stream, at_u, whole_u, 0, 0, 0)
        gather_right(stream, at_vh, v, 0, 0, 0)
        check.run(info, at_s)

    return launch


@prepares(ops.plain_svdvals, keys.CUDA)
def plain_svdvals(request: Request) -> Launch | None:
    A, S, backend = request.args[0], request.outs[0], request.backend
    source = batch_of(A)
    if not IS_AVAILABLE or source is None or not A.numel or not S.is_contiguous:
        return None
    count, m, n = source[:3]
    computed, gather = _SingularValues(A.dtype, source, False, False), gatherer(A.dtype, source)
    left, right = computed.columns
    sizes = [4 * count, *[count * size * A.dtype.itemsize for size in (m * n, m * left, n * right)]]
    check = FailureCheck(backend, "linalg.svdvals", S.shape[:-1], svd_failed, S)

    def launch(args: Any, outs: Any) -> None:
        info, copy, u, v = Scratch(backend, sizes).at
        gather(backend.stream, copy, pointer(args[0]), 0, 0, info)
        computed.run(backend, copy, pointer(outs[0]), u, v, info)
        check.run(info, pointer(outs[0]))

    return launch


def check_loads(dtype: DType) -> None:
    if dtype in PREFIXES:
        gatherer(dtype, packed(1, 4, 4), conjugate=True)
        looker(dtype.to_real(), 1, 4)
