"""Functions for which a program has registered kernels of its own: their calls go there instead of to the server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from .operand_classes import PATTERNS

REPLACED: Final[dict[str, Callable[[tuple[Any, ...], dict[str, Any]], Any]]] = {}
"""What runs a call, by the public name of the function. Functions keep no patterns of calls while they are in here."""


class _Passed(threading.local):
    names: tuple[str, ...] = ()


_passed = _Passed()


def replace(public: str, run: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> None:
    """Have ``run`` answer the calls of a function."""
    REPLACED[public] = run
    for patterns in PATTERNS:
        patterns.clear()


@contextmanager
def passing(public: str) -> Iterator[None]:
    """Have calls of a function in this block computed as if nothing replaced it."""
    before, _passed.names = _passed.names, (*_passed.names, public)
    try:
        yield
    finally:
        _passed.names = before


def replacement_of(public: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Any] | None:
    """Return what runs a call of a function in this thread; None if that is the function itself."""
    return None if public in _passed.names else REPLACED.get(public)
