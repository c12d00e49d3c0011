"""Systems of linear equations and inverses: LU factorizations, and triangular solves by cuBLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import functional as F
from server.engine import keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.cuda.runtime.launch import pointer
from server.engine.operators import Request
from server.engine.ops.linear_algebra.solvers import not_invertible, singular
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra import solvers as ops
from telegrad_protocol.ops.linear_algebra.matrices import column_major, is_vector

from .batches import IDENTITY, Batch, FailureCheck, Scratch, are_packed, batch_of, gatherer, is_packed, packed
from .libraries import (
    IS_AVAILABLE,
    LEFT,
    LOWER,
    PLAIN,
    PREFIXES,
    RIGHT,
    TRANSPOSED,
    UPPER,
    blas_function,
    blas_on,
    solver_function,
    solver_on,
)
from .lu import Factorization

_MOST_INVERTED = 32
"""The largest matrices that cuBLAS inverts by one kernel."""


class _Substitution:
    """Solves packed systems whose matrices are factorized, in the memory of the right sides."""

    def __init__(self, dtype: DType, batch: Batch, columns: int, batched: bool) -> None:
        self._batch, self._columns, self._batched = batch, columns, batched
        self._itemsize = dtype.itemsize
        self._getrs_batched = blas_function("getrs_batched", dtype)
        self._getrs = solver_function("getrs", dtype)
        self._failed = np.zeros(1, np.int32)

    def run(self, backend: Any, factor: int, table: int, pivots: int, sides: int, unread: int) -> None:
        """Solve; ``table`` has the addresses of all factors, then of all right sides; ``unread`` takes an info."""
        (count, n, _), columns = self._batch[:3], self._columns
        if self._batched:
            self._getrs_batched(
                blas_on(backend), PLAIN, n, columns, table, n, pivots, table + 8 * count, n, self._failed.ctypes.data,
                count,
            )  # fmt: skip
            return
        handle = solver_on(backend)
        step, side_step = n * n * self._itemsize, n * columns * self._itemsize
        for i in range(count):
            self._getrs(
                handle, PLAIN, n, columns, factor + i * step, n, pivots + 4 * i * n, sides + i * side_step, n, unread
            )


def _solving(backend: Any, A: Meta, source: Batch, sides: Batch, keep: int, check: FailureCheck | None) -> Launch:
    """The launch that factorizes A and solves for ``sides``, or for the identity, in the memory of the result."""
    batch = packed(*source[:3])
    count, n = batch[:2]
    factorization = Factorization(A.dtype, batch)
    substitution = _Substitution(A.dtype, batch, sides.columns, factorization.batched)
    gather_factor = gatherer(A.dtype, source, beside_step=n * sides.columns * A.dtype.itemsize)
    gather_sides = gatherer(A.dtype, sides, keep)
    sizes = [16 * count, 4 * count * n, 4, count * batch.size * A.dtype.itemsize]

    def launch(args: Any, outs: Any) -> None:
        scratch, stream = Scratch(backend, sizes), backend.stream
        table, pivots, unread, factor = scratch.at
        result, info = pointer(outs[0]), pointer(outs[1])
        gather_factor(stream, factor, pointer(args[0]), table if factorization.batched else 0, result, info)
        gather_sides(stream, result, 0 if keep == IDENTITY else pointer(args[1]), 0, 0, 0)
        factorization.run(backend, factor, table, pivots, info)
        substitution.run(backend, factor, table, pivots, result, unread)
        if check is not None:
            check.run(info)

    return launch


@prepares(ops.plain_solve, keys.CUDA)
def plain_solve(request: Request) -> Launch | None:
    A, B, left, check_errors = request.args
    result, info = request.outs
    if is_vector(A, B):
        B, made = B.view((*B.shape, 1), (*B.strides, 1)), column_major(result, (*result.shape, 1))
    else:
        made = result
    source, sides = batch_of(A, made.shape[:-2]), batch_of(B, made.shape[:-2])
    if not IS_AVAILABLE or source is None or sides is None or not left or not are_packed((made, info)):
        return None
    check = FailureCheck(request.backend, "linalg.solve", made.shape[:-2], singular) if check_errors else None
    solve = _solving(request.backend, A, source, sides, 0, check)
    return solve if made is result or result.is_contiguous else _elsewhere(request.backend, solve, result)


def _elsewhere(backend: Any, solve: Launch, result: Meta) -> Launch:
    """A launch that solves for vectors one after the other, and brings them into the layout of the result."""
    vectors = result.like()

    def launch(args: Any, outs: Any) -> None:
        made = backend.empty(vectors)
        solve(args, (made, outs[1]))
        F.copy_(outs[0].alias(), made)

    return launch


@prepares(ops.inv_ex, keys.CUDA)
def inv_ex(request: Request) -> Launch | None:
    A, check_errors = request.args
    source = batch_of(A)
    if not IS_AVAILABLE or source is None or not are_packed(request.outs):
        return None
    backend, (count, n) = request.backend, source[:2]
    check = FailureCheck(backend, "linalg.inv", A.shape[:-2], not_invertible) if check_errors else None
    if n > _MOST_INVERTED:
        return _solving(backend, A, source, packed(count, n, n), IDENTITY, check)
    nbytes = n * n * A.dtype.itemsize
    gather, matinv = gatherer(A.dtype, source, beside_step=nbytes), blas_function("matinv_batched", A.dtype)

    def launch(args: Any, outs: Any) -> None:
        table, copy = Scratch(backend, [16 * count, count * nbytes]).at
        inverse, info = pointer(outs[0]), pointer(outs[1])
        gather(backend.stream, copy, pointer(args[0]), table, inverse, info)
        matinv(blas_on(backend), n, table, n, table + 8 * count, n, info, count)
        if check is not None:
            check.run(info)

    return launch


def _as_blas_reads(matrices: Batch) -> tuple[int, int] | None:
    """The transposition and leading dimension with which cuBLAS reads matrices where they lie, if it can."""
    if matrices.row_step == 1 and matrices.column_step >= matrices.rows:
        return PLAIN, matrices.column_step
    if matrices.column_step == 1 and matrices.row_step >= matrices.columns:
        return TRANSPOSED, matrices.row_step
    return None


@prepares(ops.solve_triangular, keys.CUDA)
def solve_triangular(request: Request) -> Launch | None:
    named, out = request.named, request.outs[0]
    A, upper, left = named["A"], named["upper"], named["left"]
    source, sides = batch_of(A, out.shape[:-2]), batch_of(named["B"], out.shape[:-2])
    if not IS_AVAILABLE or source is None or sides is None or not is_packed(out):
        return None
    backend, count, n, itemsize = request.backend, source.number, source.rows, A.dtype.itemsize
    in_place = _as_blas_reads(source) if count == 1 else None
    transposition, leading = in_place or (PLAIN, n)
    triangle = UPPER if upper != (transposition == TRANSPOSED) else LOWER
    rows, columns = out.shape[-2:]
    fixed = (LEFT if left else RIGHT, triangle, transposition, int(named["unitriangular"]), rows, columns)
    one = np.ones(1, NUMPY_DTYPES[A.dtype])
    trsm, trsm_batched = blas_function("trsm", A.dtype), blas_function("trsm_batched", A.dtype)
    gather_sides = gatherer(A.dtype, sides)
    gather_matrices = gatherer(A.dtype, source, beside_step=rows * columns * itemsize)

    def launch(args: Any, outs: Any) -> None:
        matrices, result = pointer(args[0]), pointer(outs[0])
        gather_sides(backend.stream, result, pointer(args[1]), 0, 0, 0)
        if in_place is not None:
            trsm(blas_on(backend), *fixed, one.ctypes.data, matrices, leading, result, rows)
            return
        table, copy = Scratch(backend, [16 * count, count * n * n * itemsize]).at
        gather_matrices(backend.stream, copy, matrices, table, result, 0)
        trsm_batched(
            blas_on(backend), *fixed, one.ctypes.data, table, n, table + 8 * count, rows, count
        )  # fmt: skip

    return launch


def check_loads(dtype: DType) -> None:
    if dtype in PREFIXES:
        gatherer(dtype, packed(1, 4, 4), IDENTITY)
