"""``torch.sym_int`` and its like: arithmetic of sizes, which are plain numbers where nothing is traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_protocol.errors import NotSupportedError


class _NeverMade:
    """A class that programs name in annotations and ask for with ``isinstance``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotSupportedError(f"{type(self).__name__}: sizes are known here, as plain numbers")


class SymInt(_NeverMade):
    """The class of sizes without a number, of which those of ragged dimensions of nested tensors are the only ones."""


class SymFloat(_NeverMade):
    """The class of symbolic floating-point numbers, of which there are none: packages ask for instances."""


class SymBool(_NeverMade):
    """The class of symbolic truth values, of which there are none: packages ask for instances."""


def sym_int(a: Any) -> int:
    """Return a number without its fraction."""
    return int(a)


def sym_float(a: Any) -> float:
    """Return a number as a float."""
    return float(a)


def sym_not(a: Any) -> bool:
    """Return the opposite of a truth value."""
    return not a


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """Return ``t`` where ``b`` holds, else ``f``."""
    return t if b else f


def sym_max(a: Any, b: Any) -> Any:
    """Return the larger number; a float where one of the two is one."""
    return float(max(a, b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """Return the smaller number; a float where one of the two is one."""
    return float(min(a, b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


def sym_sum(args: Sequence[Any]) -> Any:
    """Return the sum of numbers."""
    return sum(args)
