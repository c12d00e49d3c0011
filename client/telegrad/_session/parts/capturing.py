"""Which CUDA graph a thread captures, and what it may not do meanwhile."""

from __future__ import annotations

import threading
from typing import Any, Final

from telegrad_protocol.errors import CaptureError


class _Active(threading.local):
    graph: Any = None
    """The ``CUDAGraph`` that the thread captures."""


active: Final = _Active()


def current() -> Any:
    """Return the graph that the thread captures; None if it captures none, or the session has ended."""
    if active.graph is not None and not active.graph.has_session:
        active.graph = None
    return active.graph


def refuse(name: str) -> None:
    """Raise CaptureError if the thread captures a graph: what waits for the device, or asks it, is not permitted."""
    graph = current()
    if graph is not None:
        graph.invalidate()
        raise CaptureError(
            f"{name}: operation not permitted when stream is capturing; nothing is computed before the graph is "
            "replayed, so do this before the capture or after a replay"
        )
