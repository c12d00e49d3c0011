"""Contracts of operations that show the same memory differently, and of those that rearrange it."""

from __future__ import annotations

from ..errors import ShapeError
from ..layout import (
    Size, broadcast_strides, contiguous_strides, extent, infer_size, is_dense, view_strides, wrap_dim, wrap_dims,
)  # fmt: skip
from ..meta import Meta
from .contract import op


@op(view_of="input")
def view(input: Meta, *shape: int) -> Meta:
    """The same elements as ``shape``; one size may be -1. Fails where only a copy could be shown so."""
    size = infer_size("view", shape, input.numel)
    strides = view_strides(input.shape, input.strides, size)
    if strides is None:
        raise ShapeError(f"view: {input} with strides {input.strides} cannot be seen as {list(size)}; use reshape()")
    return input.view(size, strides)


def reshape_copies(input: Meta, shape: Size) -> bool:
    """Whether ``reshape`` has to copy."""
    return view_strides(input.shape, input.strides, infer_size("reshape", shape, input.numel)) is None


@op(view_of="input", copies=reshape_copies)
def reshape(input: Meta, *shape: int) -> Meta:
    """The same elements as ``shape``, a view where that is possible."""
    size = infer_size("reshape", shape, input.numel)
    strides = view_strides(input.shape, input.strides, size)
    return input.like(size) if strides is None else input.view(size, strides)


@op(view_of="input")
def expand(input: Meta, *size: int) -> Meta:
    """Repeat dimensions of size 1 without copying; -1 keeps a size."""
    lead = len(size) - input.ndim
    if lead < 0:
        raise ShapeError(f"expand: {list(size)} has fewer dimensions than {input}")
    target = tuple(input.shape[i - lead] if s == -1 and i >= lead else s for i, s in enumerate(size))
    for i, s in enumerate(target):
        if s < 0 or (i >= lead and input.shape[i - lead] not in (1, s)):
            raise ShapeError(f"expand: {input} does not expand to {list(size)}: dimension {i}")
    return input.view(target, broadcast_strides(input.shape, input.strides, target))


@op(view_of="input")
def permute(input: Meta, *dims: int) -> Meta:
    """Dimensions in another order."""
    order = wrap_dims("permute", dims, input.ndim)
    if len(order) != input.ndim:
        raise ShapeError(f"permute: {list(dims)} does not name every dimension of {input}")
    return input.view((input.shape[d] for d in order), tuple(input.strides[d] for d in order))


@op(view_of="input")
def transpose(input: Meta, dim0: int, dim1: int) -> Meta:
    """Two dimensions swapped."""
    a, b = wrap_dim("transpose", dim0, input.ndim), wrap_dim("transpose", dim1, input.ndim)
    order = list(range(input.ndim))
    if order:
        order[a], order[b] = order[b], order[a]
    return input.view((input.shape[d] for d in order), tuple(input.strides[d] for d in order))


@op(view_of="input")
def t(input: Meta) -> Meta:
    """The transpose of a matrix; vectors and scalars as they are."""
    if input.ndim > 2:
        raise ShapeError(f"t: expected a tensor of at most 2 dimensions, got {input}")
    return input.view(reversed(input.shape), tuple(reversed(input.strides)))


@op(view_of="input")
def as_strided(input: Meta, size: Size, stride: Size, storage_offset: int | None = None) -> Meta:
    """Any view of the storage: sizes, strides and offset in elements."""
    if len(size) != len(stride):
        raise ShapeError(f"as_strided: {len(size)} sizes and {len(stride)} strides")
    if min((*size, *stride, storage_offset or 0), default=0) < 0:
        raise ShapeError(f"as_strided: negative size, stride or offset in {list(size)}, {list(stride)}, {storage_offset}")
    return input.view(size, stride, storage_offset)


@op(out=False, method=False)
def _in_layout(input: Meta, strides: Size) -> Meta:
    """A copy with the given dense strides."""
    if len(strides) != input.ndim or not is_dense(input.shape, strides):
        raise ShapeError(f"_in_layout: strides {list(strides)} are not dense for {input}")
    return input.like(strides=strides)


@op(out=False)
def as_strided_scatter(
    input: Meta, src: Meta, size: Size, stride: Size, storage_offset: int | None = None
) -> Meta:
    """A copy of ``input`` whose ``as_strided`` view is overwritten by ``src``."""
    if src.shape != size:
        raise ShapeError(f"as_strided_scatter: {src} does not fill a view of shape {list(size)}")
    if extent(size, stride) + (storage_offset or 0) > extent(input.shape, input.strides):
        raise ShapeError(f"as_strided_scatter: the view reaches beyond {input}")
    return input.like(strides=input.strides if input.is_dense else contiguous_strides(input.shape))
