"""The levels of ``vmap`` that a thread is in, for operators that have a rule of their own for batches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Level(NamedTuple):
    """One level: what ``vmap`` was told about random numbers, and the tensors that all elements of the batch share."""

    randomness: str
    shared: frozenset[int]
    """What Python calls these tensors, by ``id``."""


class _Batching(threading.local):
    levels: tuple[Level, ...] = ()


batching = _Batching()


@contextmanager
def entered(level: Level) -> Iterator[None]:
    """Be in one more level in this block."""
    before, batching.levels = batching.levels, (*batching.levels, level)
    try:
        yield
    finally:
        batching.levels = before


@contextmanager
def left() -> Iterator[Any]:
    """Leave the innermost level in this block, and yield it."""
    before, batching.levels = batching.levels, batching.levels[:-1]
    try:
        yield before[-1]
    finally:
        batching.levels = before
