"""Views and rearrangements. Views have no kernel: the engine makes them from the contract's meta."""

from __future__ import annotations

from telegrad_protocol.layout import overlaps_itself
from telegrad_protocol.ops import views as ops

from .. import functional as F  # noqa: N812 - the field's name
from ..operators import composite, derive, implements

derive(ops.view, input=lambda grad, input_meta: F.reshape(grad, input_meta.shape))
derive(ops.expand, input=lambda grad: grad)  # the engine sums over what was broadcast
derive(ops.permute, input=lambda grad, dims: F.permute(grad, _inverse(dims)))
derive(ops.transpose, input=lambda grad, dim0, dim1: F.transpose(grad, dim0, dim1))
derive(ops.t, input=lambda grad: F.t(grad))


def _inverse(dims):
    order = [d % len(dims) for d in dims]
    return [order.index(d) for d in range(len(dims))]


@composite(ops.reshape)
def reshape(input, shape):
    if ops.reshape_copies(input.meta, shape):
        input = F._in_layout(input, _row_major(input.meta))
    return F.view(input, shape)


def _row_major(meta):
    return meta.like().strides


def _as_strided_backward(grad, input_meta, size, stride, storage_offset):
    offset = input_meta.offset if storage_offset is None else storage_offset
    nothing = F._in_layout(F.zeros(input_meta.shape, dtype=grad.dtype, device=grad.device), _dense(input_meta))
    if not overlaps_itself(size, stride):
        return F.as_strided_scatter(nothing, grad, size, stride, offset)
    return _scatter_overlapping(nothing, grad, size, stride, offset)


def _dense(meta):
    return meta.strides if meta.is_dense else _row_major(meta)


def _scatter_overlapping(nothing, grad, size, stride, offset):
    """Add gradients of elements that share memory."""
    flat = F.as_strided(nothing, (nothing.numel,), (1,), 0)
    places = F.arange(nothing.numel, device=grad.device)
    places = F.reshape(F.as_strided(places, size, stride, offset), -1)
    summed = F.index_add(flat, 0, places, F.reshape(grad, -1))
    return F.as_strided(summed, nothing.meta.shape, nothing.meta.strides, 0)


derive(ops.as_strided, input=_as_strided_backward)


@implements(ops._in_layout, movement=True, input=lambda grad: grad)
def _in_layout(xp, input, strides, *, out):
    xp.copyto(out, input)


def _scatter_input(grad, input_meta, size, stride, storage_offset):
    grad = grad if grad.meta.strides == _dense(input_meta) else F._in_layout(grad, _dense(input_meta))
    nothing = F.zeros(size, dtype=grad.dtype, device=grad.device)
    return F.as_strided_scatter(grad, nothing, size, stride, storage_offset or 0)


def _scatter_src(grad, input_meta, size, stride, storage_offset):
    grad = grad if grad.meta.strides == _dense(input_meta) else F._in_layout(grad, _dense(input_meta))
    return F.as_strided(grad, size, stride, storage_offset or 0)


@implements(ops.as_strided_scatter, movement=True, input=_scatter_input, src=_scatter_src)
def as_strided_scatter(xp, input, src, size, stride, storage_offset, *, out):
    xp.copyto(out, input)
    step = out.itemsize
    flat = xp.lib.stride_tricks.as_strided
    start = _memory(xp, out)[storage_offset or 0 :]
    flat(start, size, [s * step for s in stride])[...] = src


def _memory(xp, array):
    """The elements of a dense array in memory order, as a vector over the same memory."""
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
    return array.transpose(order).reshape(-1)
