"""Sparse matrices from diagonals, and systems of equations with sparse matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.layouts import Layout, sparse_coo, sparse_csc, sparse_csr
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, NotSupportedError, ShapeError

from .building import empty_coo
from .conversions import to_dense, to_lines, to_sparse
from .functions import implements, run
from .indices import arange
from .tensor import SparseTensor


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Layout | None = None) -> Tensor:
    """Return a sparse matrix with rows of ``diagonals`` as the diagonals that ``offsets`` name; one round trip.

    An element of a diagonal stands in the column of its own number, also where the diagonal begins further down.
    """
    kind = layout or sparse_coo
    if kind not in (sparse_coo, sparse_csr, sparse_csc):
        raise ArgumentError(
            f"spdiags: only output layouts (sparse_coo, sparse_csr, sparse_csc) are supported, got {kind}"
        )
    if len(shape) != 2:
        raise ShapeError("spdiags: output shape must be 2d")
    lines = diagonals.reshape(1, -1) if diagonals.ndim == 1 else diagonals
    steps = offsets.reshape(-1)
    if lines.ndim != 2 or offsets.ndim > 1:
        raise ShapeError(
            f"spdiags: diagonals must be a vector or a matrix, and offsets a vector or number, got {lines._meta}"
        )
    if steps.shape[0] != lines.shape[0]:
        raise ShapeError(
            f"spdiags: number of diagonals ({lines.shape[0]}) does not match the number of offsets ({steps.shape[0]})"
        )
    wanted = [int(step) for step in steps.tolist()]
    if len(set(wanted)) != len(wanted):
        raise ArgumentError("spdiags: offset tensor contains duplicate values")
    rows, columns = int(shape[0]), int(shape[1])
    places, values = [], []
    for line, step in zip(lines.unbind(0), wanted, strict=True):
        first, stop = max(0, step), min(columns, rows + step, line.shape[0])
        if first < stop:
            column = arange(stop - first, lines) + first
            places.append(run("stack", [column - step, column]))
            values.append(line[first:stop])
    if not places:
        return to_sparse(empty_coo((rows, columns), dtype=lines.dtype, device=lines.device), layout=kind)
    made = SparseTensor(sparse_coo, (run("cat", places, 1), run("cat", values)), (rows, columns))
    return made if kind is sparse_coo else to_lines(made, kind, None)


def spsolve(input: Tensor, other: Tensor, *, left: bool = True) -> Tensor:
    """Return x with input @ x = other for a sparse square matrix; one solution for each column of ``other``."""
    if not isinstance(input, SparseTensor):
        raise NotSupportedError("spsolve: expected a sparse matrix; use linalg.solve() for a dense one")
    if not left:
        raise NotSupportedError("spsolve: left=False is not supported; transpose the matrix")
    matrix = to_lines(input, sparse_csr, None)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(f"spsolve: expected a square matrix, got {tuple(input.shape)}")
    crow, col = run("_csr_indices", *matrix._parts[:2], matrix.shape[1])
    dense: Any = other.reshape(-1, 1) if other.ndim == 1 else other
    solution: Tensor = run("_csr_solve", crow, col, matrix.stored, dense, False)
    return solution.reshape(other.shape)


@implements("triangular_solve")
def triangular_solve(
    input: Tensor, A: SparseTensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """Return x with A @ x = input for a triangular matrix by rows, which is made dense, and no copy of A."""
    A.require("triangular_solve", sparse_csr)
    result = run("triangular_solve", input, to_dense(A), upper, transpose, unitriangular)
    return type(result)((result[0], A.stored.new_zeros(0)))
