"""``swap_tensors``: two tensors exchange what they are, and whoever holds one of them has the other."""

from __future__ import annotations

import sys
from weakref import ref

from telegrad._tensor.autograd_graph import LeafNode
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError

_HELD = ("_aliases", "_base", "_grad", "_id", "_meta", "_node", "_requires_grad", "_seen", "_session")
"""What a tensor is, beside its class and the attributes that a program has set."""
_OWN_REFERENCES = 2
"""What counts as references to a tensor's ``_aliases`` where no view has it: the tensor's, and that of the question."""


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange elements, gradients, classes and attributes of two tensors, in place.

    Raises AutogradError where there are views of one of them, which would show other memory than their base.
    """
    for name, tensor in (("t1", t1), ("t2", t2)):
        if _has_views(tensor):
            raise AutogradError(f"swap_tensors: Cannot swap {name}, of which there are views; clone() it first")
    for name in _HELD:
        first, second = getattr(t1, name), getattr(t2, name)
        setattr(t1, name, second)
        setattr(t2, name, first)
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    for tensor in (t1, t2):
        if type(tensor._node) is LeafNode:
            tensor._node.tensor = ref(tensor)


def _has_views(tensor: Tensor) -> bool:
    if tensor._base is not None or tensor._aliases is None:
        return False
    return sys.getrefcount(tensor._aliases) > _OWN_REFERENCES
