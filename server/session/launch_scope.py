"""The devices of a session whose launches may wait for each other, and when they may: between calls.

Knows sessions' instructions by their types; knows no device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from server.engine.context import Context
from server.engine.value import Backend
from telegrad_protocol import messages

Handler = Callable[[Any], "int | None"]
_HOST_ONLY: frozenset[type] = frozenset(
    (messages.Free, messages.Site, messages.Mode, messages.Describe, messages.Resume)
)
"""What never asks anything of a device; another stream that is set as a mode sees to itself."""


class Accelerators:
    """All that are no host."""

    __slots__ = ("backends",)

    def __init__(self, backends: Iterable[Backend]) -> None:
        self.backends = [backend for backend in backends if backend.device.type != "cpu"]

    def enter(self, ctx: Context) -> None:
        """Work for a session from here on."""
        for backend in self.backends:
            backend.enter(ctx)

    def leave(self, ctx: Context) -> None:
        """The session has ended."""
        for backend in self.backends:
            backend.leave(ctx)

    def let_wait(self) -> None:
        """Launches may wait from here on."""
        for backend in self.backends:
            backend.allow_waiting()

    def end_waiting(self, flush: bool) -> None:
        """Launch at once from here on; what waits need not where a run of the session's goes on in its next turn."""
        for backend in self.backends:
            backend.end_waiting()
            if flush:
                backend.flush()

    def guarded(self, handlers: dict[type, Handler]) -> dict[type, Handler]:
        """Handlers of instructions; those that may come to a device by other ways than launches let none wait."""
        if not self.backends:
            return handlers
        return {kind: each if kind in _HOST_ONLY else self._after_launches(each) for kind, each in handlers.items()}

    def _after_launches(self, handler: Handler) -> Handler:
        def run(instruction: Any) -> int | None:
            self.end_waiting(flush=True)
            try:
                return handler(instruction)
            finally:
                self.let_wait()

        return run
