"""Parts of jagged tensors, and what is put together of several: selecting, dividing, joining, indexing, writing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import int64
from telegrad_protocol.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    IndexOutOfRangeError,
    NotSupportedError,
)

from .functions import implements, require_nested, require_packed, run
from .padding import require_no_gaps
from .ragged import Ragged
from .shapes import expand_as
from .tensor import NestedTensor


@implements("select")
def select(input: NestedTensor, dim: int, index: int) -> Any:
    """Return one element of the batch, or the part at an index of a dimension that is not ragged."""
    if input.wrapped(dim) == 0:
        return _element(input, index)
    inner = input.inner_dim("select", dim)
    require_no_gaps("select", input)
    return input.like(input._values.select(inner, index), input._dim - (inner < input._dim - 1))


def _element(input: NestedTensor, index: int) -> Tensor:
    count = input._ragged.count
    if not -count <= index < count:
        raise IndexOutOfRangeError(f"index {index} is out of bounds for a batch of {count} elements")
    start, length = input._ragged.starts()[index], input._ragged.listed()[index]
    return input._values.narrow(input._dim - 1, start, length)


@implements("narrow")
def narrow(input: NestedTensor, dim: int, start: Any, length: int) -> NestedTensor:
    """Return a part along a dimension that is neither the batch nor ragged."""
    require_packed("narrow", input)
    return input.like(input._values.narrow(input.inner_dim("narrow", dim), start, length))


@implements("unbind")
def unbind(input: NestedTensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Return the elements of the batch, as views."""
    if dim != 0:
        raise ArgumentError("unbind(): only supported for NestedTensor on dim=0")
    inner, ragged = input._dim - 1, input._ragged
    if ragged.lengths is None:
        return tuple(input._values.split(ragged.listed(), inner))
    pairs = zip(ragged.starts(), ragged.listed(), strict=True)
    return tuple([input._values.narrow(inner, start, length) for start, length in pairs])


@implements("split", "split_with_sizes")
def split(input: NestedTensor, split_size: Any, dim: int = 0) -> tuple[NestedTensor, ...]:
    """Divide a dimension that is neither the batch nor ragged."""
    inner = input.inner_dim("split", dim)
    require_packed("split", input)
    return tuple(map(input.like, input._values.split(split_size, inner)))


@implements("chunk", "unsafe_chunk")
def chunk(input: NestedTensor, chunks: int, dim: int = 0) -> tuple[NestedTensor, ...]:
    """Divide the batch, or a dimension that is not ragged, into as many parts."""
    require_packed("chunk", input)
    if input.wrapped(dim):
        return tuple(map(input.like, input._values.chunk(chunks, input.inner_dim("chunk", dim))))
    lengths, step = input._ragged.listed(), -(-input._ragged.count // chunks)
    groups = [lengths[first : first + step] for first in range(0, len(lengths), max(step, 1))]
    parts = input._values.split([sum(group) for group in groups], 0)
    return tuple(
        [NestedTensor(part, Ragged.of_lengths(group, part)) for part, group in zip(parts, groups, strict=True)]
    )


@implements("cat", "concat", "concatenate")
def cat(tensors: Sequence[Any], dim: int = 0) -> NestedTensor:
    """Put tensors one behind the other along a dimension that is neither the batch nor ragged."""
    first = next(tensor for tensor in tensors if isinstance(tensor, NestedTensor))
    inner = first.inner_dim("cat", dim)
    all_nested = [tensor if isinstance(tensor, NestedTensor) else expand_as(tensor, first) for tensor in tensors]
    _require_alike("cat", all_nested)
    return first.like(run("cat", [tensor._values for tensor in all_nested], inner))


@implements("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> NestedTensor:
    """Put tensors of one shape side by side in a new dimension behind the ragged one."""
    require_nested("stack", *tensors)
    first: NestedTensor = tensors[0]
    _require_alike("stack", tensors)
    return first.like(run("stack", [tensor._values for tensor in tensors], first.inner_dim("stack", dim, 1)))


def _require_alike(name: str, tensors: Sequence[NestedTensor]) -> None:
    if any(tensor.ndim != tensors[0].ndim for tensor in tensors):
        raise ArgumentError(f"{name}(): expected all nested tensors to have the same dim")
    if not all(tensors[0].shares(tensor) for tensor in tensors):
        raise ArgumentError(f"{name}(): expected all nested tensors to have the same nested structure")


@implements("repeat_interleave")
def repeat_interleave(
    input: NestedTensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None
) -> NestedTensor:
    """Repeat every element along a dimension that is neither the batch nor ragged."""
    if dim is None:
        raise NotSupportedError("repeat_interleave: a nested tensor needs a dimension to be named")
    require_packed("repeat_interleave", input)
    inner = input.inner_dim("repeat_interleave", dim)
    return input.like(run("repeat_interleave", input._values, repeats, inner, output_size=output_size))


@implements("masked_select")
def masked_select(input: Any, mask: Any) -> NestedTensor:
    """Return in each element of the batch what a mask chooses; an element of which it chooses none has the length 0."""
    require_nested("masked_select", input, mask)
    if input.ndim > 2:
        raise ArgumentError("masked_select only support 2-D selections currently")
    if input.shape != mask.shape:
        raise ArgumentError(f"Mask with shape {mask.shape} is not compatible with input's shape {input.shape}")
    counts = run("pad", mask._values.cumsum(0), (1, 0))
    return NestedTensor(input._values.masked_select(mask._values), Ragged(counts[input._ragged.offsets]))


def indexed(input: NestedTensor, index: Any) -> Any:
    """Return ``input[index]``: numbers choose elements of the batch, slices and numbers parts of other dimensions."""
    result: Any = input
    dim, parts = 0, _expanded(index if isinstance(index, tuple) else (index,), input.ndim)
    for part in parts:
        if part is None:
            result, dim = result.unsqueeze(dim), dim + 1
        elif isinstance(part, slice):
            result, dim = _sliced(result, dim, part), dim + 1
        elif isinstance(part, Tensor) and part.ndim:
            raise NotSupportedError("index: a nested tensor is indexed by numbers and slices, not by tensors")
        else:
            result = result.select(dim, int(part))
    return result


def _expanded(parts: tuple[Any, ...], ndim: int) -> list[Any]:
    """Return parts of an index with an ellipsis replaced by slices of everything."""
    used = sum(part is not None and part is not Ellipsis for part in parts)
    if used > ndim:
        raise IndexOutOfRangeError(f"too many indices for a nested tensor of {ndim} dimensions")
    expanded: list[Any] = []
    for part in parts:
        expanded += [_WHOLE] * (ndim - used) if part is Ellipsis else [part]
    return expanded


_WHOLE = slice(None)


def _sliced(input: Any, dim: int, part: slice) -> Any:
    if part is _WHOLE:
        return input
    if not isinstance(input, NestedTensor):
        return input[(_WHOLE,) * dim + (part,)]
    inner = input.inner_dim("slice", dim)
    require_packed("slice", input)
    return input.like(input._values[(slice(None),) * inner + (part,)])


@implements("index_put", "_index_put_impl")
def index_put(input: NestedTensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False) -> NestedTensor:
    """Return the tensor with ``values`` at places that one tensor of indices for each of the first dimensions names.

    The first chooses elements of the batch, and the one of the ragged dimension counts within each of them. Without
    that one, all rows of the chosen elements get the same values, whose size is 1 there. An index that is no row of
    its element is out of range, negative ones too; the server finds that later.
    """
    _check(input, indices, values)
    if len(indices) > input._dim:
        places = _places(input, tuple(indices))
        return input.like(run("index_put", input._values, places, values, accumulate))
    require_packed("index_put", input)
    return input.like(_in_all_rows(input, indices[0], values, accumulate))


def _check(input: Any, indices: Sequence[Any], values: Any) -> None:
    require_nested("index_put", input)
    for index in indices:
        if not isinstance(index, Tensor) or isinstance(index, NestedTensor):
            raise ArgumentTypeError(f"index_put: expected tensors as indices, not {type(index).__name__}")
    if not 0 < len(indices) <= input.ndim:
        raise IndexOutOfRangeError(
            f"index_put: got {len(indices)} indices for a nested tensor of {input.ndim} dimensions"
        )
    if isinstance(values, NestedTensor):
        raise ArgumentError("index_put: expected values that are not nested")
    if values.dtype is not input.dtype:
        raise DTypeError(f"index_put: expected values of {input.dtype.name}, got {values._meta}")


def _places(input: NestedTensor, indices: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return indices of the packed values; what lies beyond an element's rows lies beyond all rows."""
    chosen, within, ragged = indices[0], indices[input._dim], input._ragged
    is_row = (within >= 0) & (within < ragged.measures()[chosen])
    rows = run("where", is_row, ragged.offsets[:-1][chosen] + within, input._values.shape[input._dim - 1])
    return (*indices[1 : input._dim], rows, *indices[input._dim + 1 :])


def _in_all_rows(input: NestedTensor, chosen: Tensor, values: Tensor, accumulate: bool) -> Tensor:
    """Return the packed values with the same values in all rows of the chosen elements of the batch."""
    packed, offsets, count = input._values, input._ragged.offsets, input._ragged.count
    numbers, inner = chosen.reshape(-1).to(int64), packed.shape[1:]
    each = values.expand((*chosen.shape, 1, *inner)).reshape(numbers.shape[0], *inner)
    rows = run("arange", packed.shape[0], device=packed.device)
    element = run("searchsorted", offsets[1:].contiguous(), rows, right=True)
    if accumulate:
        return packed + packed.new_zeros((count, *inner)).index_add(0, numbers, each)[element]
    order = run("arange", 1, numbers.shape[0] + 1, device=packed.device)
    last = run("zeros", count, dtype=int64, device=packed.device).scatter_reduce(0, numbers, order, "amax")[element]
    kept = (last == 0).reshape(-1, *[1] * len(inner))
    return run("where", kept, packed, run("cat", [packed.new_zeros((1, *inner)), each])[last])  # type: ignore[no-any-return]
