"""Gradients of leaves that a call reads, drops or computes: noted while it is watched, changed where it is left out.

A gradient that the call drops dies in it, and the run of its program frees it. So the call is only left out while
nothing but the leaf refers to such a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any, Final

from telegrad._native.binding import change_gradients, gradients_hold
from telegrad._tensor.autograd_graph import LeafNode
from telegrad._tensor.tensor import Tensor, new_tensor

from . import purity
from .plain_run import ImpureError

WIDTH: Final = 4
"""A row has so many parts: a leaf, what its gradient has to be before, what it is afterwards, and a distance.

Before, ``None`` stands for no gradient, ``True`` for one that dies in the call, and a meta for one that stays and lies
so. Afterwards, ``False`` stands for what was there before, ``None`` for no gradient, and a meta for a new one that lies
so, whose number is as far from the call's first one as the distance says.
"""


class GradientNotes:
    """The leaves of a call that is watched whose gradients it has to do with."""

    def __init__(self) -> None:
        self._leaves: dict[int, tuple[Tensor, int]] = {}
        """Leaves by ``id``, and the numbers of the gradients that they had before the call; 0 where they had none."""
        self.by_number: dict[int, Tensor] = {}
        """Leaves by the numbers of these gradients."""
        self.dropped: list[int] = []
        """The numbers of those that the call has dropped, in this order."""

    def __bool__(self) -> bool:
        return bool(self._leaves)

    def add(self, leaf: Tensor) -> str:
        """Note a leaf before the call changes its gradient; return why that call cannot be left out, or nothing."""
        if id(leaf) in self._leaves:
            return ""
        gradient, node = leaf._grad, leaf._node
        if type(leaf) not in purity.TENSORS or not (node is None or (type(node) is LeafNode and node.extras is None)):
            return "the gradient of a tensor that is no leaf, or has hooks"
        if gradient is not None and not _is_usual(gradient):
            return "a gradient that is more than one"
        self._leaves[id(leaf)] = leaf, 0 if gradient is None else gradient._id
        if gradient is not None:
            self.by_number[gradient._id] = leaf
        return ""

    def drop(self, leaf: Tensor) -> None:
        """Note that the gradient of a leaf that was added is about to be dropped."""
        if leaf._grad is not None and leaf._grad._id in self.by_number:
            self.dropped.append(leaf._grad._id)

    def rows(self, first: int) -> list[tuple[Any, ...]]:
        """Return what a call has done that made the numbers after ``first``; raises ImpureError for other things."""
        return [_row(leaf, number, leaf._grad, first, number in self.dropped) for leaf, number in self._leaves.values()]


def _row(leaf: Tensor, before: int, gradient: Tensor | None, first: int, is_dropped: bool) -> tuple[Any, ...]:
    if gradient is None:
        return (leaf, True, None, 0) if before else (leaf, None, False, 0)
    if not _is_usual(gradient):
        raise ImpureError("it leaves a gradient that is more than one")
    if gradient._id == before and not is_dropped:
        return leaf, gradient._meta, False, 0
    if gradient._id <= first or bool(before) is not is_dropped:
        raise ImpureError("it gives a leaf a gradient that was there before")
    return leaf, True if before else None, gradient._meta, gradient._id - first


def _is_usual(gradient: Any) -> bool:
    """Whether a gradient is a tensor that a pass has computed and the program knows nothing else of."""
    return (
        gradient.__class__ is Tensor and not gradient._requires_grad and gradient._node is None
        and gradient._base is None and gradient._aliases is None and not gradient._is_inference
    )  # fmt: skip


def _hold_in_python(rows: Sequence[Any], session: Any) -> list[Tensor | None] | None:
    """Return the gradients of leaves, by row; None if these are not what rows say they are before a call."""
    found = []
    for place in range(0, len(rows), WIDTH):
        leaf, before = rows[place], rows[place + 1]
        if not _is_plain(leaf):
            return None
        found.append(leaf._grad)
        if (found[-1] is None) is not (before is None) or not (before is None or _is_as_before(leaf, before, session)):
            return None
    return found


def _is_plain(leaf: Tensor) -> bool:
    node = leaf._node
    return node is None or (node.__class__ is LeafNode and node.extras is None)


def _is_as_before(leaf: Tensor, before: Any, session: Any) -> bool:
    gradient: Any = leaf._grad
    if gradient.__class__ is not Tensor or gradient._session is not session:
        return False
    if before is True:
        return getrefcount(gradient) == _KNOWN
    return _is_usual(gradient) and gradient._meta is before


_KNOWN: Final = 4
"""What ``getrefcount`` returns of a gradient that besides its leaf only a list and a name here refer to, and itself."""


def _change_in_python(rows: Sequence[Any], session: Any, first: int, found: Sequence[Tensor | None]) -> None:
    """Give leaves the gradients that rows say they have after a call; those that die are freed by the call's run.

    These are the ones that were ``found`` before it, whatever the program has done to leaves meanwhile. All are given
    before any dies: whoever is told of that may look at the others, or change them.
    """
    formers = []
    for place in range(0, len(rows), WIDTH):
        leaf, before, after, distance = rows[place : place + WIDTH]
        if after is False:
            continue
        gradient = found[place // WIDTH]
        if before is True and gradient is not None:
            gradient._id = 0
        formers.append(leaf._grad)
        leaf._grad = None if after is None else new_tensor(session, first + distance, after)


Found = list[Any]
"""The gradients of leaves before a call, by row."""
hold: Final[Callable[[tuple[Any, ...], Any], Found | None]] = gradients_hold or _hold_in_python
change: Final[Callable[[tuple[Any, ...], Any, int, Found], None]] = change_gradients or _change_in_python
