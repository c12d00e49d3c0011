"""``torch.distributed.algorithms.join``: processes with fewer inputs wait for the others, of which there are none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from telegrad_protocol.errors import ArgumentError


class JoinHook:
    """What a process does for the others once it has no inputs left: no process calls it."""

    def main_hook(self) -> None:
        """Take part in what the others still do together."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Do what is left once all have joined."""


class Joinable(ABC):
    """A class whose objects may be joined, by what its ``join_hook`` returns."""

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return what a process does that has no inputs left."""


class Join:
    """A block in which processes may have different numbers of inputs; among one it changes nothing."""

    def __init__(
        self, joinables: Sequence[Any], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any
    ) -> None:
        if not joinables:
            raise ArgumentError("The join context manager requires at least one joinable")

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None

    @staticmethod
    def notify_join_context(joinable: Any) -> None:
        """Return None, which stands for no communication to wait for."""
        return
