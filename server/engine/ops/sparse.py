"""Products with sparse matrices that are stored by rows: where rows begin, columns, and values.

The two products are each other's derivatives. On the CPU SciPy multiplies; the generic kernels gather rows and add them
up. Indices are checked here, since libraries read and write wherever they point.
"""

from __future__ import annotations

import numpy as np

from server.engine import functional as F
from server.engine.array_library import indexing as arrays
from server.engine.array_library.host_libraries import sparse
from server.engine.registry import implements
from telegrad_protocol.errors import ArgumentError, IndexOutOfRangeError, LinearAlgebraError
from telegrad_protocol.ops import sparse as ops

from .complex import conj
from .indexing import copy_input

_PIECE_BYTES = 1 << 22
"""Gathered rows are multiplied in pieces of about so many bytes."""


def check_csr(xp, crow, col, columns):
    """Refuse indices that do not describe matrices of so many columns."""
    if col.size and (int(col.min()) < 0 or int(col.max()) >= columns):
        worst = int(col.min()) if int(col.min()) < 0 else int(col.max())
        raise IndexOutOfRangeError(f"sparse matrix: column {worst} is out of range for {columns} columns")
    is_ordered = not (crow[..., 1:] < crow[..., :-1]).any()
    if not (is_ordered and bool((crow[..., 0] == 0).all()) and bool((crow[..., -1] == col.shape[-1]).all())):
        raise ArgumentError(
            f"sparse matrix: crow_indices must not decrease, from 0 to the {col.shape[-1]} stored elements"
        )


@implements(
    ops._with_gradient_of, movement=True, updates=True, input=lambda grad: grad, leaf=lambda grad: grad
)  # fmt: skip
def _with_gradient_of(xp, input, leaf, *, out):
    copy_input(xp, out, input)


@implements(ops._csr_indices, movement=True)
def _csr_indices(xp, crow, col, columns, *, meta):
    check_csr(xp, crow, col, columns)
    return tuple(array.astype(wanted.dtype.name) for array, wanted in zip((crow, col), meta, strict=True))


def _stacked(xp, crow, col, columns):
    """The indices of a batch of matrices as rows and columns of one that has them on its diagonal."""
    batch, stored = col.shape
    steps = xp.arange(batch).reshape(-1, 1)
    places = xp.arange(stored)
    rows = xp.stack([xp.searchsorted(line[1:], places, side="right") for line in crow])
    return (rows + steps * (crow.shape[1] - 1)).reshape(-1), (col + steps * columns).reshape(-1)


def _flattened(xp, crow, col, batch, columns):
    """Rows and columns of all stored elements: of one matrix, or of a batch on the diagonal of one."""
    if batch is None:
        return xp.searchsorted(crow[1:], xp.arange(col.size), side="right"), col
    crow, col = (xp.broadcast_to(array, (batch, array.shape[-1])) for array in (crow, col))
    return _stacked(xp, crow, col, columns)


def _pieces(count, width, itemsize):
    step = max(1, _PIECE_BYTES // max(1, width * itemsize))
    return [slice(start, start + step) for start in range(0, count, step)]


@implements(
    ops._csr_matmul,
    values=lambda grad, crow, col, other, transposed: (
        F._csr_sampled_matmul(crow, col, conj(other), grad)
        if transposed
        else F._csr_sampled_matmul(crow, col, grad, conj(other))
    ),
    other=lambda grad, crow, col, values, other_meta, columns, transposed: F._csr_matmul(
        crow, col, conj(values), grad, columns, not transposed
    ),
)
def _csr_matmul(xp, crow, col, values, other, columns, transposed, *, out):
    check_csr(xp, crow, col, columns)
    if not out.size or not values.size:
        out[...] = 0
        return
    batch, width = (None if out.ndim == 2 else out.shape[0]), out.shape[-1]
    rows, cols = _flattened(xp, crow, col, batch, columns)
    if batch is not None:
        values = xp.broadcast_to(values, (batch, col.shape[-1])).reshape(-1)
        other = xp.broadcast_to(other, (batch, *other.shape[-2:]))
    sources, targets = (rows, cols) if transposed else (cols, rows)
    dense, result = other.reshape(-1, width), xp.zeros((out.size // width, width), out.dtype)
    for piece in _pieces(values.size, width, out.itemsize):
        terms = values[piece, None] * dense[sources[piece]]
        arrays.reduce_at(xp, result, (targets[piece],), terms, "sum")
    out[...] = result.reshape(out.shape)


@implements(
    ops._csr_sampled_matmul,
    left=lambda grad, crow, col, right, right_meta: F._csr_matmul(
        crow, col, grad, conj(right), right_meta.shape[-2], False
    ),
    right=lambda grad, crow, col, left, right_meta: F._csr_matmul(
        crow, col, grad, conj(left), right_meta.shape[-2], True
    ),
)
def _csr_sampled_matmul(xp, crow, col, left, right, *, out):
    check_csr(xp, crow, col, right.shape[-2])
    if not out.size or not left.shape[-1]:
        out[...] = 0
        return
    batch, width = (None if out.ndim == 1 else out.shape[0]), left.shape[-1]
    rows, cols = _flattened(xp, crow, col, batch, right.shape[-2])
    if batch is not None:
        left, right = (xp.broadcast_to(array, (batch, *array.shape[-2:])) for array in (left, right))
    left, right, flat = left.reshape(-1, width), right.reshape(-1, width), xp.empty(out.size, out.dtype)
    for piece in _pieces(flat.size, 2 * width, out.itemsize):
        flat[piece] = xp.einsum("ij,ij->i", left[rows[piece]], right[cols[piece]])
    out[...] = flat.reshape(out.shape)


def _solved_gradient(grad, crow, col, out, values, transposed):
    """The gradient of a solution with respect to the stored elements: minus the outer product at their indices."""
    back = F._csr_solve(crow, col, conj(values), grad, not transposed)
    pair = (conj(out), back) if transposed else (back, conj(out))
    return -F._csr_sampled_matmul(crow, col, *pair)


@implements(
    ops._csr_solve,
    values=_solved_gradient,
    other=lambda grad, crow, col, values, transposed: F._csr_solve(crow, col, conj(values), grad, not transposed),
)
def _csr_solve(xp, crow, col, values, other, transposed, *, out):
    """The host solves, where SciPy is; its factors are sparse."""
    check_csr(xp, crow, col, crow.size - 1)
    operands = [array if xp is np else array.get() for array in (crow, col, values, other)]
    out[...] = xp.asarray(_solution(*operands, transposed))


def _solution(crow, col, values, other, transposed):
    size = crow.size - 1
    if not size:
        return other
    dtype = np.result_type(values.dtype, np.float64)
    scipy_sparse = sparse()
    matrix = scipy_sparse.csc_array(scipy_sparse.csr_array((values.astype(dtype), col, crow), shape=(size, size)))
    try:
        return scipy_sparse.linalg.splu(matrix).solve(other.astype(dtype), "T" if transposed else "N")
    except RuntimeError as error:
        raise LinearAlgebraError("spsolve: the matrix is singular") from error
