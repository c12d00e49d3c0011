"""Constructors of jagged tensors: from lists of tensors, from packed values, from a padded tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.autograd_graph import OperationName, OperationNode
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import int64
from telegrad_protocol.errors import ArgumentError

from .functions import run
from .ragged import Ragged
from .tensor import NestedTensor


def require_alike(tensors: Sequence[Tensor]) -> None:
    """Raise ArgumentError unless there are tensors, and all of one dtype, device and number of dimensions."""
    if not tensors:
        raise ArgumentError("Cannot construct a nested tensor from an empty tensor list")
    for what, seen in (
        ("have the same dtype", {tensor.dtype for tensor in tensors}),
        ("be on the same device", {tensor.device for tensor in tensors}),
        ("have the same dim", {tensor.ndim for tensor in tensors}),
    ):
        if len(seen) > 1:
            raise ArgumentError(f"When constructing a nested tensor, all tensors in list must {what}")
    if tensors[0].ndim == 0:
        raise ArgumentError("Cannot construct a nested tensor from a list of zero-dim tensors")


def _ragged_dim(tensors: Sequence[Tensor]) -> int:
    """Return the one dimension in which tensors differ; the first where they do not."""
    first = tensors[0].shape
    differing = [d for d in range(len(first)) if any(tensor.shape[d] != first[d] for tensor in tensors)]
    if len(differing) > 1:
        raise ArgumentError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout. Note that the jagged layout "
            "only allows for a single ragged dimension. For example: (B, *, D_0, D_1, ..., D_N), with ragged * dim."
        )
    return differing[0] if differing else 0


def of_list(tensors: Sequence[Tensor], dtype: Any, device: Any) -> NestedTensor:
    """Return a nested tensor of copies of tensors, through which gradients flow to them."""
    require_alike(tensors)
    dim = _ragged_dim(tensors)
    values = run("cat", list(tensors), dim)
    values = values.to(values.device if device is None else device, values.dtype if dtype is None else dtype)
    made = NestedTensor(values, Ragged.of_lengths([int(tensor.shape[dim]) for tensor in tensors], values), dim + 1)
    return named(made, "NestedViewFromJaggedBackward0")


def named(made: NestedTensor, name: str) -> NestedTensor:
    """Show the operation that has made the values under PyTorch's name."""
    node = made._values._node
    if isinstance(node, OperationNode) and isinstance(node.name, OperationName):
        shown = OperationName(name)
        shown.op = node.name.op
        node.name = shown
    return made


def view_of(
    values: Tensor, offsets: Tensor, lengths: Tensor | None = None, dim: int = 1, shortest: int | None = None,
    longest: int | None = None,
) -> NestedTensor:  # fmt: skip
    """Return a nested tensor that is a view of packed values."""
    if isinstance(values, NestedTensor):
        raise ArgumentError("nested: the values of a nested tensor must be an ordinary tensor")
    if offsets.dtype is not int64:
        offsets = offsets.to(int64)
    return named(
        NestedTensor(values.view_as(values), Ragged(offsets, lengths, shortest, longest), dim),
        "NestedViewFromJaggedBackward0",
    )


def of_dense(batch: Tensor, dtype: Any, device: Any) -> NestedTensor:
    """Return a nested tensor of the elements of a batch, which are of one size."""
    values = batch.contiguous().flatten(0, 1)
    values = values.to(batch.device if device is None else device, batch.dtype if dtype is None else dtype)
    ragged = Ragged.of_lengths([int(batch.shape[1])] * int(batch.shape[0]), values)
    return named(NestedTensor(values, ragged), "NestedViewFromJaggedBackward0")


def narrowed(tensor: Tensor, starts: Tensor, lengths: Tensor) -> NestedTensor:
    """Return in each element of a batch the rows from a start on, as many as its length says: a view with gaps.

    Reads starts and lengths, in two round trips: only they tell whether there are gaps.
    """
    count = int(tensor.shape[0])
    if tensor.ndim < 2:
        raise ArgumentError(f"narrow: expected a batch of tensors, got {tensor._meta}")
    if any(part.ndim > 1 or (part.ndim and part.shape[0] not in (1, count)) for part in (starts, lengths)):
        raise ArgumentError(
            "When constructing a jagged nested tensor using narrow(), your start and length must be Tensors that "
            "broadcast to input.shape[0]"
        )
    begins, sizes = starts.expand(count), lengths.expand(count)
    read_begins, read_sizes, size = begins.tolist(), sizes.tolist(), int(tensor.shape[1])
    values = tensor.view(-1, *tensor.shape[2:])
    places = [size * row + begin for row, begin in enumerate(read_begins)]
    ends = [place + length for place, length in zip(places, read_sizes, strict=True)]
    if ends[:-1] == places[1:] and ends[0] == size:
        whole = values[places[0] : ends[-1]]
        return NestedTensor(whole, Ragged.of_lengths(read_sizes, whole))
    bounds = run("arange", count, device=tensor.device) * size + begins
    offsets = run("cat", [bounds, (bounds[-1] + sizes[-1]).unsqueeze(0)])
    ragged = Ragged(offsets, sizes, min(read_sizes), max(read_sizes), read_sizes)
    return NestedTensor(values, ragged)
