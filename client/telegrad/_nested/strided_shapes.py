"""Views, parts and joins of nested tensors of the older layout; transposes are copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, IndexOutOfRangeError

from .functions import run
from .strided import StridedNestedTensor as Nested
from .strided_table import implements


@implements("select")
def _select(input: Nested, dim: int, index: int) -> Any:
    if input.wrapped(dim) == 0:
        count = len(input._sizes)
        if not -count <= index < count:
            raise IndexOutOfRangeError(f"index {index} is out of bounds for a batch of {count} elements")
        return input.parts()[index]
    inner = input.inner_dim("select", dim)
    return Nested.of([part.select(inner, index) for part in input.parts()])


@implements("unbind")
def _unbind(input: Nested, dim: int = 0) -> tuple[Tensor, ...]:
    if dim != 0:
        raise ArgumentError(f"NestedTensor can only be unbound along dimension 0 got dimension {dim} instead.")
    return tuple(input.parts())


@implements("transpose", "swapaxes", "swapdims")
def _transpose(input: Nested, dim0: int, dim1: int) -> Nested:
    first, second = (input.inner_dim("transpose", dim) for dim in (dim0, dim1))
    return Nested.of([part.transpose(first, second) for part in input.parts()])


@implements("unsqueeze")
def _unsqueeze(input: Nested, dim: int) -> Nested:
    inner = input.inner_dim("unsqueeze", dim, 1)
    return Nested(input._buffer, [(*size[:inner], 1, *size[inner:]) for size in input._sizes])


@implements("squeeze")
def _squeeze(input: Nested, dim: int | None = None) -> Nested:
    if dim is None:
        raise ArgumentError("squeeze(): for nested tensors, squeeze without the dim argument is not supported")
    inner = input.inner_dim("squeeze", dim)
    return Nested(
        input._buffer, [(*size[:inner], *(s for s in size[inner : inner + 1] if s != 1), *size[inner + 1 :])
                        for size in input._sizes],
    )  # fmt: skip


@implements("view", "reshape")
def _view(input: Nested, *shape: Any) -> Nested:
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if not sizes or sizes[0] not in (len(input._sizes), -1):
        raise ArgumentError(f"view: expected the size of the batch, {len(input._sizes)}, first in {sizes}")
    made = [_resized(size, sizes[1:]) for size in input._sizes]
    return Nested(input._buffer, made)


def _resized(size: tuple[int, ...], wanted: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of one tensor of the batch: -1 keeps the size that the tensor has in the dimension."""
    shape = [size[d] if new == -1 and d < len(size) else new for d, new in enumerate(wanted)]
    if math.prod(shape) != math.prod(size) or -1 in shape:
        raise ArgumentError(f"view: a tensor of the batch of shape {size} cannot be viewed as {tuple(wanted)}")
    return tuple(shape)


@implements("reshape_as", "view_as")
def _view_as(input: Nested, other: Nested) -> Nested:
    if not isinstance(other, Nested) or [*map(math.prod, input._sizes)] != [*map(math.prod, other._sizes)]:
        raise ArgumentError("reshape_as: expected a nested tensor with as many elements in each tensor of the batch")
    return Nested(input._buffer, other._sizes)


@implements("chunk")
def _chunk(input: Nested, chunks: int, dim: int = 0) -> tuple[Nested, ...]:
    if input.wrapped(dim) != input.ndim - 1:
        raise ArgumentError("Chunk for nested tensors is currently only supported for the last dimension.")
    pieces = [part.chunk(chunks, -1) for part in input.parts()]
    return tuple([Nested.of(group) for group in zip(*pieces, strict=True)])


@implements("cat", "concat", "concatenate")
def _cat(tensors: Sequence[Any], dim: int = 0) -> Nested:
    if not all(isinstance(tensor, Nested) for tensor in tensors):
        raise ArgumentError("cat: expected each tensor in given list to be nested")
    if tensors[0].wrapped(dim) == 0:
        sizes = [size for tensor in tensors for size in tensor._sizes]
        return Nested(run("cat", [tensor._buffer for tensor in tensors]), sizes)
    inner = tensors[0].inner_dim("cat", dim)
    groups = zip(*[tensor.parts() for tensor in tensors], strict=True)
    return Nested.of([run("cat", list(group), inner) for group in groups])
