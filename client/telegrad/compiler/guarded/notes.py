"""What a call that is watched has been seen to depend on."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor

from . import purity
from .arguments import operation_of
from .conditions import Conditions
from .effects.lasting import Effect
from .gradients import GradientNotes


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
        self._nodes: dict[int, Any] = {}
        """What these had been computed by when they were first met."""
        self.given_tensors: list[Tensor] = []
        """The tensors among its arguments, while it runs."""
        self.gradients = GradientNotes()
        self.rates: list[Any] = []
        """By update of an optimizer, in order: the group whose learning rate it takes; None for one that stays."""
        self.effects: list[Effect] = []
        """What the call has done, in order, that can be done again after its run."""
        self.scalers: dict[int, Any] = {}
        """Scalers of losses whose methods were called, by ``id``."""
        self.returned: frozenset[int] = frozenset()
        """The ``id`` of each container that was made, as long as those live that are returned."""

    def refuse(self, reason: str) -> None:
        """Note why the call cannot be left out; the first reason stays."""
        self.reason = self.reason or reason

    def act(self, effect: Effect, *changed: Any) -> None:
        """Note an effect, which changes these dicts and lists: nothing is to be read of them any more."""
        self.effects.append(effect)
        self.conditions.note_changes(changed)

    def take(self, tensor: Tensor) -> None:
        """Note a tensor that was there before the call, with the condition that it lies as it does."""
        if tensor._aliases is not None:
            tensor._refresh()
        self.tensors[tensor._id] = tensor
        self._nodes[tensor._id] = operation_of(tensor)
        self.conditions.tensor(tensor)

    def have_kept_histories(self) -> bool:
        """Whether the tensors that were there before are differentiated as they were."""
        return all([operation_of(tensor) is self._nodes[id] for id, tensor in self.tensors.items()])

    def make(self, container: Any) -> Any:
        """Note a container that was made in the call."""
        kind = type(container)
        if kind in purity.CONTAINERS or kind in purity.ITERATORS or purity.is_sequence(kind):
            self.made[id(container)] = container
        return container

    def forget(self) -> None:
        """Let go of what was made, once the call has ended; which containers were made stays known."""
        self.returned = frozenset(self.made)
        self.made.clear()
        self.given_tensors = []

    def knows_tensor(self, id: int) -> bool:
        """Whether it is known where a tensor comes from that was there before the call."""
        return id in self.arguments or id in self.tensors or id in self.gradients.by_number

    def knows(self, container: Any) -> bool:
        """Whether what a container holds follows from what the call does."""
        return id(container) in self.made or id(container) in self.given
