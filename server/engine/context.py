"""What an operation runs under: modes, generators, stream and owner of the session whose turn it is.

The engine has one thread; ``current`` is set by the session before it runs instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from . import keys
from .random import Generator

if TYPE_CHECKING:
    from telegrad_protocol.meta import Device

    from .backend import Backend


class Context:
    """Modes and resources of one session."""

    __slots__ = ("backends", "excluded", "generators", "grad_enabled", "included", "inference", "owner", "streams", "trace")

    def __init__(self, backends: dict[Device, Backend], owner: int = 0) -> None:
        self.backends = backends
        self.owner = owner
        self.grad_enabled = True
        self.inference = False
        self.included = 0
        self.excluded = 0
        self.generators: dict[Device, Generator] = {device: Generator() for device in backends}
        self.streams: dict[Device, int] = {}
        self.trace: list[str] | None = None

    def set_inference(self, enabled: bool) -> None:
        """Enter or leave inference mode: the Autograd key is taken out of every dispatch."""
        self.inference = enabled
        self.excluded = self.excluded | keys.AUTOGRAD if enabled else self.excluded & ~keys.AUTOGRAD


current: Context = Context({})


def activate(context: Context) -> None:
    """Make ``context`` the one that operations run under."""
    global current
    current = context


@contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    """Record operations on the tape, or do not, within the block."""
    context = current
    previous, context.grad_enabled = context.grad_enabled, enabled
    try:
        yield
    finally:
        context.grad_enabled = previous
