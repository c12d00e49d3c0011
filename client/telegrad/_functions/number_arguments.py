"""Numbers that functions take as Python's floats."""

from __future__ import annotations

from typing import Any

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError


def number_of(name: str, given: Any) -> float:
    """An argument as a number, whether there is anything to use it on or not."""
    try:
        return float(given)
    except ValueError:
        raise ArgumentError(f"{name} must be a number, not {given!r}") from None
    except TypeError:
        raise ArgumentTypeError(f"{name} must be a number, not {given!r}") from None
