"""Gradients that live while the next graph is made lie apart from the rest of memory.

A program may drop its gradients before its forward pass, or later. Where it does so later, the forward pass takes
memory around them. Then where the last gradients lie decides where all else lies, and that decides where the next ones
will. So states of memory come again late, and neither the allocator nor captured passes learn anything until then.
Apart from the rest, gradients lie where they lay, and so does all else. They take no more memory for that: they are
there beside the forward pass anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Final, TypeAlias

from server.allocator.core.block import AREAS, apart
from server.allocator.native_calls import module
from server.engine.value import Backend, Value

_MOST_SIZES: Final = 1024
"""So many sizes of gradients are told apart; the gradients of others lie with the rest."""
_NOTED: Final = 4
"""So many times the gradients of the same leaves are noted as they are dropped: some may not be there at first."""
_MOST_GROUPS: Final = 256
"""So many groups of leaves whose gradients are dropped at once are told apart; beyond that all are noted anew."""

Group: TypeAlias = tuple[int, ...]
"""Leaves whose gradients are dropped at once: how many, and the numbers of the first and the last one."""


def _begins_before(node: Any, number: int) -> bool:
    """Return whether the graph that ends with a node has one that was made before a sequence number was drawn.

    One way through the graph is looked at. Leaves are no way: they are the same for all graphs.
    """
    while node is not None and node.sequence > number:
        node = next((edge[0] for edge in node.edges if edge is not None and edge[0].edges), None)
    return node is not None


begins_before: Final[Callable[[Any, int], bool]] = _begins_before if module is None else module.begins_before


class DroppedGradients:
    """What one session has dropped of the gradients of leaves."""

    __slots__ = ("_area", "_areas", "_groups", "_lately", "_numbers", "_sizes", "last")

    def __init__(self) -> None:
        self.last = 0
        """A sequence number between those of the nodes made before gradients were dropped and after; 0 since a pass."""
        self._groups: dict[Group, int | None] = {}
        """How many times to come the gradients of a group are noted; None: it is not known whether they are to be."""
        self._areas: dict[Group, int] = {}
        self._area = 0
        """That of the group whose gradients were dropped last."""
        self._lately: dict[Group, None] = {}
        """The groups of which it is not known whose gradients were dropped since the last pass."""
        self._sizes: dict[Backend, dict[int, None]] = {}
        self._numbers: dict[tuple[Backend, int], dict[int, int]] = {}
        """By the number of an area of a stream, this number for each of the sizes."""

    def begin(self, leaves: Sequence[int], values: Container[int]) -> tuple[bool, bool]:
        """Return whether gradients of these leaves, which are about to be dropped, never were at once before.

        And whether they are to be noted. Another model, or another optimizer, drops others: each group has its turn,
        whatever came before it, and an area of its own, since gradients of two models that are trained in turn would
        take each other's places. ``values`` has the numbers of all that there is.
        """
        group = len(leaves), *leaves[:1], *leaves[-1:]
        is_new = group not in self._areas
        if is_new:
            self._add(group, values)
        left = self._groups.get(group)
        self._area = self._areas[group]
        if left is None:
            if len(self._lately) >= _MOST_GROUPS:
                self._lately.clear()
            self._lately[group] = None
        elif left:
            self._groups[group] = left - 1
        return is_new, bool(left)

    def _add(self, group: Group, values: Container[int]) -> None:
        """Give a group an area: one that no other has, or whose leaves are gone."""
        areas = {one: area for one, area in self._areas.items() if one[-1] in values}
        if len(areas) >= _MOST_GROUPS:
            areas.clear()
        self._groups = {one: left for one, left in self._groups.items() if one in areas}
        free = set(range(AREAS)).difference(areas.values())
        self._groups[group], areas[group] = None, min(free, default=AREAS - 1)
        self._areas = areas

    def note(self, gradient: Value) -> None:
        """Note the memory of a gradient that is about to be dropped."""
        sizes = self._sizes.get(gradient.backend)
        if sizes is None:
            sizes = self._sizes[gradient.backend] = {}
        if len(sizes) < _MOST_SIZES:
            sizes[gradient.storage.nbytes] = None

    def lived_beside(self, node: Any) -> bool:
        """Return whether gradients were dropped after the first nodes of the graph that ends with this one."""
        last, self.last = self.last, 0
        lives_beside = begins_before(node, last)
        if self._lately:
            if lives_beside:
                self._groups.update(dict.fromkeys(self._lately, _NOTED))
            self._lately.clear()
        return lives_beside

    def begin_pass(self) -> None:
        """Have whatever is as large as a dropped gradient lie apart from here on, until a stream becomes another one.

        Memory of a stream may be used again as soon as it is free, so it is asked for on the one that is current.
        """
        for backend, sizes in self._sizes.items():
            number = apart(backend.stream, self._area)
            numbers = self._numbers.get((backend, number))
            if numbers is None or len(numbers) != len(sizes):
                if len(self._numbers) >= _MOST_GROUPS:
                    self._numbers.clear()
                numbers = self._numbers[backend, number] = dict.fromkeys(sizes, number)
            backend.apart = numbers

    def end_pass(self) -> None:
        """Have nothing lie apart from here on."""
        for backend in self._sizes:
            backend.apart = None
