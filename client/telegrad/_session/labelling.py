"""Whose work a profile labels, as those register it. Knows neither them nor the profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple


class Labelled(NamedTuple):
    """A class with a method that has hooks before and after it, and with ``zero_grad``.

    ``before`` and ``after`` register hooks for all objects of the class, and return what removes them.
    """

    kind: Any
    method: str
    before: Callable[[Callable[..., None]], Any]
    after: Callable[[Callable[..., None]], Any]


LABELLED: Final[list[Labelled]] = []
