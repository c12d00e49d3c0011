"""When launches on a session's devices may wait for each other: from one call to the next, within a run.

Knows instructions by their types, and devices only by what backends offer for this.
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
"""Instructions that ask nothing of a device; the mode that changes the stream ends waiting by itself."""


class LaunchScope:
    """The devices of a session that queue launches: all but the host's."""

    __slots__ = ("backends",)

    def __init__(self, backends: Iterable[Backend]) -> None:
        self.backends = [backend for backend in backends if backend.device.type != "cpu"]

    def enter(self, ctx: Context) -> None:
        """Let devices work for the session of ``ctx`` from here on."""
        for backend in self.backends:
            backend.enter(ctx)

    def leave(self, ctx: Context) -> None:
        """Release what devices keep for the session of ``ctx``, which has ended."""
        for backend in self.backends:
            backend.leave(ctx)

    def allow_waiting(self) -> None:
        """Let launches wait from here on."""
        for backend in self.backends:
            backend.allow_waiting()

    def end_waiting(self, flush: bool) -> None:
        """Launch at once from here on; with ``flush`` also what waits, which may wait for the session's next turn."""
        for backend in self.backends:
            backend.end_waiting()
            if flush:
                backend.flush()

    def guarded(self, handlers: dict[type, Handler]) -> dict[type, Handler]:
        """Wrap the handlers that may reach a device by other ways than launches, so that no launch waits there."""
        if not self.backends:
            return handlers
        return {
            kind: handler if kind in _HOST_ONLY else self._after_launches(handler) for kind, handler in handlers.items()
        }

    def _after_launches(self, handler: Handler) -> Handler:
        def run(instruction: Any) -> int | None:
            self.end_waiting(flush=True)
            try:
                return handler(instruction)
            finally:
                self.allow_waiting()

        return run
