"""Gives tensors that the program holds what a backend's function has returned for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any
from weakref import ref

from telegrad._ops.overriding import SLOTS
from telegrad._tensor.autograd_graph import LeafNode
from telegrad._tensor.tensor import Tensor


def results_of(returned: Any) -> list[Any]:
    """Return what a backend's function has returned as a list of its own."""
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def become(made: Sequence[Tensor], given: list[Any]) -> None:
    """Let tensors that the program holds be those that a backend's function has returned, which are taken out."""
    if len(given) != len(made) or not all([isinstance(one, Tensor) for one in given]):
        for tensor in made:
            tensor._id = 0  # what it stood for was never computed
        raise TypeError(f"compile: a backend's function returns {len(made)} tensors here, not {len(given)} results")
    views = [one._base for one in given]
    bases: dict[int, Tensor] = {}
    for place, tensor in enumerate(made):
        ours = 2 + 2 * sum([base is given[place] for base in views])
        if sys.getrefcount(given[place]) > ours:  # somebody else holds it
            given[place] = given[place].view_as(given[place])
        result = given[place]
        bases[id(result)] = tensor
        for slot in SLOTS:
            setattr(tensor, slot, getattr(result, slot))
        for name, value in vars(result).items():
            vars(tensor).setdefault(name, value)
        result._id = 0
        if type(tensor._node) is LeafNode:
            tensor._node.tensor = ref(tensor)
    for tensor in made:
        if tensor._base is not None:
            tensor._base = bases.get(id(tensor._base), tensor._base)
