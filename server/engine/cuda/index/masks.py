"""What masks select on GPUs: where elements are not zero, found by running sums, and reads and writes by it.

The running sum of a mask is a sorted line. The place of its n-th element that is set is where that line reaches n,
which is a search; how many there are is the line's last element, for which the host waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.engine import functional as F
from server.engine import keys
from server.engine.operators import Request, Run
from server.engine.registry import finds, prepares
from server.engine.value import Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError, IndexOutOfRangeError, ShapeError
from telegrad_protocol.layout import broadcast_shapes, contiguous_strides
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import indexing as ops
from telegrad_protocol.ops import rearrange

from . import scatter_sums

_ = scatter_sums  # filed before, so that it is asked after

Values = tuple[Any, ...]


def _number(value: Value) -> int:
    """The one element of a value, for which the host waits."""
    return int(value.backend.host_array(value).reshape(()).item())


def _last(line: Value) -> int:
    return _number(F.select(line, 0, -1)) if line.numel else 0


def places_of(mask: Value) -> Value:
    """The positions of elements that are not zero, in row-major order, counted over all elements (int64)."""
    flat = F.reshape(mask.alias(), (-1,))
    ends = F.cumsum(flat if mask.dtype is dtypes.bool_ else F.ne(flat, 0), 0)
    return F.searchsorted(ends, F.arange(1, _last(ends) + 1, device=mask.device))  # type: ignore[no-any-return]


def _coordinates(places: Value, shape: Sequence[int]) -> list[Value]:
    """The index in each dimension of positions that count all elements of a shape."""
    steps = contiguous_strides(tuple(shape))
    found = []
    for dim, (step, size) in enumerate(zip(steps, shape, strict=True)):
        index = places if step == 1 else F.floor_divide(places, step)
        found.append(F.remainder(index, size) if dim else index)
    return found


@finds(ops.nonzero, keys.CUDA)
def nonzero(request: Request, generic: Run) -> Run | None:
    """The indices of elements that are not zero, a column for each dimension."""
    shape = request.args[0].shape
    if not request.args[0].numel or not shape:
        return None

    def run(args: Values) -> Value:
        columns: Value = F.stack(_coordinates(places_of(args[0]), shape), 0)
        count = columns.shape[1]
        return Value(columns.storage, columns.meta.view((count, len(shape)), (1, count)), columns.backend)

    return run


@finds(ops.masked_select, keys.CUDA)
def masked_select(request: Request, generic: Run) -> Run | None:
    """The elements where a mask is set, both broadcast against each other."""
    input, mask = request.args
    shape = broadcast_shapes("masked_select", input.shape, mask.shape)
    if 0 in shape or not shape:
        return None

    def run(args: Values) -> Value:
        places = places_of(F.expand(args[1].alias(), shape))
        return F.take(F.expand(args[0].alias(), shape), places)  # type: ignore[no-any-return]

    return run


def _without_masks(indices: Sequence[Value | None]) -> list[Value | None]:
    """The indices, with the coordinates of what it selects in place of each mask."""
    found: list[Value | None] = []
    for index in indices:
        if index is not None and index.dtype in ops.MASKS:
            found.extend(_coordinates(places_of(index), index.shape))
        else:
            found.append(index and index.alias())
    return found


def _has_plain_masks(request: Request) -> bool:
    """Whether there are masks among the indices, and each has dimensions and elements."""
    _, indices, *_ = request.args
    masks = [index for index in indices if index is not None and index.dtype in ops.MASKS]
    return bool(masks) and all([mask.ndim and mask.numel for mask in masks])


@finds(ops.index, keys.CUDA)
def index(request: Request, generic: Run) -> Run | None:
    """What indices select of which some are masks."""
    if not _has_plain_masks(request):
        return None
    return lambda args: F.index(args[0].alias(), _without_masks(args[1]))


@prepares(ops.index_put, keys.CUDA, elementwise=True)
def index_put(request: Request) -> Launch | None:
    """Writes where masks are set. One number under one mask in front is written without waiting for the host."""
    input, indices, values, accumulate = request.args
    if not _has_plain_masks(request):
        return None
    one = not isinstance(values, Meta) or not values.ndim
    if one and not accumulate and len(indices) == 1 and request.outs[0].dtype is input.dtype:
        return _filling(input.ndim - indices[0].ndim)

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        target = _begun(args[0], outs[0])
        given = args[2].alias() if args[2].__class__ is Value else args[2]
        try:
            F.index_put_(target, _without_masks(args[1]), given, accumulate)
        except ShapeError:
            shape = list(given.shape) if given.__class__ is Value else []
            raise ShapeError(f"index_put: values of shape {shape} do not fit what the masks select") from None

    return launch


@prepares(ops.masked_scatter, keys.CUDA)
def masked_scatter(request: Request) -> Launch | None:
    """A copy of the input with the first elements of the source where a mask is set."""
    input, mask, source = request.args
    if not mask.numel or not input.is_contiguous or not request.outs[0].is_contiguous:
        return None
    shape = request.outs[0].shape

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        places = places_of(F.expand(args[1].alias(), shape))
        if places.numel > source.numel:
            raise ShapeError(f"masked_scatter: the mask selects {places.numel} elements, the source has {source.numel}")
        given = F.narrow(F.reshape(args[2].alias(), (-1,)), 0, 0, places.numel)
        F.put_(_begun(args[0], outs[0]), places, given)

    return launch


def _begun(input: Value, out: Value) -> Value:
    """The result, with the elements of the input."""
    target = out.alias()
    if out.storage is not input.storage:
        F.copy_(target, input.alias())
    return target


def _filling(behind: int) -> Launch:
    """One number wherever a mask is set that has so many dimensions less than what is written to."""

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        mask = args[1][0].alias()
        mask = F.reshape(mask, (*mask.shape, *(1,) * behind))
        set_ = mask if mask.dtype is dtypes.bool_ else F.ne(mask, 0)
        F.masked_fill_(_begun(args[0], outs[0]), set_, args[2].alias() if args[2].__class__ is Value else args[2])

    return launch


@finds(ops.bincount, keys.CUDA)
def bincount(request: Request, generic: Run) -> Run | None:
    """How often each number occurs, without weights: ones that are added up at their numbers."""
    input, weights, least = request.args
    if weights is not None or not input.numel:
        return None

    def run(args: Values) -> Value:
        numbers = F._to_copy(args[0].alias(), dtype=dtypes.int64)
        low, high = F.aminmax(numbers)
        if _number(low) < 0:
            raise IndexOutOfRangeError("bincount: numbers must not be negative")
        counts = F.zeros((max(least, _number(high) + 1),), dtype=dtypes.int64, device=numbers.device)
        return F.scatter_add_(counts, 0, numbers, F.ones_like(numbers))  # type: ignore[no-any-return]

    return run


@finds(rearrange.repeat_interleave_positions, keys.CUDA)
def repeat_interleave_positions(request: Request, generic: Run) -> Run | None:
    """Each position as often as its count says: where the running sum of counts passes a number of the result."""
    counts, length = request.args
    if not counts.numel:
        return None

    def run(args: Values) -> Value:
        given = F._to_copy(args[0].alias(), dtype=dtypes.int64)
        if _number(F.amin(given)) < 0:
            raise ArgumentError("repeat_interleave: counts must not be negative")
        ends = F.cumsum(given, 0)
        found = _last(ends)
        if length not in (None, found):
            raise ShapeError(f"repeat_interleave: the result has {found} parts, not output_size={length}")
        places = F.searchsorted(ends, F.arange(found, device=ends.device), right=True)
        return F._to_copy(places, dtype=counts.dtype)  # type: ignore[no-any-return]

    return run
