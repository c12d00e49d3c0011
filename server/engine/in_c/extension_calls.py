"""Calls of extensions' functions of a kind that came before, in C where that is compiled: as ``prepared_call`` says.

What C returns, given a session's values by their numbers and the arguments of a call, is one of these:

* the result, where that is the only memory which was made for the call, and the call has asked for nothing else
* an integer that tells whether the function has thrown, which leaves all that follows to Python
* None where nothing was done, since a tensor is of another kind
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from server.engine.in_c import histories as histories
from server.engine.in_c.values import module
from server.engine.value import CHANGING, Value

MOST_READY: Final[int] = 0 if module is None else module.MOST_READY
"""C makes memory for so many tensors beforehand at most."""
Calling = Callable[[dict[int, Any], list[Any]], Value | int | None]


def prepare(places: dict[str, int]) -> None:
    """Tell C where in the memory that extensions share with their worker everything stands."""
    if module is not None:
        module.prepare_extension_calls({"changing": CHANGING, **places})


def calling(*bound: Any) -> Calling | None:
    """Return what makes a call of the fields that ``extension_calls.h`` names; None where that is Python's."""
    return None if module is None else module.bound_to_extension(bound)
