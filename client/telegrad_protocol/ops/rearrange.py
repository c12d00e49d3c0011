"""Contracts of operations that join tensors, and of those that copy them rearranged."""

from __future__ import annotations

from collections.abc import Sequence

from telegrad_protocol.dtypes import int32, int64, result_type
from telegrad_protocol.errors import ArgumentError, DimensionError, ShapeError
from telegrad_protocol.layout import Size, extent, overlaps_itself, wrap_dim, wrap_dims
from telegrad_protocol.memory_format import channels_last_strides, is_channels_last
from telegrad_protocol.meta import Meta

from .contract import alias, device_of, op
from .creation import like
from .views import diagonal, select, slice


@op(out=False, method=False)
def _in_layout(input: Meta, strides: Size) -> Meta:
    """Return the meta of a copy with the given strides, none of which overlap."""
    if len(strides) != input.ndim or min(strides, default=0) < 0 or overlaps_itself(input.shape, strides):
        raise ShapeError(f"_in_layout: strides {list(strides)} do not keep the elements of {input} apart")
    return input.like(strides=strides)


def _is_legacy_empty(meta: Meta) -> bool:
    return meta.shape == (0,)


def _unlike(meta: Meta, model: Meta, at: int, number: int) -> str:
    """Return the words that PyTorch has for tensors that do not fit to each other, which programs look for."""
    if len(meta.shape) != len(model.shape):
        return f"Tensors must have same number of dimensions: got {len(model.shape)} and {len(meta.shape)}"
    expected, got = next((a, b) for a, b in zip(_rest(model, at), _rest(meta, at), strict=True) if a != b)
    return (
        f"Sizes of tensors must match except in dimension {at}. Expected size {expected} but got size {got} for tensor "
        f"number {number} in the list"
    )


def joined(name: str, tensors: Sequence[Meta], dim: int) -> tuple[int, list[int]]:
    """Return the dimension of ``cat``, and the tensors' lengths in it; tensors of shape [0] fit everywhere."""
    if not tensors:
        raise ArgumentError(f"{name}: expected a non-empty list of Tensors: {name} expects a non-empty TensorList")
    if any(not t.ndim for t in tensors):
        raise ShapeError(f"{name}: zero-dimensional tensors cannot be concatenated; use stack()")
    model = next((t for t in tensors if not _is_legacy_empty(t)), tensors[0])
    at = wrap_dim(name, dim, model.ndim)
    for number, meta in enumerate(tensors):
        fits = len(meta.shape) == model.ndim and _rest(meta, at) == _rest(model, at)
        if not fits and not _is_legacy_empty(meta):
            raise ShapeError(
                f"{name}: {meta} and {model} differ in a dimension other than {at}: {_unlike(meta, model, at, number)}"
            )
    return at, [0 if _is_legacy_empty(t) else t.shape[at] for t in tensors]


def _rest(meta: Meta, at: int) -> Size:
    return meta.shape[:at] + meta.shape[at + 1 :]


def _cat(name: str, tensors: Sequence[Meta], dim: int) -> Meta:
    at, lengths = joined(name, tensors, dim)
    model = next((t for t in tensors if not _is_legacy_empty(t)), tensors[0])
    shape = (*model.shape[:at], sum(lengths), *model.shape[at + 1 :])
    strides = channels_last_strides(shape) if all(is_channels_last(t.shape, t.strides) for t in tensors) else None
    return Meta.of(shape, result_type(tensors), device_of(tensors), strides)


@op(method=False, out_rules=("separate",))
def cat(tensors: list[Meta], dim: int = 0) -> Meta:
    """Concatenate tensors along ``dim``."""
    return _cat("cat", tensors, dim)


@op(method=False, out_rules=("separate",))
def concat(tensors: list[Meta], dim: int = 0) -> Meta:
    """Concatenate tensors along ``dim``, as ``cat`` does."""
    return _cat("concat", tensors, dim)


@op(method=False, out_rules=("separate",))
def concatenate(tensors: list[Meta], dim: int = 0) -> Meta:
    """Concatenate tensors along ``dim``, as ``cat`` does."""
    return _cat("concatenate", tensors, dim)


@op(method=False, out_rules=("separate",))
def stack(tensors: list[Meta], dim: int = 0) -> Meta:
    """Stack tensors of one shape along a new dimension ``dim``."""
    if not tensors:
        raise ArgumentError("stack: expected at least one tensor")
    shape = tensors[0].shape
    at = wrap_dim("stack", dim, len(shape) + 1)
    for number, meta in enumerate(tensors):
        if meta.shape != shape:
            raise ShapeError(
                f"stack: {meta} and {tensors[0]} differ in shape: stack expects each tensor to be equal size, but got "
                f"{list(shape)} at entry 0 and {list(meta.shape)} at entry {number}"
            )
    return Meta.of((*shape[:at], len(tensors), *shape[at:]), result_type(tensors), device_of(tensors))


def padded(meta: Meta, ndim: int) -> Meta:
    """Return ``meta`` as ``atleast_1d``, ``atleast_2d`` or ``atleast_3d`` show it."""
    shape = meta.shape
    if ndim >= 1 and not shape:
        shape = (1,)
    if ndim >= 2 and len(shape) == 1:
        shape = (1, *shape)
    if ndim >= 3 and len(shape) == 2:
        shape = (*shape, 1)
    return meta.like(shape)


def _joined_padded(name: str, tensors: Sequence[Meta], ndim: int, dim: int) -> Meta:
    if not tensors:
        raise ArgumentError(f"{name}: expected a non-empty list of Tensors: {name} expects a non-empty TensorList")
    return _cat(name, [padded(t, ndim) for t in tensors], dim)


@op(method=False)
def hstack(tensors: list[Meta]) -> Meta:
    """Concatenate tensors along their columns; vectors along their only dimension."""
    return _joined_padded("hstack", tensors, 1, 0 if tensors and tensors[0].ndim <= 1 else 1)


@op(method=False)
def vstack(tensors: list[Meta]) -> Meta:
    """Concatenate tensors along their rows."""
    return _joined_padded("vstack", tensors, 2, 0)


@op(method=False)
def dstack(tensors: list[Meta]) -> Meta:
    """Concatenate tensors along the third dimension."""
    return _joined_padded("dstack", tensors, 3, 2)


@op(out=False)
def flip(input: Meta, *dims: int) -> Meta:
    """Reverse the order of elements along ``dims``."""
    wrap_dims("flip", dims, input.ndim)
    return like(input, None, None)


@op(out=False)
def fliplr(input: Meta) -> Meta:
    """Reverse the order of columns."""
    if input.ndim < 2:
        raise ShapeError(f"fliplr: expected at least 2 dimensions, got {input}")
    return like(input, None, None)


@op(out=False)
def flipud(input: Meta) -> Meta:
    """Reverse the order of rows."""
    if input.ndim < 1:
        raise ShapeError(f"flipud: expected at least 1 dimension, got {input}")
    return like(input, None, None)


@op(out=False)
def roll(input: Meta, shifts: int | Size, dims: int | Size | None = None) -> Meta:
    """Move elements by ``shifts`` along ``dims``, cyclically; without ``dims`` in the flattened tensor."""
    listed = () if dims is None else (dims,) if isinstance(dims, int) else dims
    count = 1 if isinstance(shifts, int) else len(shifts)
    if not count or (count != len(listed) and (listed or count != 1)):
        raise ArgumentError(f"roll: shifts and dimensions must align: {count} shifts for {len(listed)} dimensions")
    for dim in listed:
        wrap_dim("roll", dim, input.ndim)
    if listed and not input.ndim:
        raise DimensionError("roll: Dimension specified as 0 but tensor has no dimensions")
    return input.like()


@op(out=False)
def rot90(input: Meta, k: int = 1, dims: Size = (0, 1)) -> Meta:
    """Rotate ``k`` times by 90 degrees in the plane of ``dims``, from the first towards the second."""
    if len(dims) != 2:
        raise ShapeError(f"rot90: expected total rotation dims == 2, but got dims = {list(dims)}")
    if input.ndim < 2:
        raise ShapeError(f"rot90: expected total dims >= 2, but got {input}")
    if dims[0] == dims[1]:
        raise ArgumentError(f"rot90: expected rotation dims to be different, but got {list(dims)}")
    a, b = wrap_dims("rot90", dims, input.ndim)
    if k % 4 == 0:
        return input.like()
    plain = like(input, None, None)
    if k % 2 == 0:
        return plain
    order = list(range(input.ndim))
    order[a], order[b] = b, a
    return input.like((plain.shape[d] for d in order), strides=tuple(plain.strides[d] for d in order))


@op(out=False)
def repeat(input: Meta, *repeats: int) -> Meta:
    """Repeat the tensor the given number of times along every dimension; new dimensions come first."""
    lead = len(repeats) - input.ndim
    if lead < 0:
        raise ShapeError(f"repeat: {list(repeats)} names fewer dimensions than {input} has")
    if min(repeats, default=0) < 0:
        raise ArgumentError(f"repeat: negative count in {list(repeats)}")
    shape = (1,) * lead + input.shape
    return input.like(s * r for s, r in zip(shape, repeats, strict=True))


@op(out=False)
def tile(input: Meta, *dims: int) -> Meta:
    """Repeat the tensor as ``repeat`` does, with missing counts taken as 1."""
    return repeat.rule(input, *((1,) * (input.ndim - len(dims)) + dims))


@op(out=False)
def repeat_interleave(input: Meta, repeats: int, dim: int | None = None, *, output_size: int | None = None) -> Meta:
    """Repeat every element ``repeats`` times in a row along ``dim``; without ``dim`` in the flattened tensor."""
    shape = (input.numel,) if dim is None else input.shape or (1,)
    at = wrap_dim("repeat_interleave", dim or 0, len(shape))
    if repeats < 0:
        raise ArgumentError(f"repeat_interleave: negative count {repeats}")
    length = shape[at] * repeats
    if output_size is not None and output_size != length:
        raise ShapeError(
            f"repeat_interleave: the result has {length} elements along {at}, not output_size={output_size}"
        )
    return input.like((*shape[:at], length, *shape[at + 1 :]))


def _check_repeats(repeats: Meta) -> None:
    if repeats.ndim > 1 or repeats.dtype not in (int32, int64):
        raise ShapeError(f"repeat_interleave: repeats must be a vector of int64 or int32, got {repeats}")


@op(name="repeat_interleave.repeats", data_dependent=True, differentiable=False, method=False)
def repeat_interleave_positions(repeats: Meta, *, output_size: int | None = None) -> None:
    """Return every position of the vector ``repeats`` as often in a row as it says."""
    _check_repeats(repeats)
    if not repeats.ndim:
        raise ShapeError(f"repeat_interleave: repeat_interleave only accept 1D vector as repeat, got {repeats}")


@op(name="repeat_interleave.Tensor", data_dependent=True, no_grad=("repeats",))
def repeat_interleave_tensor(
    input: Meta, repeats: Meta, dim: int | None = None, *, output_size: int | None = None
) -> None:
    """Repeat every slice of ``input`` along ``dim`` as often in a row as ``repeats`` says."""
    _check_repeats(repeats)
    length = input.numel if dim is None else (input.shape or (1,))[wrap_dim("repeat_interleave", dim, input.ndim)]
    if repeats.numel not in (1, length):
        raise ShapeError(f"repeat_interleave: {repeats} does not hold one count for each of {length} parts of {input}")


@op
def diag(input: Meta, diagonal: int = 0) -> Meta:
    """Make a matrix with a vector on its diagonal, or return the diagonal of a matrix as a vector."""
    if input.ndim == 1:
        side = input.shape[0] + abs(diagonal)
        return input.like((side, side))
    if input.ndim != 2:
        raise ShapeError(f"diag: diag(): Supports 1D or 2D tensors, got {input}")
    rows, columns = input.shape
    return input.like((max(min(rows + min(diagonal, 0), columns - max(diagonal, 0)), 0),))


@op(out=False)
def diag_embed(input: Meta, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Meta:
    """Make matrices in ``dim1`` and ``dim2`` with the last dimension of ``input`` on their diagonals."""
    a, b = wrap_dim("diag_embed", dim1, input.ndim + 1), wrap_dim("diag_embed", dim2, input.ndim + 1)
    if a == b:
        raise ShapeError(f"diag_embed: diagonal dimensions cannot be identical {dim1}, {dim2} for {input}")
    if not input.ndim:
        raise ShapeError(f"diag_embed: cannot put {input} on a diagonal")
    side = input.shape[-1] + abs(offset)
    shape = list(input.shape[:-1])
    for at in sorted((a, b)):
        shape.insert(at, side)
    return input.like(shape)


def kept(input: Meta) -> Meta:
    """Return the meta of a copy with the strides of ``input``, gaps included, if its elements do not overlap."""
    if overlaps_itself(input.shape, input.strides):
        return like(input, None, None)
    return input.like(strides=input.strides)


def _filled(name: str, input: Meta, src: Meta, window: Meta) -> Meta:
    if src.shape != window.shape:
        raise ShapeError(f"{name}: {src} does not fill the part {window} of {input}")
    return kept(input)


@op(out=False)
def select_scatter(input: Meta, src: Meta, dim: int, index: int) -> Meta:
    """Copy ``input`` with ``src`` at one index of ``dim``."""
    return _filled("select_scatter", input, src, select.rule(input, dim, index))


@op
def slice_scatter(
    input: Meta, src: Meta, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Meta:
    """Copy ``input`` with ``src`` in the slice ``start:end:step`` of ``dim``."""
    return _filled("slice_scatter", input, src, slice.rule(input, dim, start, end, step))


@op(out=False)
def diagonal_scatter(input: Meta, src: Meta, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Meta:
    """Copy ``input`` with ``src`` on a diagonal."""
    return _filled("diagonal_scatter", input, src, diagonal.rule(input, offset, dim1, dim2))


@op(out=False, method=False)
def _scatter_strided(input: Meta, src: Meta, size: Size, stride: Size, offset: int) -> Meta:
    """Copy ``input`` with its strides, and ``src`` in the view that starts ``offset`` after its first element."""
    if src.shape != size or len(size) != len(stride) or min((*size, *stride, offset), default=0) < 0:
        raise ShapeError(
            f"as_strided_scatter: {src} does not fill a view of sizes {list(size)}, strides {list(stride)}"
        )
    result = kept(input)
    if src.numel and extent(size, stride) + offset > result.extent:
        raise ShapeError(
            f"as_strided_scatter: sizes {list(size)}, strides {list(stride)}, offset {offset} exceed {input}"
        )
    return result


@op(out=False)
def as_strided_scatter(input: Meta, src: Meta, size: Size, stride: Size, storage_offset: int | None = None) -> Meta:
    """Copy ``input`` with ``src`` in its ``as_strided`` view."""
    offset = 0 if storage_offset is None else storage_offset - input.offset
    if offset >= 0 or storage_offset is None or storage_offset < 0:
        return _scatter_strided.rule(input, src, size, stride, offset)
    reach = Meta.of((input.extent,), input.dtype, input.device)  # the view begins before the input does
    _scatter_strided.rule(reach, src, size, stride, storage_offset)
    return kept(input)


alias("row_stack", vstack)
