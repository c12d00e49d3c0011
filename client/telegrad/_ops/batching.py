"""The levels of ``vmap`` that a thread is in, and how deep it is in functions that differentiate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Level(NamedTuple):
    """One level: the size of its batch, what ``vmap`` was told about random numbers, and ``derivatives`` outside of it.

    ``derivatives`` is the number of functions that differentiate, such as ``func.grad``, which contain the level.
    """

    size: int
    randomness: str
    derivatives: int


class _Batching(threading.local):
    """``levels`` of a thread, the innermost last, and the number of ``derivatives`` that it is computing.

    ``draw`` runs an operation that draws random numbers, in a level.
    """

    levels: tuple[Level, ...] = ()
    derivatives = 0
    draw: Callable[..., Any] | None = None


batching = _Batching()


@contextmanager
def entered(level: Level) -> Iterator[int]:
    """Be in one more level in this block, and yield its number."""
    before = batching.levels
    batching.levels = (*before, level)
    try:
        yield len(before) + 1
    finally:
        batching.levels = before


@contextmanager
def below(number: int) -> Iterator[Level]:
    """Leave the level of this number, and all inside of it, in this block; yield it."""
    before = batching.levels
    batching.levels = before[: number - 1]
    try:
        yield before[number - 1]
    finally:
        batching.levels = before


@contextmanager
def differentiating() -> Iterator[None]:
    """Be inside of one more function that differentiates in this block."""
    batching.derivatives += 1
    try:
        yield
    finally:
        batching.derivatives -= 1
