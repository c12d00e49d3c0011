"""Waiting for what must become true."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 30.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Look until ``condition`` holds; fail by name if it does not."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_SECONDS:g} s"
        time.sleep(0.01)
