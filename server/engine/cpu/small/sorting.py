"""Orders of few elements along a dimension, and products of vectors of three elements."""

from __future__ import annotations

from server.engine.in_c.small import Loop
from server.engine.operators import Request
from telegrad_protocol import dtypes
from telegrad_protocol.layout import wrap_dim
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import sorting
from telegrad_protocol.ops.linear_algebra import linalg

from .layouts import argument, is_small, result, strides_of, walk
from .registering import small

_LOOPS = {dtypes.float32: "sort_f32", dtypes.int64: "sort_narrow_i64"}
_CROSS = {dtypes.float32: "cross_f32", dtypes.float64: "cross_f64"}


def _order(input: Meta, dim: int, is_descending: bool, values: Meta | None, indices: Meta) -> Loop | None:
    """The elements of rows in order, as many as the results hold, and where they were."""
    if input.dtype not in _LOOPS or not input.ndim or not is_small(input, indices):
        return None
    at = wrap_dim("sort", dim, input.ndim)
    shape = [1 if d == at else size for d, size in enumerate(input.shape)]
    own, to_indices = strides_of(input, input.shape), strides_of(indices, indices.shape)
    to_values = to_indices if values is None else strides_of(values, values.shape)
    numbers = [
        *(walk(input.shape, own) if input.dtype is dtypes.int64 else ()),
        *walk(shape, own, to_values, to_indices),
        *(input.shape[at], int(is_descending), indices.shape[at]),
        *(own[at], to_values[at], to_indices[at], int(values is not None)),
    ]
    targets = (result(0, indices),) * 2 if values is None else (result(0, values), result(1, indices))
    return Loop(_LOOPS[input.dtype], (argument(0, input), *targets), numbers)


@small(sorting.sort)
def sort(request: Request) -> Loop | None:
    """Rows in order, and where their elements were."""
    input, dim, is_descending = request.args[:3]
    return _order(input, dim, is_descending, *request.outs)


@small(sorting.argsort)
def argsort(request: Request) -> Loop | None:
    """Where the elements of rows are in order."""
    input, dim, is_descending = request.args[:3]
    return _order(input, dim, is_descending, None, request.outs[0])


@small(sorting.topk)
def topk(request: Request) -> Loop | None:
    """The first elements in order."""
    input, _, dim, is_largest = request.args[:4]
    return _order(input, dim, is_largest, *request.outs)


@small(linalg.cross)
def cross(request: Request) -> Loop | None:
    """Products of vectors of three elements."""
    input, other, dim = request.args
    out = request.outs[0]
    loop = _CROSS.get(out.dtype)
    if loop is None or not (input.dtype is other.dtype is out.dtype and is_small(input, other, out)):
        return None
    at = out.shape.index(3) if dim is None else wrap_dim("cross", dim, out.ndim)
    strides = [strides_of(meta, out.shape) for meta in (input, other, out)]
    shape = [1 if d == at else size for d, size in enumerate(out.shape)]
    numbers = [*walk(shape, *strides), *[own[at] for own in strides]]
    return Loop(loop, (argument(0, input), argument(1, other), result(0, out)), numbers)
