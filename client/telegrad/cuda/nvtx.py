"""Ranges and marks for NVIDIA's profilers, under ``torch.cuda.nvtx``'s names.

Such a profiler watches one process, and the GPU's work is in the server's. So within a block of
``autograd.profiler.emit_nvtx`` they travel to the worker, which emits them in the order of its work. Elsewhere they are
accepted and go nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from telegrad._session.labelling import emissions

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_NOT_TRACKED: Final = -2
"""What NVIDIA's library returns for a depth where no profiler listens."""


def range_push(msg: str) -> int:
    """Begin a range; return its depth among those of this thread, from zero."""
    return emissions[0].push(msg) if emissions else _NOT_TRACKED


def range_pop() -> int:
    """End the range that was begun last; return its depth."""
    depth = emissions[0].pop() if emissions else None
    return _NOT_TRACKED if depth is None else depth


def range_start(msg: str) -> int:
    """Begin a range that may end in another thread; return its number."""
    return emissions[0].start(msg) if emissions else 0


def range_end(range_id: int) -> None:
    """End the range of this number."""
    if emissions:
        emissions[0].end(range_id)


def mark(msg: str) -> None:
    """Mark a moment."""
    if emissions:
        emissions[0].mark(msg)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Mark a block or, as a decorator, a function; ``msg`` is a format for the other arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
