"""Ranges and marks for NVIDIA's profilers, under ``torch.cuda.nvtx``'s names. They are accepted and go nowhere.

Such a profiler watches one process, and the GPU's work is in the server's. Programs that mark their ranges run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_NOT_TRACKED: Final = -2
"""What NVIDIA's library returns for a depth where no profiler listens."""


def range_push(msg: str) -> int:
    """Begin a range."""
    return _NOT_TRACKED


def range_pop() -> int:
    """End the range that was begun last."""
    return _NOT_TRACKED


def range_start(msg: str) -> int:
    """Begin a range that may end in another thread; return its number."""
    return 0


def range_end(range_id: int) -> None:
    """End the range of this number."""


def mark(msg: str) -> None:
    """Mark a moment."""


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Mark a block or, as a decorator, a function; ``msg`` is a format for the other arguments."""
    range_push(msg.format(*args, **kwargs))
    yield
    range_pop()
