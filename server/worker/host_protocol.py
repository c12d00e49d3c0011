"""What the worker's loop wants of the engine that it serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .connection import Session


class Host(Protocol):
    """What the loop wants of the engine."""

    has_cpu: bool
    """Whether sessions may have tensors on the CPU."""

    def open(self, number: int, options: dict[str, Any]) -> Session: ...
    def control(self, session: Any, name: str, args: list[Any]) -> Any:
        """Answer a request about a session, or about the host where ``session`` is None."""

    def hello(self) -> dict[str, Any]: ...
    def check_devices(self, error: Exception) -> None:
        """Raise WorkerCrashedError if, after this error, no session can go on."""

    def request_pause(self, give_way: Callable[[], None]) -> None:
        """Have ``give_way`` called where the work that goes on can be left for a while. Signal handlers call this."""
