"""Which CUDA graph a thread captures, and what it may not do meanwhile."""

from __future__ import annotations

import threading
from typing import Any, Final

from telegrad_protocol.errors import CaptureError


class _Active(threading.local):
    graph: Any = None
    """The ``CUDAGraph`` that the thread captures."""


active: Final = _Active()


def refuse(name: str) -> None:
    """Raise CaptureError if the thread captures a graph: what waits for the device, or asks it, is not permitted."""
    if active.graph is not None:
        active.graph.invalidate()
        raise CaptureError(
            f"{name}: operation not permitted when stream is capturing; nothing is computed before the graph is "
            "replayed, so do this before the capture or after a replay"
        )
