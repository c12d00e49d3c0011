"""Norms of vectors and matrices."""

from __future__ import annotations

import math

from server.engine import functional as F
from server.engine.autograd.inplace import requires_grad
from server.engine.operators import OPERATORS, Single
from server.engine.registry import comes_to, composite, implements
from telegrad_protocol.dtypes import complex64, complex128, float32, float64
from telegrad_protocol.ops.linear_algebra import matrix_functions as ops

from .spectra import plain_svdvals


@composite(ops.vector_norm)
def vector_norm(x, ord, dim, keepdim, *, dtype):
    return F.norm(x, ord, dim, keepdim, dtype=dtype)


def matrix_norm_of(A, ord, dim, keepdim, dtype):
    """Compute a norm by operations that have derivatives, or by the one that has none where that will do."""
    if ord != "fro" and _is_plain(requires_grad(A), A.meta, dtype):
        return F._linalg_matrix_norm(A, ops.name_of_order(ord), dim, keepdim)
    A = A if dtype is None or dtype is A.dtype else F._to_copy(A, dtype=dtype)
    rows, columns = ops.matrix_dims("linalg.matrix_norm", A.meta, dim)
    if ord in (1, 2, math.inf) and not (A.shape[rows] and A.shape[columns]):
        return F.sum(F.abs(A), (rows, columns), keepdim)
    if ord == "fro":
        return F.norm(A, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        values = F.linalg_svdvals(F.movedim(A, (rows, columns), (-2, -1)))
        result = F.sum(values, -1) if ord == "nuc" else (F.amax if ord == 2 else F.amin)(values, -1)
    else:
        if abs(ord) == math.inf:
            rows, columns = columns, rows
        sums = F.sum(F.abs(A), rows, True)
        result = (F.amax if ord > 0 else F.amin)(sums, columns, True)
    removed = {d % A.ndim for d in dim}
    shape = [1 if d in removed else size for d, size in enumerate(A.shape) if keepdim or d not in removed]
    return F.reshape(result, shape)


@comes_to(ops.vector_norm)
def _only_norm(records, x, ord, dim, keepdim, dtype):
    return Single(OPERATORS["norm"])


@comes_to(ops.matrix_norm_named)
def _only_norm_of_elements(records, A, ord, dim, keepdim, dtype):
    if ord != "fro" or not (dtype is None or dtype is A.dtype):
        return _only_plain_norm(records, A, ord, dim, keepdim, dtype)
    dims = ops.matrix_dims("linalg.matrix_norm", A, dim)
    return Single(OPERATORS["norm"], lambda args: (args[0], 2, dims, args[3], None))


_COMPUTED = frozenset((float32, float64, complex64, complex128))


@comes_to(ops.matrix_norm)
def _only_plain_norm(records, A, ord, dim, keepdim, dtype):
    if not _is_plain(records, A, dtype):
        return None
    return Single(OPERATORS["_linalg_matrix_norm"], lambda args: (args[0], ops.name_of_order(ord), dim, keepdim))


def _is_plain(records, A, dtype):
    is_computed = A.dtype in _COMPUTED and dtype in (None, A.dtype)
    return not records and A.device.type == "cpu" and A.numel and is_computed


@implements(ops.plain_matrix_norm)
def plain_matrix_norm(xp, A, ord, dim, keepdim):
    rows, columns = ops.matrix_dims("linalg.matrix_norm", A, dim)
    if ord in ("nuc", "2", "-2"):
        values = plain_svdvals(xp, xp.moveaxis(A, (rows, columns), (-2, -1)))
        result = values.sum(-1) if ord == "nuc" else values[..., 0 if ord == "2" else -1]
        return xp.expand_dims(result, (min(rows, columns), max(rows, columns))) if keepdim else result
    if ord.endswith("inf"):
        rows, columns = columns, rows
    sums = xp.abs(A).sum(rows, keepdims=True)
    result = (sums.min if ord.startswith("-") else sums.max)(columns, keepdims=True)
    return result if keepdim else xp.squeeze(result, (rows, columns))


@composite(ops.matrix_norm)
def matrix_norm(A, ord, dim, keepdim, *, dtype):
    return matrix_norm_of(A, ord, dim, keepdim, dtype)


@composite(ops.matrix_norm_named)
def matrix_norm_named(A, ord, dim, keepdim, *, dtype):
    return matrix_norm_of(A, ord, dim, keepdim, dtype)


@comes_to(ops.norm)
def _only_norm_of_numbers(records, input, ord, dim, keepdim, dtype):
    is_vector = ord is None or isinstance(dim, int) or (dim is None and input.ndim == 1)
    if not is_vector:
        return None
    return Single(OPERATORS["norm"], lambda args: (args[0], 2 if ord is None else ord, *args[2:]))


@composite(ops.norm)
def norm(input, ord, dim, keepdim, *, dtype):
    if ord is None:
        return F.norm(input, 2, dim, keepdim, dtype=dtype)
    listed = (dim,) if isinstance(dim, int) else dim
    if len(listed) == 2 if listed is not None else input.ndim == 2:
        return matrix_norm_of(input, ord, listed or (0, 1), keepdim, dtype)
    return F.norm(input, ord, dim, keepdim, dtype=dtype)


@composite(ops.norm_named)
def norm_named(input, ord, dim, keepdim, *, dtype):
    return matrix_norm_of(input, ord, dim or (0, 1), keepdim, dtype)


@composite(ops.nuclear_norm)
def nuclear_norm(input, dim, keepdim):
    return matrix_norm_of(input, "nuc", dim or (0, 1), keepdim, None)
