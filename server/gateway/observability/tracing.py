"""What traces are made of; this one makes none. ``otel`` makes them, where an endpoint is configured.

A trace shows HTTP requests, sessions, turns that took long and instructions that failed, as parts of the trace that
the client's program belongs to (https://www.w3.org/TR/trace-context).
"""

from __future__ import annotations

from typing import Any, Final

from starlette.types import Scope

from server.ipc.measures import InstructionFailed, SlowTurn

QUIET_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""What monitors call all the time, which is in no trace, and in the log at level DEBUG alone."""


class Tracing:
    """Traces nothing."""

    def request_begins(self, scope: Scope) -> Any:
        """Begin to trace an HTTP request or a handshake; what is returned is given to ``request_ends``."""

    def request_ends(self, request: Any, scope: Scope, route: str, status: int, about: dict[str, Any]) -> None:
        """A request was answered; ``about`` has what the log tells of it."""

    def session_opened(self, session: str, about: dict[str, Any], scope: Scope) -> None:
        """A request has opened a session."""

    def session_connected(self, session: str, scope: Scope) -> None:
        """A client has connected to a session, from the trace that its handshake names."""

    def session_ended(self, session: str, reason: str) -> None:
        """A session has ended."""

    def turn(self, session: str, turn: SlowTurn) -> None:
        """A turn of a session took long."""

    def failure(self, session: str, failure: InstructionFailed) -> None:
        """Instructions of a session have failed."""

    def stop(self) -> None:
        """Send what was not sent yet; waits for a bounded time."""
