"""Contracts of operations that show the same memory differently."""

from __future__ import annotations

from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, DimensionError, IndexOutOfRangeError, ShapeError
from telegrad_protocol.layout import Size, broadcast_strides, infer_size, view_strides, wrap_dim, wrap_dims
from telegrad_protocol.meta import Meta

from .contract import op


@op(view_of="input")
def view(input: Meta, *shape: int) -> Meta:
    """View the elements in another shape, in which one size may be -1; refused where only a copy could be shown so."""
    size = infer_size("view", shape, input.numel)
    strides = view_strides(input.shape, input.strides, size)
    if strides is None:
        raise ShapeError(f"view: {input} with strides {input.strides} cannot be seen as {list(size)}; use reshape()")
    return input.view(size, strides)


@op(name="view.dtype", view_of="input", differentiable=False)
def view_dtype(input: Meta, dtype: DType) -> Meta:
    """View the bytes as another element type; the last dimension grows or shrinks with the element size."""
    old, new = input.dtype.itemsize, dtype.itemsize
    if old == new:
        return Meta.of(input.shape, dtype, input.device, input.strides, input.offset)
    if not input.ndim or (input.shape[-1] > 0 and input.strides[-1] != 1):
        raise ShapeError(
            f"view: {input} with strides {input.strides} has no dense last dimension to show as {dtype.name}"
        )
    scaled = [input.shape[-1] * old, input.offset * old, *(s * old for s in input.strides[:-1])]
    if any(length % new for length in scaled):
        raise ShapeError(f"view: {input} with strides {input.strides} does not divide into elements of {dtype.name}")
    last, offset, *strides = (length // new for length in scaled)
    return Meta.of((*input.shape[:-1], last), dtype, input.device, (*strides, 1), offset)


@op(view_of="input", mixed_devices=True)
def view_as(input: Meta, other: Meta) -> Meta:
    """View the elements in the shape of ``other``."""
    return view.rule(input, *other.shape)


def _reshaped(name: str, input: Meta, shape: Size) -> Meta:
    size = infer_size(name, shape, input.numel)
    strides = view_strides(input.shape, input.strides, size)
    return input.like(size) if strides is None else input.view(size, strides)


def reshape_copies(input: Meta, shape: Size) -> bool:
    """Tell whether ``reshape`` has to copy."""
    return view_strides(input.shape, input.strides, infer_size("reshape", shape, input.numel)) is None


@op(view_of="input", copies=reshape_copies)
def reshape(input: Meta, *shape: int) -> Meta:
    """Return the elements in another shape, as a view where that is possible; one size may be -1."""
    return _reshaped("reshape", input, shape)


@op(view_of="input", copies=lambda input, other: reshape_copies(input, other.shape), mixed_devices=True)
def reshape_as(input: Meta, other: Meta) -> Meta:
    """Return the elements in the shape of ``other``, as a view where that is possible."""
    return _reshaped("reshape_as", input, other.shape)


def flattened(input: Meta, start_dim: int, end_dim: int) -> Size:
    """Return the shape after ``flatten``."""
    start, end = wrap_dim("flatten", start_dim, input.ndim), wrap_dim("flatten", end_dim, input.ndim)
    if start > end:
        raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in {input}")
    if not input.ndim:
        return (1,)
    merged = 1
    for size in input.shape[start : end + 1]:
        merged *= size
    return (*input.shape[:start], merged, *input.shape[end + 1 :])


@op(view_of="input", copies=lambda input, start, end: reshape_copies(input, flattened(input, start, end)))
def flatten(input: Meta, start_dim: int = 0, end_dim: int = -1) -> Meta:
    """Join the dimensions from ``start_dim`` to ``end_dim`` into one."""
    return _reshaped("flatten", input, flattened(input, start_dim, end_dim))


@op(view_of="input", copies=lambda input: not input.is_contiguous)
def ravel(input: Meta) -> Meta:
    """Return all elements as a vector without gaps; a view of a contiguous tensor."""
    return input.view((input.numel,), (1,)) if input.is_contiguous else input.like((input.numel,))


def unflattened(input: Meta, dim: int, sizes: Size) -> Size:
    """Return the shape after ``unflatten``."""
    at = wrap_dim("unflatten", dim, input.ndim)
    if not input.ndim or not sizes:
        raise ShapeError(f"unflatten: {input} has no dimension to split into {list(sizes)}")
    return (*input.shape[:at], *infer_size("unflatten", sizes, input.shape[at]), *input.shape[at + 1 :])


@op(view_of="input")
def unflatten(input: Meta, dim: int, sizes: Size) -> Meta:
    """Split dimension ``dim`` into several; one of ``sizes`` may be -1."""
    return view.rule(input, *unflattened(input, dim, sizes))


@op(view_of="input", copies=lambda input: not input.is_contiguous)
def contiguous(input: Meta) -> Meta:
    """Return the tensor itself if its elements lie in row-major order, else a copy whose elements do."""
    return input if input.is_contiguous else input.like()


@op(view_of="input")
def expand(input: Meta, *size: int) -> Meta:
    """View dimensions of size 1 repeated; -1 keeps a size."""
    lead = len(size) - input.ndim
    if lead < 0:
        raise ShapeError(f"expand: {list(size)} has fewer dimensions than {input}")
    target = tuple(input.shape[i - lead] if s == -1 and i >= lead else s for i, s in enumerate(size))
    for i, s in enumerate(target):
        if s < 0 or (i >= lead and input.shape[i - lead] not in (1, s)):
            raise ShapeError(
                f"expand: {input} does not expand to {list(size)}: dimension {i}: The expanded size of the tensor "
                f"({s}) must match the existing size ({input.shape[i - lead] if i >= lead else 1}) at non-singleton "
                f"dimension {i}"
            )
    return input.view(target, broadcast_strides(input.shape, input.strides, target))


@op(view_of="input", mixed_devices=True)
def expand_as(input: Meta, other: Meta) -> Meta:
    """View dimensions of size 1 repeated to the shape of ``other``."""
    return expand.rule(input, *other.shape)


@op(view_of="input")
def broadcast_to(input: Meta, size: Size) -> Meta:
    """View dimensions of size 1 repeated to the shape ``size``."""
    return expand.rule(input, *size)


def reordered(input: Meta, order: Size | list[int]) -> Meta:
    """Return the view with dimensions in ``order``."""
    return input.view((input.shape[d] for d in order), tuple(input.strides[d] for d in order))


@op(view_of="input")
def permute(input: Meta, *dims: int) -> Meta:
    """View the dimensions in another order."""
    order = wrap_dims("permute", dims, input.ndim)
    if len(order) != input.ndim:
        raise ShapeError(f"permute: {list(dims)} does not name every dimension of {input}")
    return reordered(input, order)


def swapped(name: str, input: Meta, dim0: int, dim1: int) -> Meta:
    """Return the view with two dimensions exchanged."""
    a, b = wrap_dim(name, dim0, input.ndim), wrap_dim(name, dim1, input.ndim)
    order = list(range(input.ndim))
    if order:
        order[a], order[b] = order[b], order[a]
    return reordered(input, order)


@op(view_of="input")
def transpose(input: Meta, dim0: int, dim1: int) -> Meta:
    """View two dimensions exchanged."""
    return swapped("transpose", input, dim0, dim1)


@op(view_of="input")
def swapaxes(input: Meta, axis0: int, axis1: int) -> Meta:
    """View two dimensions exchanged, as ``transpose`` does."""
    return swapped("swapaxes", input, axis0, axis1)


@op(view_of="input")
def swapdims(input: Meta, dim0: int, dim1: int) -> Meta:
    """View two dimensions exchanged, as ``transpose`` does."""
    return swapped("swapdims", input, dim0, dim1)


@op(view_of="input")
def t(input: Meta) -> Meta:
    """Transpose a matrix; vectors and scalars are returned as they are."""
    if input.ndim > 2:
        raise ShapeError(f"t: t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D: {input}")
    return reordered(input, tuple(reversed(range(input.ndim))))


_ENDS = ("source", "destination")


def _moved_dims(name: str, what: str, dims: Size, input: Meta) -> Size:
    wrapped = tuple([wrap_dim(name, dim, input.ndim) for dim in dims])
    if len(set(wrapped)) != len(wrapped):
        raise ArgumentError(f"{name}: repeated dim in `{what}` ({list(dims)})")
    return wrapped


def moved(name: str, input: Meta, source: int | Size, destination: int | Size) -> list[int]:
    """Return the order of dimensions that ``movedim`` makes."""
    pairs = [(d,) if isinstance(d, int) else d for d in (source, destination)]
    if len(pairs[0]) != len(pairs[1]):
        raise ShapeError(
            f"{name}: Invalid source or destination dims: source ({list(pairs[0])} dims) should contain "
            "the same number "
            f"of dims as destination ({list(pairs[1])} dims)"
        )
    sources, targets = (_moved_dims(name, what, dims, input) for what, dims in zip(_ENDS, pairs, strict=True))
    if not input.ndim:
        return []
    rest = iter([d for d in range(input.ndim) if d not in sources])
    fixed = dict(zip(targets, sources, strict=True))
    return [fixed[d] if d in fixed else next(rest) for d in range(input.ndim)]


@op(view_of="input")
def movedim(input: Meta, source: int | Size, destination: int | Size) -> Meta:
    """Move dimensions to other places; the others keep their order."""
    return reordered(input, moved("movedim", input, source, destination))


@op(view_of="input")
def moveaxis(input: Meta, source: int | Size, destination: int | Size) -> Meta:
    """Move dimensions to other places, as ``movedim`` does."""
    return reordered(input, moved("moveaxis", input, source, destination))


def squeezed(input: Meta, dim: int | Size | None) -> list[int]:
    """Return the dimensions that ``squeeze`` removes."""
    listed = (
        range(input.ndim) if dim is None else wrap_dims("squeeze", (dim,) if isinstance(dim, int) else dim, input.ndim)
    )
    return [d for d in listed if input.ndim and input.shape[d] == 1]


@op(view_of="input")
def squeeze(input: Meta, dim: int | Size | None = None) -> Meta:
    """Remove all dimensions of size 1, or those of ``dim`` that have size 1."""
    gone = squeezed(input, dim)
    return reordered(input, [d for d in range(input.ndim) if d not in gone])


@op(view_of="input")
def unsqueeze(input: Meta, dim: int) -> Meta:
    """Insert a dimension of size 1 at ``dim``."""
    at = wrap_dim("unsqueeze", dim, input.ndim + 1)
    stride = input.shape[at] * input.strides[at] if at < input.ndim else 1
    return input.view((*input.shape[:at], 1, *input.shape[at:]), (*input.strides[:at], stride, *input.strides[at:]))


@op(view_of="input")
def select(input: Meta, dim: int, index: int) -> Meta:
    """View one index of dimension ``dim``, which is removed."""
    at = wrap_dim("select", dim, input.ndim)
    if not input.ndim:
        raise DimensionError("select: a 0-d tensor has no dimension to select from")
    size = input.shape[at]
    if not -size <= index < size:
        raise IndexOutOfRangeError(
            f"select: index {index} is out of range for dimension {at} of {input}: index {index} is out of bounds for "
            f"dimension {at} with size {size}"
        )
    offset = input.offset + (index % size) * input.strides[at]
    return input.view(_without(input.shape, at), _without(input.strides, at), offset)


def _without(items: Size, at: int) -> Size:
    return items[:at] + items[at + 1 :]


def sliced(input: Meta, dim: int, start: int, length: int, step: int = 1) -> Meta:
    """Return the view of ``length`` elements of ``dim`` from ``start``."""
    offset = input.offset + start * input.strides[dim]
    strides = (*input.strides[:dim], input.strides[dim] * step, *input.strides[dim + 1 :])
    return input.view((*input.shape[:dim], length, *input.shape[dim + 1 :]), strides, offset)


@op(view_of="input")
def narrow(input: Meta, dim: int, start: int, length: int) -> Meta:
    """View ``length`` elements of dimension ``dim`` from ``start``."""
    at = wrap_dim("narrow", dim, input.ndim)
    if not input.ndim:
        raise ShapeError("narrow: narrow() cannot be applied to a 0-dim tensor.")
    size = input.shape[at]
    if length < 0:
        raise ArgumentError(f"narrow: narrow(): length must be non-negative, got {length}")
    if not -size <= start <= size:
        allowed = f"expected to be in range of [{-size}, {size}], but got {start}"
        raise IndexOutOfRangeError(f"narrow: start out of range ({allowed}) for dimension {at} of {input}")
    first = start + size if start < 0 else start
    if first + length > size:
        raise ShapeError(f"narrow: start ({first}) + length ({length}) exceeds dimension size ({size}) of {input}")
    return sliced(input, at, first, length)


def slice_bounds(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Apply Python's rules for slices: negative bounds count from the end, and all are limited to the dimension."""
    first = 0 if start is None else max(start + size, 0) if start < 0 else min(start, size)
    last = size if end is None else max(end + size, 0) if end < 0 else min(end, size)
    return first, max(first, last)


@op(view_of="input", method=False)
def slice(input: Meta, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Meta:
    """View input[start:end:step] along ``dim``."""
    at = wrap_dim("slice", dim, input.ndim)
    if not input.ndim:
        raise ShapeError("slice: a 0-d tensor has no dimension to slice")
    if step <= 0:
        raise ArgumentError(f"slice: step must be greater than zero, got {step}")
    first, last = slice_bounds(start, end, input.shape[at])
    return sliced(input, at, first, -(-(last - first) // step), step)


@op(view_of="input")
def diagonal(input: Meta, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Meta:
    """View the diagonal of two dimensions as a new last one; a positive ``offset`` lies above the main diagonal."""
    if input.ndim < 2:
        raise DimensionError(f"diagonal: {input} has no two dimensions")
    a, b = wrap_dim("diagonal", dim1, input.ndim), wrap_dim("diagonal", dim2, input.ndim)
    if a == b:
        raise ShapeError(f"diagonal: diagonal dimensions cannot be identical {dim1}, {dim2} in {input}")
    rows, columns = input.shape[a] + min(offset, 0), input.shape[b] - max(offset, 0)
    length = max(min(rows, columns), 0)
    shift = (offset * input.strides[b] if offset > 0 else -offset * input.strides[a]) if length else 0
    rest = [d for d in range(input.ndim) if d not in (a, b)]
    strides = (*(input.strides[d] for d in rest), input.strides[a] + input.strides[b])
    return input.view((*(input.shape[d] for d in rest), length), strides, input.offset + shift)


@op(view_of="input")
def unfold(input: Meta, dimension: int, size: int, step: int) -> Meta:
    """View windows of ``size`` elements along ``dimension``, ``step`` apart, as a new last dimension."""
    at = wrap_dim("unfold", dimension, input.ndim)
    length, stride = (input.shape[at], input.strides[at]) if input.ndim else (1, 1)
    if not 0 <= size <= length or step <= 0:
        raise ShapeError(f"unfold: windows of {size} elements, {step} apart, do not fit dimension {at} of {input}")
    if not input.ndim:
        return input.view((size,), (1,))
    shape = (*input.shape[:at], (length - size) // step + 1, *input.shape[at + 1 :], size)
    return input.view(shape, (*input.strides[:at], stride * step, *input.strides[at + 1 :], stride))


@op(view_of="input")
def as_strided(input: Meta, size: Size, stride: Size, storage_offset: int | None = None) -> Meta:
    """View the storage with any sizes, strides and offset, counted in elements."""
    if len(size) != len(stride):
        raise ShapeError(f"as_strided: {len(size)} sizes and {len(stride)} strides")
    if min((*size, *stride, storage_offset or 0), default=0) < 0:
        raise ShapeError(
            f"as_strided: negative size, stride or offset in {list(size)}, {list(stride)}, {storage_offset}"
        )
    return input.view(size, stride, storage_offset)


@op(view_of="input", differentiable=False)
def detach(input: Meta) -> Meta:
    """View the same memory without gradient history."""
    return input


@op(view_of="input", differentiable=False, method=False)
def _unversioned(input: Meta) -> Meta:
    """View the same memory without gradient history; what is written through it does not count as a modification."""
    return input


@op(view_of="input", method=False)
def _with_zero_derivative(input: Meta, others: list[Meta]) -> Meta:
    """View the same memory; its gradient depends on ``input`` and ``others``, by a derivative of zero.

    ``others`` get zeros as their gradient.
    """
    return input


@op(view_of="input", method=False)
def alias(input: Meta) -> Meta:
    """View the same memory, with its gradient history."""
    return input
