"""What a call that is watched has been seen to depend on."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor

from . import purity
from .conditions import Conditions


class Notes:
    """What the functions of one call have been seen to depend on."""

    def __init__(self) -> None:
        self.conditions = Conditions()
        self.reason = ""
        self.made: dict[int, Any] = {}
        """Containers that were made in the call, by ``id``."""
        self.given: dict[int, Any] = {}
        """Containers among its arguments, whose content is compared with them."""
        self.arguments: frozenset[int] = frozenset()
        """Numbers of the tensors among its arguments."""
        self.tensors: dict[int, Tensor] = {}
        """Other tensors that were there before the call, by number."""
        self.returned: frozenset[int] = frozenset()
        """The ``id`` of each container that was made, as long as those live that are returned."""
        self.depth = 0

    def refuse(self, reason: str) -> None:
        """Note why the call cannot be left out; the first reason stays."""
        self.reason = self.reason or reason

    def make(self, container: Any) -> Any:
        """Note a container that was made in the call."""
        if container.__class__ in purity.CONTAINERS or container.__class__ in purity.ITERATORS:
            self.made[id(container)] = container
        return container

    def forget(self) -> None:
        """Let go of what was made, once the call has ended; which containers were made stays known."""
        self.returned = frozenset(self.made)
        self.made.clear()

    def knows(self, container: Any) -> bool:
        """Whether what a container holds follows from what the call does."""
        return id(container) in self.made or id(container) in self.given
