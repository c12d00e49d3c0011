"""Concatenation, and copies in another order. Kernels only move elements."""

from __future__ import annotations

import numpy as np

from server.engine import functional as F
from server.engine.array_library import indexing as arrays
from server.engine.registry import composite, implements
from telegrad_protocol.errors import ArgumentError, ShapeError
from telegrad_protocol.layout import wrap_dim, wrap_dims
from telegrad_protocol.ops import rearrange as ops

from .derivatives import zeros


@implements(ops._in_layout, movement=True, input=lambda grad: grad)
def _in_layout(xp, input, strides, *, out):
    xp.copyto(out, input)


def _cat_backward(grad, tensors_meta, dim):
    at, lengths = ops.joined("cat", tensors_meta, dim)
    start, gradients = 0, []
    for meta, length in zip(tensors_meta, lengths, strict=True):
        is_placed = meta.ndim == grad.meta.ndim
        gradients.append(F.narrow(grad, at, start, length) if is_placed else zeros(grad, meta.shape))
        start += length
    return gradients


@implements(ops.cat, movement=True, tensors=_cat_backward)
def cat(xp, tensors, dim, *, out):
    parts = [t for t in tensors if t.ndim == out.ndim]
    xp.concatenate(parts, axis=dim, out=out, casting="unsafe")


@composite(ops.concat)
def concat(tensors, dim):
    return F.cat(tensors, dim)


@composite(ops.concatenate)
def concatenate(tensors, dim):
    return F.cat(tensors, dim)


@implements(ops.stack, movement=True, tensors=lambda grad, dim: F.unbind(grad, dim))
def stack(xp, tensors, dim, *, out):
    xp.stack(tensors, axis=dim, out=out, casting="unsafe")


def _padded(tensors, ndim):
    return [F.reshape(t, ops.padded(t.meta, ndim).shape) for t in tensors]


@composite(ops.hstack)
def hstack(tensors):
    return F.cat(_padded(tensors, 1), 0 if tensors[0].meta.ndim <= 1 else 1)


@composite(ops.vstack)
def vstack(tensors):
    return F.cat(_padded(tensors, 2), 0)


@composite(ops.dstack)
def dstack(tensors):
    return F.cat(_padded(tensors, 3), 2)


@implements(ops.flip, movement=True, input=lambda grad, dims: F.flip(grad, dims))
def flip(xp, input, dims, *, out):
    xp.copyto(out, xp.flip(input, wrap_dims("flip", dims, input.ndim)) if input.ndim else input)


@composite(ops.fliplr)
def fliplr(input):
    return F.flip(input, (1,))


@composite(ops.flipud)
def flipud(input):
    return F.flip(input, (0,))


def _negated(shifts):
    return -shifts if isinstance(shifts, int) else [-s for s in shifts]


@implements(ops.roll, movement=True, input=lambda grad, shifts, dims: F.roll(grad, _negated(shifts), dims))
def roll(xp, input, shifts, dims, *, out):
    flat = dims is None or dims == () or not input.ndim
    shifts = sum(shifts) if flat and isinstance(shifts, tuple) else shifts
    xp.copyto(out, xp.roll(input, shifts, axis=None if flat else dims))


@implements(ops.rot90, movement=True, input=lambda grad, k, dims: F.rot90(grad, -k, dims))
def rot90(xp, input, k, dims, *, out):
    xp.copyto(out, xp.rot90(input, k, axes=dims))


def _repeat_backward(grad, input_meta, repeats):
    """The sum over the copies: every dimension becomes (copies, length), and a new one consists of copies only."""
    lead = len(repeats) - input_meta.ndim
    shape = list(repeats[:lead])
    dims = list(range(lead))
    for count, size in zip(repeats[lead:], input_meta.shape, strict=True):
        dims.append(len(shape))
        shape += [count, size]
    return F.sum(F.reshape(grad, shape), dims) if dims else grad


@implements(ops.repeat, movement=True, input=_repeat_backward)
def repeat(xp, input, repeats, *, out):
    if out.size:
        xp.copyto(out, xp.tile(input, repeats))


@composite(ops.tile)
def tile(input, dims):
    return F.repeat(input, (1,) * (input.meta.ndim - len(dims)) + dims)


def _interleave_backward(grad, input_meta, repeats, dim):
    shape = (input_meta.numel,) if dim is None else input_meta.shape or (1,)
    at = wrap_dim("repeat_interleave", dim or 0, len(shape))
    summed = F.sum(F.reshape(grad, (*shape[: at + 1], repeats, *shape[at + 1 :])), at + 1)
    return F.reshape(summed, input_meta.shape)


@implements(ops.repeat_interleave, movement=True, input=_interleave_backward)
def repeat_interleave(xp, input, repeats, dim, *, output_size, out):
    if out.size:
        xp.copyto(out, xp.repeat(input, repeats, axis=dim if input.ndim else None))


@implements(ops.repeat_interleave_positions, movement=True)
def repeat_interleave_positions(xp, repeats, *, output_size):
    if repeats.size and int(repeats.min()) < 0:
        raise ArgumentError("repeat_interleave: counts must not be negative")
    counts = repeats.astype("int64", copy=False)
    arrays.check_room(xp, int(8 * float(counts.astype("float64").sum())))
    ends = xp.cumsum(counts)
    length = int(ends[-1]) if ends.size else 0
    if output_size not in (None, length):
        raise ShapeError(f"repeat_interleave: the result has {length} parts, not output_size={output_size}")
    return xp.searchsorted(ends, xp.arange(length), side="right").astype(repeats.dtype, copy=False)


@composite(ops.repeat_interleave_tensor)
def repeat_interleave_tensor(input, repeats, dim, *, output_size):
    source = F.reshape(input, (-1,)) if dim is None or not input.meta.ndim else input
    at = dim or 0
    counts = F.expand(F.reshape(repeats, (-1,)), (source.meta.shape[at],))
    return F.index_select(source, at, F.repeat_interleave(counts, output_size=output_size))


@composite(ops.diag)
def diag(input, diagonal):
    if input.meta.ndim == 1:
        return F.diag_embed(input, diagonal)
    return F._in_layout(F.diagonal(input, diagonal), (1,))


@implements(ops.diag_embed, movement=True, input=lambda grad, offset, dim1, dim2: F.diagonal(grad, offset, dim1, dim2))
def diag_embed(xp, input, offset, dim1, dim2, *, out):
    out[...] = xp.zeros((), out.dtype)
    a, b = dim1 % out.ndim, dim2 % out.ndim
    _diagonal(xp, out, offset, a, b)[...] = input


def _diagonal(xp, array, offset, dim1, dim2):
    """A writable view of a diagonal."""
    part = array.diagonal(offset, dim1, dim2)
    if xp is np:
        part.setflags(write=True)  # NumPy's is a view that may not be written to, unless one asks for it
    return part


def _select_scatter_backward(grad, src_meta, dim, index):
    return F.select_scatter(grad, zeros(grad, src_meta.shape), dim, index)


@implements(
    ops.select_scatter,
    movement=True,
    input=_select_scatter_backward,
    src=lambda grad, dim, index: F.select(grad, dim, index),
)
def select_scatter(xp, input, src, dim, index, *, out):
    xp.copyto(out, input)
    xp.moveaxis(out, dim, 0)[index] = src


def _slice_scatter_backward(grad, src_meta, dim, start, end, step):
    return F.slice_scatter(grad, zeros(grad, src_meta.shape), dim, start, end, step)


def _slice_scatter_src(grad, dim, start, end, step):
    return F.slice(grad, dim, start, end, step)


@implements(ops.slice_scatter, movement=True, input=_slice_scatter_backward, src=_slice_scatter_src)
def slice_scatter(xp, input, src, dim, start, end, step, *, out):
    xp.copyto(out, input)
    xp.moveaxis(out, dim, 0)[start:end:step] = xp.moveaxis(src, dim, 0)


def _diagonal_scatter_backward(grad, src_meta, offset, dim1, dim2):
    return F.diagonal_scatter(grad, zeros(grad, src_meta.shape), offset, dim1, dim2)


def _diagonal_scatter_src(grad, offset, dim1, dim2):
    return F.diagonal(grad, offset, dim1, dim2)


@implements(ops.diagonal_scatter, movement=True, input=_diagonal_scatter_backward, src=_diagonal_scatter_src)
def diagonal_scatter(xp, input, src, offset, dim1, dim2, *, out):
    xp.copyto(out, input)
    _diagonal(xp, out, offset, dim1 % out.ndim, dim2 % out.ndim)[...] = src


def _in_strides_of(grad, meta):
    """The gradient, copied if needed so that it has the strides of a result of ``meta``."""
    strides = ops.kept(meta).strides
    return grad if grad.meta.strides == strides else F._in_layout(grad, strides)


def _scatter_strided_backward(grad, input_meta, size, stride, offset):
    return F._scatter_strided(_in_strides_of(grad, input_meta), zeros(grad, size), size, stride, offset)


def _scatter_strided_src(grad, input_meta, size, stride, offset):
    grad = _in_strides_of(grad, input_meta)
    return F.as_strided(grad, size, stride, grad.meta.offset + offset)


@implements(ops._scatter_strided, movement=True, input=_scatter_strided_backward, src=_scatter_strided_src)
def _scatter_strided(xp, input, src, size, stride, offset, *, out):
    xp.copyto(out, input)
    arrays.window(xp, out, size, stride, offset)[...] = src


@composite(ops.as_strided_scatter)
def as_strided_scatter(input, src, size, stride, storage_offset):
    offset = 0 if storage_offset is None else storage_offset - input.meta.offset
    if offset >= 0:
        return F._scatter_strided(input, src, size, stride, offset)
    held = ops.kept(input.meta)  # the view begins before the input does: both go into memory that reaches from there
    memory = F._scatter_strided(
        zeros(input, (held.extent - offset,)), F._in_layout(input, held.strides), held.shape, held.strides, -offset
    )
    memory = F._scatter_strided(memory, src, size, stride, 0)
    return F._in_layout(F.as_strided(memory, held.shape, held.strides, -offset), held.strides)
