"""What may be assigned to ``Tensor.grad`` and ``Tensor.requires_grad``, and what becomes of leaves whose data are set.

Leaves that are given other elements stay in graphs that know them: what was computed of a leaf before gives it
gradients afterwards, too, and its hooks go on to be called.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any
from weakref import ref

from telegrad_protocol.errors import ArgumentTypeError, AutogradError, ShapeError
from telegrad_protocol.messages import TakePlace

from .autograd_graph import Extras, LeafNode


def check_flag(requires_grad: Any) -> None:
    """Refuse what is no bool: it would be sent as it is, and a server takes no other message."""
    if requires_grad is not True and requires_grad is not False:
        raise ArgumentTypeError(f"requires_grad must be a bool, not {requires_grad!r}")


def check_gradient(tensor: Any, value: Any, kind: type) -> None:
    """Refuse what cannot be a tensor's gradient: that is of the class ``kind``, and of its shape, type and device."""
    is_known: bool = isinstance(value, kind)
    if not is_known:
        raise ArgumentTypeError(
            f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}"
        )
    if value is tensor:
        raise AutogradError("can't assign Variable as its own grad")
    wanted, given = tensor._meta, value._meta
    if given.shape != wanted.shape:
        raise ShapeError(
            f"attempting to assign a gradient of size '{list(given.shape)}' to a tensor of size "
            f"'{list(wanted.shape)}'. Please ensure that the gradient and the tensor are the same size"
        )
    if (value.dtype, value.device) != (tensor.dtype, tensor.device):
        raise ShapeError(f"grad: {given} on {value.device} cannot be the gradient of {wanted} on {tensor.device}")


def _references(leaf: Any) -> int:
    node = leaf._node
    return getrefcount(node)


class _Probe:
    __slots__ = ("__weakref__", "_node")

    def __init__(self) -> None:
        self._node = LeafNode(ref(self))


_ALONE = _references(_Probe())
"""What Python counts of a node that its leaf alone refers to."""


def stays_leaf(leaf: Any, former: Any) -> bool:
    """Return whether something knows of ``leaf``, which has just exchanged its number with ``former``, as a leaf.

    That is a graph, a hook, or a gradient of another form.
    """
    if leaf._session is not former._session or leaf._session.holds_gradients:
        return False
    if leaf._node.__class__ is LeafNode and (leaf._node.extras is not None or _references(leaf) > _ALONE):
        return True
    gradient = leaf._grad
    return gradient is not None and (gradient.shape, gradient.dtype, gradient.device) != (
        leaf.shape, leaf.dtype, leaf.device,
    )  # fmt: skip


def take_place(leaf: Any, former: Any) -> None:
    """Let ``leaf`` be in the graph what it was by the number that ``former`` has got of it.

    Where the elements have another type, or are elsewhere, what is computed from here on has a node of its own.
    """
    leaf._session.submit(TakePlace(leaf._id, former._id))
    node, meta, before = leaf._node, leaf._meta, former._meta
    if node is None:
        return
    is_alike = meta.dtype is before.dtype and meta.device is before.device
    if not is_alike or meta.shape != before.shape or meta.strides != before.strides:
        node.extras = node.extras or Extras()
        node.extras.is_moved = True
    if not is_alike:
        leaf._node = None
    if node.extras is not None:
        _move_hooks(leaf, node.extras)


def _move_hooks(leaf: Any, extras: Extras) -> None:
    """Have the hooks of a leaf called by its new number, and of its new node where it is about to have one."""
    known = list(extras.watched.values())
    if leaf._node is not None or not leaf._requires_grad:
        extras.watched.clear()
        for watched in known:
            watched.age, extras.watched[leaf._id] = leaf._id, watched
        return
    for watched in known:
        moved = leaf._watch("data")
        moved.hooks, moved.before, moved.noting, moved.after = (
            watched.hooks, watched.before, watched.noting, watched.after,
        )  # fmt: skip
