"""Sums, norms and softmax over stored elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad._tensor.layouts import sparse_coo, sparse_csr
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.errors import DTypeError, NotSupportedError
from telegrad_protocol.layout import wrap_dim

from .coalescing import coalesce
from .conversions import to_coordinates, to_lines
from .elementwise import converted
from .functions import implements, run
from .indices import flat, merged, summed, zeros
from .tensor import SparseTensor

_MOST_GROUPS = 1 << 24
"""Above so many rows, softmax counts those that have stored elements, in one round trip."""


@implements("sum")
def sum(input: SparseTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Return the sum over all elements, or a sparse tensor of sums over some dimensions; dense if none stays sparse."""
    dims = _dimensions(input, dim)
    if not dims:
        return run("sum", input.stored, dtype=dtype)
    if input._kind is sparse_coo:
        return _sum_of_coordinates(input, dims, keepdim, dtype)
    if not keepdim:
        raise NotSupportedError("sum: reductions of compressed layouts need keepdim=True; use to_sparse_coo()")
    if input._kind is not sparse_csr or input.batch_dims or input.dense_dims:
        raise NotSupportedError(f"sum: not supported for this {input._kind.name} tensor; use to_sparse_coo()")
    total = _sum_of_coordinates(to_coordinates(input), dims, True, dtype)
    return to_lines(total, sparse_csr, None) if isinstance(total, SparseTensor) else total.to_sparse_csr()


def _dimensions(input: SparseTensor, dim: Any) -> list[int]:
    if dim is None:
        return []
    given: Sequence[int] = dim if isinstance(dim, (tuple, list)) else [dim]
    return sorted(wrap_dim("sum", one, input.ndim) for one in given)


def _sum_of_coordinates(input: SparseTensor, dims: list[int], keepdim: bool, dtype: Any) -> Any:
    first, (indices, values) = input.sparse_dims, input._parts
    inner = [dim - first + 1 for dim in dims if dim >= first]
    outer = [dim for dim in dims if dim < first]
    if inner:
        values = run("sum", values, inner, keepdim, dtype=dtype)
    elif dtype is not None or values.dtype.category < dtypes.FLOAT:
        values = values.to(dtype or dtypes.int64)
    shape = [1 if dim in dims else size for dim, size in enumerate(input.shape) if keepdim or dim not in dims]
    if len(outer) == first:
        total = run("sum", values, 0)
        return total.reshape(shape)
    if not outer:
        total = SparseTensor(sparse_coo, (indices, values), shape, input._is_coalesced)
        return total if input._is_coalesced else coalesce(total)
    lines = indices.unbind(0)
    kept = [
        run("zeros_like", line) if dim in outer else line
        for dim, line in enumerate(lines)
        if keepdim or dim not in outer
    ]
    return coalesce(SparseTensor(sparse_coo, (run("stack", kept), values), shape))


@implements("any")
def any_(input: SparseTensor, *args: Any, **kwargs: Any) -> Any:
    """Tell whether a stored element is not zero."""
    if args or kwargs:
        raise NotSupportedError("any: not supported over dimensions of a sparse tensor; use to_dense()")
    return run("any", input.stored)


@implements("norm", "linalg_vector_norm", "linalg_norm", "linalg_matrix_norm")
def norm(
    input: SparseTensor, p: Any = 2, dim: Any = None, keepdim: bool = False, *, ord: Any = None, dtype: Any = None
) -> Any:
    """Return the norm of all elements as one vector."""
    power = ord if ord is not None else p
    if dim is not None and _dimensions(input, dim) != list(range(input.ndim)):
        raise NotSupportedError("norm: only the norm of all elements of a sparse tensor is supported; use to_dense()")
    if power == "nuc":
        raise NotSupportedError("norm: singular values of a sparse tensor are not supported; use to_dense()")
    source = coalesce(input) if input._kind is sparse_coo else input
    size = run("linalg_vector_norm", source.stored.reshape(-1), 2 if power == "fro" else power, dtype=dtype)
    return size.reshape((1,) * input.ndim) if keepdim else size


def softmax(input: SparseTensor, dim: int, dtype: Any, is_log: bool) -> SparseTensor:
    """Return the softmax of the stored elements along a dimension; those that are not stored stay so."""
    name = "log_softmax" if is_log else "softmax"
    if not isinstance(input, SparseTensor):
        raise NotSupportedError(f"sparse.{name}: expected a sparse tensor; use nn.functional.{name} for a dense one")
    at = wrap_dim(name, dim, input.ndim)
    input.require(name, sparse_coo)
    if not (dtype or input.dtype).is_floating_point:
        raise DTypeError(f"sparse.{name}: expected floating point numbers, got {input._meta}")
    source = coalesce(input if dtype is None else converted(input, dtype=dtype, device=input.device))
    if at >= source.sparse_dims:
        return source.like(run(name, source.stored, at - source.sparse_dims + 1))
    return source.like(_softmax_of_groups(source.stored, *_groups(source, at), is_log))


def _groups(source: SparseTensor, dim: int) -> tuple[Tensor, int]:
    """Return the row that each stored element is in, and how many rows there are."""
    others = [d for d in range(source.sparse_dims) if d != dim]
    sizes = [source.shape[d] for d in others]
    lines = source._parts[0].unbind(0)
    rows = flat(run("stack", [lines[d] for d in others]), sizes) if others else run("zeros_like", lines[0])
    if math.prod(sizes) <= _MOST_GROUPS:
        return rows, math.prod(sizes)
    keys, places = merged(rows)
    return places, int(keys.shape[0])


def _softmax_of_groups(values: Tensor, rows: Tensor, count: int, is_log: bool) -> Tensor:
    index = rows.reshape(rows.shape[0], *[1] * (values.ndim - 1)).expand(values.shape)
    start = zeros((count, *values.shape[1:]), values)
    top = run("scatter_reduce", start, 0, index, values.detach(), "amax", include_self=False)
    shifted = values - run("index_select", top, 0, rows)
    exponentials = run("exp", shifted)
    total = run("index_select", summed(exponentials, rows, count), 0, rows)
    return shifted - run("log", total) if is_log else exponentials / total  # type: ignore[no-any-return]
