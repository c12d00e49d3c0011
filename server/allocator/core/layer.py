"""What the layers of the allocator ask of each other, from the top of the stack down to the core.

Knows only what a block is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from server.allocator.core.block import Block


class Layer(Protocol):
    """Something that hands out blocks and takes them back; a layer holds the one below it as such."""

    def allocate(self, nbytes: int, stream: int, owner: int) -> Block: ...
    def free(self, block: Block) -> None: ...


class Calls(NamedTuple):
    """A layer made of two functions."""

    allocate: Callable[..., Block]
    free: Callable[[Block], None]


class CoreObserver(Protocol):
    """A layer that defers calls, and is told when the core is about to look at blocks or totals, or changed some."""

    def before_release(self) -> None:
        """Free segments are about to go back to the upstream, or streams to be waited for."""

    def before_inspection(self) -> None:
        """Totals and blocks are about to be read."""

    def before_bypass_changes(self) -> None:
        """Whether layers above may answer calls themselves is about to be decided anew."""

    def after_completion(self, block: Block) -> None:
        """A block whose events have passed was put back into its pool."""


class NoObserver:
    """An observer that does nothing, for a core without a layer that defers calls."""

    def before_release(self) -> None: ...
    def before_inspection(self) -> None: ...
    def before_bypass_changes(self) -> None: ...
    def after_completion(self, block: Block) -> None: ...
