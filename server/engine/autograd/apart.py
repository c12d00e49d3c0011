"""Gradients that live while the next graph is made lie apart from the rest of memory.

A program may drop its gradients before its forward pass, or later. Where it does so later, the forward pass takes
memory around them. Then where the last gradients lie decides where all else lies, and that decides where the next ones
will. So states of memory come again late, and neither the allocator nor captured passes learn anything until then.
Apart from the rest, gradients lie where they lay, and so does all else. They take no more memory for that: they are
there beside the forward pass anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from server.allocator.core.block import apart
from server.allocator.native_calls import module
from server.engine.value import Backend, Value

_MOST_SIZES: Final = 1024
"""So many sizes of gradients are told apart; the gradients of others lie with the rest."""
_NOTED: Final = 16
"""So many times gradients are noted as they are dropped, which is a few steps of all optimizers of a program."""


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

    __slots__ = ("_numbers", "last", "to_note")

    def __init__(self) -> None:
        self.to_note = 0
        """Of so many times to come that gradients are dropped, their memory is noted."""
        self.last = 0
        """A sequence number between those of the nodes made before gradients were dropped and after; 0 since a pass."""
        self._numbers: dict[Backend, dict[int, int]] = {}

    def note(self, gradient: Value) -> None:
        """Note the memory of a gradient that is about to be dropped."""
        backend, nbytes = gradient.backend, gradient.storage.nbytes
        numbers = self._numbers.get(backend)
        if numbers is None:
            numbers = self._numbers[backend] = {}
        if nbytes not in numbers and len(numbers) < _MOST_SIZES:
            numbers[nbytes] = next(iter(numbers.values()), apart(backend.stream))

    def lived_beside(self, node: Any) -> bool:
        """Return whether gradients were dropped after the first nodes of the graph that ends with this one."""
        last, self.last = self.last, 0
        if not begins_before(node, last):
            return False
        if not self._numbers:
            self.to_note = _NOTED
        return True

    def begin_pass(self) -> None:
        """Have whatever is as large as a dropped gradient lie apart from here on, until a stream becomes another one.

        Memory of a stream may be used again as soon as it is free, so it is asked for on the one that is current.
        """
        for backend, numbers in self._numbers.items():
            number = apart(backend.stream)
            if next(iter(numbers.values())) != number:
                self._numbers[backend] = numbers = dict.fromkeys(numbers, number)
            backend.apart = numbers

    def end_pass(self) -> None:
        """Have nothing lie apart from here on."""
        for backend in self._numbers:
            backend.apart = None
