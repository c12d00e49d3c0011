"""The derivatives of views, and composites that make views.

A view has no kernel: the engine makes it from the meta that the contract's rule returns.
"""

from __future__ import annotations

from functools import lru_cache

from server.engine import functional as F
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS, Single
from server.engine.registry import comes_to, composite, derive
from telegrad_protocol.layout import extent, overlaps_itself
from telegrad_protocol.ops import views as ops

from .derivatives import row_major_strides, zeros

_VIEW, _RESHAPE, _TRANSPOSE = (OPERATORS[name] for name in ("view", "reshape", "transpose"))
derive(ops.view, input=lambda grad, input_meta: dispatch(_RESHAPE, (grad, input_meta.shape)))


@composite(ops.view_as)
def view_as(input, other):
    return F.view(input, other.meta.shape)


_copies = lru_cache(maxsize=1 << 12)(ops.reshape_copies)


@composite(ops.reshape)
def reshape(input, shape):
    if _copies(input.meta, shape):
        input = F._in_layout(input, row_major_strides(input.meta))
    return dispatch(_VIEW, (input, shape))


@comes_to(ops.reshape)
def _only_view(records, input, shape):
    return None if _copies(input, shape) else Single(_VIEW)


@composite(ops.reshape_as)
def reshape_as(input, other):
    return F.reshape(input, other.meta.shape)


@composite(ops.flatten)
def flatten(input, start_dim, end_dim):
    return F.reshape(input, ops.flattened(input.meta, start_dim, end_dim))


@composite(ops.ravel)
def ravel(input):
    return F.view(contiguous(input), (input.meta.numel,))


@composite(ops.unflatten)
def unflatten(input, dim, sizes):
    return F.view(input, ops.unflattened(input.meta, dim, sizes))


@composite(ops.contiguous)
def contiguous(input):
    return input if input.meta.is_contiguous else F._in_layout(input, row_major_strides(input.meta))


derive(ops.expand, input=lambda grad: grad)  # the engine sums over what was broadcast


@composite(ops.expand_as)
def expand_as(input, other):
    return F.expand(input, other.meta.shape)


@composite(ops.broadcast_to)
def broadcast_to(input, size):
    return F.expand(input, size)


def _inverse(order):
    return [order.index(d) for d in range(len(order))]


derive(ops.permute, input=lambda grad, dims: F.permute(grad, _inverse([d % len(dims) for d in dims])))
derive(ops.transpose, input=lambda grad, dim0, dim1: dispatch(_TRANSPOSE, (grad, dim0, dim1)))
derive(ops.swapaxes, input=lambda grad, axis0, axis1: dispatch(_TRANSPOSE, (grad, axis0, axis1)))
derive(ops.swapdims, input=lambda grad, dim0, dim1: dispatch(_TRANSPOSE, (grad, dim0, dim1)))
derive(ops.t, input=lambda grad: F.t(grad))


def _movedim_backward(grad, input_meta, source, destination):
    return F.permute(grad, _inverse(ops.moved("movedim", input_meta, source, destination)))


derive(ops.movedim, input=_movedim_backward)
derive(ops.moveaxis, input=_movedim_backward)


def _squeeze_backward(grad, input_meta, dim):
    for d in sorted(ops.squeezed(input_meta, dim)):
        grad = F.unsqueeze(grad, d)
    return grad


derive(ops.squeeze, input=_squeeze_backward)
derive(ops.unsqueeze, input=lambda grad, dim: F.squeeze(grad, dim))


def _select_backward(grad, input_meta, dim, index):
    return F.select_scatter(zeros(grad, input_meta.shape), grad, dim, index)


def _narrow_backward(grad, input_meta, dim, start, length):
    first = start + input_meta.shape[dim] if start < 0 else start
    return F.slice_scatter(zeros(grad, input_meta.shape), grad, dim, first, first + length)


def _slice_backward(grad, input_meta, dim, start, end, step):
    return F.slice_scatter(zeros(grad, input_meta.shape), grad, dim, start, end, step)


def _diagonal_backward(grad, input_meta, offset, dim1, dim2):
    return F.diagonal_scatter(zeros(grad, input_meta.shape), grad, offset, dim1, dim2)


derive(ops.select, input=_select_backward)
derive(ops.narrow, input=_narrow_backward)
derive(ops.slice, input=_slice_backward)
derive(ops.diagonal, input=_diagonal_backward)


def _unfold_backward(grad, input_meta, dimension, size, step):
    whole = input_meta.like()
    window = ops.unfold.rule(whole, dimension, size, step)
    return _as_strided_backward(grad, whole, window.shape, window.strides, 0)


derive(ops.unfold, input=_unfold_backward)


def _as_strided_backward(grad, input_meta, size, stride, storage_offset):
    """The gradient scattered into the memory that input and view share, read with the input's shape and strides.

    Where the view overlaps itself, gradients of one element are summed; where the input overlaps itself, an element's
    gradient is divided by the number of its occurrences. These are the semantics of PyTorch's ``as_strided_backward``.
    """
    offset = input_meta.offset if storage_offset is None else storage_offset
    first = min(offset, input_meta.offset)
    ends = offset + extent(size, stride), input_meta.offset + extent(input_meta.shape, input_meta.strides)
    memory = zeros(grad, (max(ends) - first,))
    if overlaps_itself(size, stride):
        memory = F.index_add(memory, 0, _memory_positions(memory, size, stride, offset - first), F.reshape(grad, (-1,)))
    else:
        memory = F._scatter_strided(memory, grad, size, stride, offset - first)
    window = input_meta.shape, input_meta.strides, input_meta.offset - first
    if overlaps_itself(input_meta.shape, input_meta.strides):
        places = _memory_positions(memory, *window)
        ones = F.ones(places.meta.shape, dtype=grad.dtype, device=grad.device)
        memory = F.div(memory, F.index_add(zeros(memory, memory.meta.shape), 0, places, ones))
    return F.as_strided(memory, *window)


def _memory_positions(memory, size, stride, offset):
    """The position in ``memory`` of every element of a view, as a vector."""
    positions = F.arange(memory.meta.numel, device=memory.device)
    return F.reshape(F.as_strided(positions, size, stride, offset), (-1,))


derive(ops.as_strided, input=_as_strided_backward)
derive(ops.alias, input=lambda grad: grad)
derive(
    ops._with_zero_derivative,
    input=lambda grad: grad,
    others=lambda grad, others_meta: [zeros(grad, meta.shape) for meta in others_meta],
)
