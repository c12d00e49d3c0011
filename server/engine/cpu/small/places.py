"""Few elements that indices tell: gathered, selected, scattered, added, and rows that are 1 at one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from server.engine.in_c.small import CONSTANT, Loop, Place
from server.engine.operators import Request
from telegrad_protocol import dtypes
from telegrad_protocol.layout import broadcast_shapes, wrap_dim
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import indexing, scattering

from .elementwise import chosen
from .layouts import argument, bits_of, is_small, result, strides_of, walk
from .registering import small

_MOST_INDICES = 3
_COPIES = 0
_ADDS = {dtypes.float32: 1, dtypes.float64: 2, dtypes.int64: 3}
"""What is done with elements, by the numbers that loops know it by."""


class _Index(NamedTuple):
    """Indices of a dimension, and their strides where they are walked over."""

    place: Place
    length: int
    stride: int
    wraps: bool
    strides: Sequence[int]


def _described(size: int, kind: int, indices: Sequence[_Index]) -> list[int]:
    """What loops are told of indices: as many as they have room for."""
    numbers = [size, kind, len(indices)]
    for index in indices:
        numbers += [index.length, index.stride, int(index.wraps)]
    return numbers + [0, 0, 0] * (_MOST_INDICES - len(indices))


def _are_integers(*indices: Any) -> bool:
    return all([index.__class__ is Meta and index.dtype is dtypes.int64 and is_small(index) for index in indices])


def _taken(shape: Sequence[int], input: Meta, strides: Sequence[int], out: Meta, indices: Sequence[_Index]) -> Loop:
    """Elements of an operand, of which the walk over the result knows the strides where no index leads."""
    walked = walk(shape, strides, strides_of(out, shape), *[index.strides for index in indices])
    places = argument(0, input), result(0, out), *[index.place for index in indices]
    return Loop("take_elements", places, [*_described(out.dtype.itemsize, _COPIES, indices), *walked])


def _element_index(number: int, dim: int, operand: Meta, index: Meta) -> _Index:
    """An index for each element, which is in place of that of a dimension."""
    stride = strides_of(operand, operand.shape)[dim]
    return _Index(argument(number, index), operand.shape[dim], stride, False, strides_of(index, index.shape))


def _without(strides: Sequence[int], dim: int) -> list[int]:
    return [0 if d == dim else stride for d, stride in enumerate(strides)]


@small(scattering.gather)
def gather(request: Request) -> Loop | None:
    """Along one dimension the element that the index tells, at the index's place in the others."""
    input, dim, index = request.args[:3]
    out = request.outs[0]
    if not _are_integers(index) or not is_small(input, out) or not input.ndim or input.ndim != index.ndim:
        return None
    at = wrap_dim("gather", dim, input.ndim)
    strides = _without(strides_of(input, input.shape), at)
    return _taken(out.shape, input, strides, out, [_element_index(2, at, input, index)])


@small(indexing.index_select)
def index_select(request: Request) -> Loop | None:
    """Along one dimension the parts that a vector of indices tells."""
    input, dim, index = request.args
    out = request.outs[0]
    if not _are_integers(index) or not is_small(input, out) or not input.ndim or index.ndim != 1:
        return None
    return _selected(request, wrap_dim("index_select", dim, input.ndim), [(argument(2, index), index)], False)


@small(indexing.index)
def index(request: Request) -> Loop | None:
    """What integers tell for dimensions that follow each other, broadcast against each other."""
    input, listed = request.args
    given = [(d, meta) for d, meta in enumerate(listed) if meta is not None]
    if not request.outs or not given or len(given) > _MOST_INDICES or not _are_integers(*[meta for _, meta in given]):
        return None
    first = given[0][0]
    if [d for d, _ in given] != list(range(first, first + len(given))) or not is_small(input, request.outs[0]):
        return None
    return _selected(request, first, [(argument(1, meta, d), meta) for d, meta in given], True)


def _selected(request: Request, first: int, given: Sequence[tuple[Place, Meta]], wraps: bool) -> Loop | None:
    """The result's dimensions are those before the first index, those of the indices, and those behind them."""
    input, out = request.args[0], request.outs[0]
    own, block = strides_of(input, input.shape), broadcast_shapes("index", *[meta.shape for _, meta in given])
    behind = input.ndim - first - len(given)
    shape = [*input.shape[:first], *block, *input.shape[first + len(given) :]]
    if list(out.shape) != shape:
        return None
    strides = [*own[:first], *[0] * len(block), *own[first + len(given) :]]
    indices = [
        _Index(
            place,
            input.shape[first + k],
            own[first + k],
            wraps,
            [*[0] * first, *strides_of(meta, block), *[0] * behind],
        )
        for k, (place, meta) in enumerate(given)
    ]
    return _taken(shape, input, strides, out, indices)


def _put(
    request: Request, shape: Sequence[int], strides: Sequence[int], values: tuple[int, Any],
    indices: Sequence[_Index], kind: int,
) -> Loop | None:  # fmt: skip
    """Write values into the first operand, or into a copy of it; ``strides`` are the target's where no index leads."""
    out, (number, value) = request.outs[0], values
    is_number = value.__class__ in (bool, int, float)
    if not is_number and (value.__class__ is not Meta or value.dtype is not out.dtype or not is_small(value)):
        return None
    value_strides = [0] * len(shape) if is_number else strides_of(value, value.shape)
    if len(value_strides) != len(shape):
        return None
    described = _described(out.dtype.itemsize, kind, indices)
    walked = walk(shape, strides, value_strides, *[index.strides for index in indices])
    places = [
        result(0, out),
        argument(number, value) if not is_number else Place(CONSTANT),
        *[i.place for i in indices],
    ]
    input = request.args[0]
    numbers = [*described, *walked]
    if request.is_in_place:
        numbers.append(0)
    else:
        places.append(argument(0, input))
        numbers += [1, *walk(input.shape, strides_of(input, input.shape), strides_of(out, out.shape))]
    if is_number:
        places[1] = Place(CONSTANT, 0, -1, len(numbers))
        numbers.append(bits_of(value, out.dtype))
    return Loop("put_elements", places, numbers)


def _scattered(request: Request, source: tuple[int, Any], kind: int) -> Loop | None:
    input, dim, index = request.args[:3]
    out = request.outs[0]
    if not _are_integers(index) or not is_small(input, out) or not input.ndim or input.ndim != index.ndim:
        return None
    at = wrap_dim("scatter", dim, input.ndim)
    strides = _without(strides_of(out, out.shape), at)
    return _put(request, index.shape, strides, source, [_element_index(2, at, out, index)], kind)


@small(scattering.scatter, scattering.scatter_value)
def scatter(request: Request) -> Loop | None:
    """Along one dimension elements, or a number, go where the index tells."""
    return _scattered(request, (3, request.args[3]), _COPIES) if request.named["reduce"] is None else None


@small(scattering.scatter_add)
def scatter_add(request: Request) -> Loop | None:
    """Elements are added, along one dimension, where the index tells."""
    kind = _ADDS.get(request.outs[0].dtype)
    return None if kind is None else _scattered(request, (3, request.args[3]), kind)


def _along_one(request: Request, source: tuple[int, Any], kind: int) -> Loop | None:
    """Parts of a source go, or are added, to the parts along a dimension that a vector of indices tells."""
    input, dim, index = request.args[:3]
    out = request.outs[0]
    if not _are_integers(index) or not is_small(input, out) or not input.ndim or index.ndim != 1:
        return None
    at = wrap_dim("index_add", dim, input.ndim)
    shape = [*input.shape[:at], index.numel, *input.shape[at + 1 :]]
    if source[1].__class__ is Meta and list(source[1].shape) != shape:
        return None
    own = strides_of(out, out.shape)
    own_strides = strides_of(index, index.shape)
    spread = [own_strides[0] if d == at else 0 for d in range(input.ndim)]
    indices = [_Index(argument(2, index), input.shape[at], own[at], False, spread)]
    return _put(request, shape, _without(own, at), source, indices, kind)


@small(indexing.index_add)
def index_add(request: Request) -> Loop | None:
    """Parts of the source are added where a vector of indices tells."""
    kind = _ADDS.get(request.outs[0].dtype)
    is_plain = kind is not None and request.named["alpha"] == 1
    return _along_one(request, (3, request.args[3]), kind or 0) if is_plain else None


@small(indexing.index_copy)
def index_copy(request: Request) -> Loop | None:
    """Parts of the source go where a vector of indices tells."""
    return _along_one(request, (3, request.args[3]), _COPIES)


@small(indexing.index_fill)
def index_fill(request: Request) -> Loop | None:
    """A number goes where a vector of indices tells."""
    value = request.args[3]
    return None if value.__class__ is Meta else _along_one(request, (3, value), _COPIES)


@small(indexing.index_put)
def index_put(request: Request) -> Loop | None:
    """Values, broadcast, go where integers for dimensions that follow each other tell, or are added there."""
    input, listed, values, accumulate = request.args
    out = request.outs[0]
    given = [(d, meta) for d, meta in enumerate(listed) if meta is not None]
    if [meta.dtype for _, meta in given] == [dtypes.bool_] and not accumulate:
        return _put_where(out, input, listed, values)
    kind = _ADDS.get(out.dtype) if accumulate else _COPIES
    if kind is None or not given or len(given) > _MOST_INDICES or not _are_integers(*[meta for _, meta in given]):
        return None
    first = given[0][0]
    if [d for d, _ in given] != list(range(first, first + len(given))) or not is_small(input, out):
        return None
    return _put_at(request, first, given, values, kind)


def _put_where(out: Meta, input: Meta, listed: Sequence[Any], value: Any) -> Loop | None:
    """A number, or the element of a tensor of one, where a mask of all elements is true."""
    is_one = value.__class__ is not Meta or value.ndim == 0
    if len(listed) != 1 or listed[0].shape != out.shape or not is_one:
        return None
    return chosen(out, (1, listed[0]), (2, value), (0, input), 0)


def _put_at(request: Request, first: int, given: Sequence[tuple[int, Meta]], values: Any, kind: int) -> Loop | None:
    input, out = request.args[0], request.outs[0]
    own, block = strides_of(out, out.shape), broadcast_shapes("index_put", *[meta.shape for _, meta in given])
    behind = input.ndim - first - len(given)
    shape = [*input.shape[:first], *block, *input.shape[first + len(given) :]]
    if values.__class__ is Meta and list(values.shape) != shape:
        return None
    strides = [*own[:first], *[0] * len(block), *own[first + len(given) :]]
    indices = [
        _Index(
            argument(1, meta, d), input.shape[d], own[d], True, [*[0] * first, *strides_of(meta, block), *[0] * behind]
        )
        for d, meta in given
    ]
    return _put(request, shape, strides, (2, values), indices, kind)


@small(indexing.one_hot)
def one_hot(request: Request) -> Loop | None:
    """A row for each class that is 1 at the class, else 0."""
    tensor, classes = request.args
    if (
        not request.outs
        or classes <= 0
        or not _are_integers(tensor)
        or not tensor.is_contiguous
        or not is_small(request.outs[0])
    ):
        return None
    return Loop("hot_rows", (argument(0, tensor), result(0, request.outs[0])), [tensor.numel, classes])
