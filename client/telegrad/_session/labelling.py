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


class LabelledMethod(NamedTuple):
    """A method of a class, whose label has the name of the class of the object that it is called on after ``text``."""

    kind: Any
    method: str
    text: str


LABELLED: Final[list[Labelled]] = []
LABELLED_METHODS: Final[list[LabelledMethod]] = []
