"""Checks of arguments that must be numbers."""

from __future__ import annotations

import numbers
from typing import Any


def is_number(value: Any) -> bool:
    """Tell whether ``value`` is a real number of Python or NumPy."""
    return isinstance(value, numbers.Real)


def is_integer(value: Any) -> bool:
    """Tell whether ``value`` is an integer of Python or NumPy."""
    return isinstance(value, numbers.Integral)
