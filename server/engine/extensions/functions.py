"""The functions of extensions that one session has loaded, by the numbers by which its client calls them."""

from __future__ import annotations

from typing import Any, NamedTuple

from telegrad_protocol.meta import Meta

from .library import Library
from .prepared_call import PreparedCall


class SessionFunction(NamedTuple):
    """A function of an extension, by the name that its errors have."""

    library: Library
    number: int
    name: str


class Plan(NamedTuple):
    """What a call of one kind returns but for the elements, and how it is made; None where nothing is prepared.

    ``fresh`` is the meta of the result where that is one new tensor with memory of its own and without a gradient.
    """

    expected: Any
    prepared: PreparedCall | None
    name: str
    fresh: Meta | None


class Extensions:
    """What a session has loaded: its functions by number, and what calls of one kind return."""

    def __init__(self, plans: dict[int, Plan]) -> None:
        self.functions: list[SessionFunction] = []
        self.plans = plans

    def name_of(self, function: int) -> str:
        """Return the name of a function by its number, as failures name what has failed."""
        return self.functions[function].name if 0 <= function < len(self.functions) else "extension"
