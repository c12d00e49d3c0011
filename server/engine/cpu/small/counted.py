"""Results of as many elements as data says: where values are true, what is selected there, and counts of classes."""

from __future__ import annotations

from server.engine.in_c.small import RESULT, Counted, Loop, Place
from server.engine.operators import Request
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import broadcast_shapes
from telegrad_protocol.meta import CPU, Meta
from telegrad_protocol.ops import indexing

from .layouts import argument, is_small, strides_of, walk
from .registering import counted

_NOWHERE = Place(RESULT)


def _vector(dtype: DType, count: int) -> Meta:
    return Meta.of((count,), dtype, CPU)


@counted(indexing.nonzero)
def nonzero(request: Request) -> Counted | None:
    """Where the elements of a vector of truth values are true, as a column."""
    input = request.args[0]
    if input.dtype is not dtypes.bool_ or input.ndim != 1 or not is_small(input):
        return None
    loop = Loop("true_places", (_NOWHERE, argument(0, input)), walk(input.shape, strides_of(input, input.shape)))
    return Counted(loop, 8, lambda count: Meta.of((count, 1), dtypes.int64, CPU, (1, count)))


@counted(indexing.masked_select)
def masked_select(request: Request) -> Counted | None:
    """The elements where a mask is true."""
    input, mask = request.args
    shape = broadcast_shapes("masked_select", input.shape, mask.shape)
    if mask.dtype is not dtypes.bool_ or not is_small(input, mask) or not is_small(Meta.of(shape, mask.dtype, CPU)):
        return None
    size, dtype = input.dtype.itemsize, input.dtype
    numbers = [*walk(shape, strides_of(mask, shape), strides_of(input, shape)), size]
    loop = Loop("true_elements", (_NOWHERE, argument(1, mask), argument(0, input)), numbers)
    return Counted(loop, size, lambda count: _vector(dtype, count))


@counted(indexing.bincount)
def bincount(request: Request) -> Counted | None:
    """How often each class is there, in a vector of as many elements as the largest class asks for."""
    input, weights, least = request.args
    is_plain = input.dtype is dtypes.int64 and input.is_contiguous and is_small(input)
    if weights is not None or not is_plain or not 0 <= least <= 1 << 16:
        return None
    loop = Loop("count_classes", (_NOWHERE, argument(0, input)), [input.numel, least])
    return Counted(loop, 8, lambda count: _vector(dtypes.int64, count))
