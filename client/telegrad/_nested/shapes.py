"""Views and arrangements of jagged tensors: the dimensions of the batch and of the ragged size stay what they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad._functions.composites import broadcast_tensors as _broadcast
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, NotSupportedError

from .functions import implements, require_packed
from .padding import total_of
from .ragged_size import RaggedSize
from .tensor import NestedTensor


def _sizes(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return sizes that were given one by one, or as one sequence."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


@implements("transpose", "swapaxes", "swapdims")
def transpose(input: NestedTensor, dim0: int, dim1: int) -> NestedTensor:
    """Exchange two dimensions, of which one may be the ragged one."""
    first, second = input.wrapped(dim0), input.wrapped(dim1)
    if input._dim in (first, second) and 0 in (first, second):
        raise ArgumentError("Transpose is not supported on the batch dimension for jagged NT")
    a, b = (input.inner_dim("transpose", dim, takes_ragged=True) for dim in (first, second))
    ragged = {first: second, second: first}.get(input._dim, input._dim)
    return input.like(input._values.transpose(a, b), ragged)


@implements("permute")
def permute(input: NestedTensor, *dims: Any) -> NestedTensor:
    """Put the dimensions behind the batch in another order."""
    order = [input.wrapped(dim) for dim in _sizes(dims)]
    if sorted(order) != list(range(input.ndim)):
        raise ArgumentError(f"permute(): {tuple(_sizes(dims))} is no order of the {input.ndim} dimensions")
    if input._ragged.lengths is not None:
        raise ArgumentError("permute(): not supported on jagged layout nested tensor with holes")
    if order[0] != 0:
        raise ArgumentError("Permute is not supported on the batch dimension for jagged NT")
    return input.like(input._values.permute([dim - 1 for dim in order[1:]]), order.index(input._dim))


@implements("movedim", "moveaxis")
def movedim(input: NestedTensor, source: Any, destination: Any) -> NestedTensor:
    """Move dimensions to other places."""
    sources, places = ([input.wrapped(d) for d in _sizes((given,))] for given in (source, destination))
    order: list[int | None] = [None] * input.ndim
    for dim, place in zip(sources, places, strict=True):
        order[place] = dim
    rest = iter([dim for dim in range(input.ndim) if dim not in sources])
    return permute(input, [next(rest) if dim is None else dim for dim in order])


@implements("unsqueeze")
def unsqueeze(input: NestedTensor, dim: int) -> NestedTensor:
    """Insert a dimension of size 1 behind that of the batch."""
    inner = input.inner_dim("unsqueeze", dim, 1, takes_ragged=True)
    return input.like(input._values.unsqueeze(inner), input._dim + (inner < input._dim))


@implements("squeeze")
def squeeze(input: NestedTensor, dim: Any = None) -> NestedTensor:
    """Take a dimension of size 1 away, which must be named."""
    if not isinstance(dim, int):
        raise NotSupportedError("squeeze: a nested tensor needs one dimension to be named")
    require_packed("squeeze", input)
    inner = input.inner_dim("squeeze", dim)
    return input.like(input._values.squeeze(inner))


def _matches(input: NestedTensor, sizes: Sequence[Any]) -> bool:
    """Whether sizes begin with those of the batch up to the ragged dimension; -1 stands for any."""
    end = input._dim + 1
    pairs = zip(input.shape[:end], sizes[:end], strict=False)
    return len(sizes) >= end and all(
        own == size or (not isinstance(size, RaggedSize) and size == -1) for own, size in pairs
    )


@implements("view", "reshape", "_unsafe_view")
def view(input: NestedTensor, *shape: Any) -> NestedTensor:
    """Return the tensor in a shape that has the same batch and ragged size; -1 may stand for the latter."""
    sizes = _sizes(shape)
    if sizes == input.shape:
        return input.like(input._values.view_as(input._values))
    if input._dim != 1:
        raise ArgumentError(
            f"view(): does not support ragged_idx != 1 except when inp._size == size. inp._size is "
            f"({tuple(input.shape)}) and size is ({sizes})."
        )
    if len(sizes) < 3 or not _matches(input, sizes):
        raise ArgumentError(f"view(): cannot view shape {tuple(input.shape)} as {sizes}")
    return input.like(input._values.reshape((total_of(input), *sizes[2:])))


@implements("view_as", "reshape_as")
def view_as(input: NestedTensor, other: Tensor) -> NestedTensor:
    """Return the tensor in the shape of another one."""
    return view(input, *other.shape)


@implements("flatten")
def flatten(input: NestedTensor, start_dim: int = 0, end_dim: int = -1) -> NestedTensor:
    """Make one dimension of several behind the ragged one."""
    first, last = (input.inner_dim("flatten", dim) + 1 for dim in (start_dim, end_dim))
    if first == last:
        return input
    if first < input._dim < last:
        raise ArgumentError("flatten(): not supported for NestedTensor on ragged dim")
    shape = input.shape
    return view(input, *shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])


@implements("unflatten")
def unflatten(input: NestedTensor, dim: int, sizes: Sequence[int]) -> NestedTensor:
    """Make several dimensions of one that is neither the batch nor ragged."""
    inner = input.inner_dim("unflatten", dim)
    if input._dim != 1:
        raise ArgumentError("unflatten(): not supported for a nested tensor whose ragged dimension is not the second")
    return input.like(input._values.unflatten(inner, sizes))


@implements("expand")
def expand(input: NestedTensor, *size: Any) -> NestedTensor:
    """Repeat dimensions of size 1 without a copy."""
    sizes = _sizes(size)
    if len(sizes) != input.ndim or not _matches(input, sizes):
        raise ArgumentError(f"expand(): cannot expand shape {tuple(input.shape)} -> {sizes}")
    return input.like(input._values.expand([-1 if d == input._dim else sizes[d] for d in range(1, input.ndim)]))


@implements("broadcast_to")
def broadcast_to(input: NestedTensor, size: Sequence[Any]) -> NestedTensor:
    """Repeat dimensions of size 1 as ``expand`` does."""
    return expand(input, *size)


@implements("expand_as")
def expand_as(input: Tensor, other: Tensor) -> NestedTensor:
    """Repeat dimensions of size 1, or those of an ordinary tensor, as the other tensor has them."""
    if isinstance(input, NestedTensor):
        return expand(input, *other.shape)
    require_packed("expand_as", other)  # type: ignore[arg-type]
    return other.like(input.expand(other._values.shape))  # type: ignore[attr-defined,no-any-return]


def broadcast_tensors(tensors: Sequence[Any]) -> tuple[NestedTensor, ...]:
    """Return views of tensors in the shape that all broadcast to; ordinary ones have fewer dimensions."""
    first = next(tensor for tensor in tensors if isinstance(tensor, NestedTensor))
    dense = [tensor._values if isinstance(tensor, NestedTensor) else tensor for tensor in tensors]
    for tensor in tensors:
        if isinstance(tensor, NestedTensor) and not first.shares(tensor):
            raise ArgumentError(f"broadcast_tensors(): the shapes {first.shape} and {tensor.shape} do not fit together")
        if not isinstance(tensor, NestedTensor) and tensor.ndim >= first.ndim:
            raise ArgumentError(
                "broadcast_tensors(): broadcasting nested tensors with dense tensors of equal or higher dim is not "
                "currently supported"
            )
    return tuple(map(first.like, _broadcast(*dense)))
