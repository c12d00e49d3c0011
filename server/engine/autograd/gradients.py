"""The gradients of leaves: how they are accumulated, laid out, set, and kept for values that are no leaves.

Knows nothing of how a graph is run.
"""

from __future__ import annotations

from sys import getrefcount

from server.engine import context
from server.engine import functional as F
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.value import AutogradMeta, Value
from telegrad_protocol.errors import AutogradError, ShapeError
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta

from . import changes
from .graph import AccumulateGrad
from .inplace import edge_of

_ADD_ = OPERATORS["add_"]


class _Holder:
    __slots__ = ("item",)

    item: object


def _count_in_attribute() -> int:
    holder = _Holder()
    holder.item = object()
    return getrefcount(holder.item)


def _count_in_table() -> int:
    table = {0: object()}
    item = table[0]
    return getrefcount(item)


def _count_in_callee(item: object) -> int:
    return _count_in_second_callee(item)


def _count_in_second_callee(item: object) -> int:
    return getrefcount(item)


# Python versions differ in the references that calls hold, so the expected counts are measured when this is imported.
ALONE_IN_ATTRIBUTE = _count_in_attribute()
"""What ``getrefcount(holder.item)`` says of an object that ``holder`` alone refers to."""
ALONE_IN_TABLE = _count_in_table()
"""What ``getrefcount`` says of a local variable's object that a dictionary alone refers to besides."""
_ALONE_IN_CALLEE = _count_in_callee(object())
"""What ``_own`` sees of a gradient that was handed to ``accumulate`` and is referred to by nobody else."""


def accumulate(leaf: Value, gradient: Value, create_graph: bool) -> None:
    """Add ``gradient`` to ``leaf.grad``, in place unless the addition itself is to be differentiable.

    A leaf that does not require a gradient any more gets none.
    """
    meta = leaf.autograd
    assert meta is not None
    if not meta.requires_grad:
        return
    changes.note()
    if meta.grad is None:
        meta.grad = F.clone(gradient) if create_graph else _own(leaf.meta, gradient)
    elif create_graph:
        meta.grad = F.add(meta.grad, gradient)
    else:
        dispatch(_ADD_, (meta.grad, gradient, 1))


def _own(leaf: Meta, gradient: Value) -> Value:
    """Return a gradient in the leaf's layout that shares memory with nothing: itself if nobody else refers to it.

    A leaf whose elements were replaced by those of another shape has no layout for it.
    """
    if gradient.meta.shape != leaf.shape:
        leaf = gradient.meta
    is_usual = gradient.meta is leaf and leaf.is_contiguous and leaf.offset == 0
    is_in_layout = is_usual or _is_in_layout(gradient.meta, leaf)
    if is_in_layout and getrefcount(gradient) <= _ALONE_IN_CALLEE and _owns_memory(gradient):
        return gradient if gradient.base is None else gradient.alias()
    moved: Value = F._in_layout(gradient.alias(), _layout_of(leaf))
    return moved


def _layout_of(leaf: Meta) -> Size:
    """The strides, in elements, of a leaf's gradient."""
    return leaf.strides if leaf.is_dense else Meta.of(leaf.shape, leaf.dtype).strides


def _is_in_layout(gradient: Meta, leaf: Meta) -> bool:
    return gradient.offset == 0 and gradient.strides == _layout_of(leaf)


def _owns_memory(value: Value) -> bool:
    """Whether no other value sees this value's memory; a view may be the last that refers to its base."""
    if value.base is None:
        return getrefcount(value.storage) <= ALONE_IN_ATTRIBUTE
    return getrefcount(value.base) <= ALONE_IN_ATTRIBUTE and getrefcount(value.storage) <= ALONE_IN_ATTRIBUTE + 1


def in_layout_of(source: Meta, gradient: Value) -> Value:
    """Return a gradient in the layout that ``accumulate`` would give it: itself if it has that layout."""
    if _is_in_layout(gradient.meta, source) or gradient.meta.shape != source.shape:
        return gradient
    with context.grad_mode(False):
        moved: Value = F._in_layout(gradient, _layout_of(source))
    return moved


def retain_grad(value: Value) -> None:
    """Store the gradient of a result in its ``.grad``, as a leaf's is."""
    edge = edge_of(value)
    if edge is None:
        raise AutogradError(f"retain_grad: {value.meta} does not require grad")
    if isinstance(edge[0], AccumulateGrad):
        return
    edge[0].retain_grad(edge[1], value)


def set_grad(value: Value, gradient: Value | None) -> None:
    """``value.grad = gradient``; it must be a tensor of the same shape, dtype and device."""
    if value.autograd is None:
        value.autograd = AutogradMeta()
    if gradient is not None and (gradient.meta.shape, gradient.dtype, gradient.device) != (
        value.meta.shape, value.dtype, value.device,
    ):  # fmt: skip
        raise ShapeError(f"grad: {gradient.meta} cannot be the gradient of {value.meta}")
    changes.note()
    value.autograd.grad = gradient
