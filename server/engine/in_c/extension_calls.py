"""Calls of extensions' functions of a kind that came before, in C where that is compiled: as ``prepared_call`` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from server.crash_notes import notes
from server.engine.in_c import histories as histories
from server.engine.in_c import launches as launches
from server.engine.in_c.values import module
from server.engine.value import CHANGING, Value
from telegrad_protocol import dtypes

MOST_READY: Final[int] = 0 if module is None else module.MOST_READY
"""C makes memory for so many tensors beforehand at most."""
Calling = Callable[[dict[int, Any], list[Any]], Value | tuple[Any, list[Value]] | None]


def prepare(places: dict[str, int]) -> None:
    """Tell C where in the memory that extensions share with their worker everything stands."""
    if module is not None:
        module.prepare_extension_calls({"changing": CHANGING, "notes": notes, "dtypes": vars(dtypes), **places})


def calling(*bound: Any) -> Calling | None:
    """Return what makes a call of the fields that ``extension_calls.h`` names; None where that is Python's."""
    return None if module is None else module.bound_to_extension(bound)
