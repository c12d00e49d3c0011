"""Which Python and NumPy objects are numbers, where a setting must be one."""

from __future__ import annotations

import numbers
from typing import Any


def is_number(value: Any) -> bool:
    """Whether it is an integer or a floating-point number, of Python or NumPy."""
    return isinstance(value, numbers.Real)


def is_integer(value: Any) -> bool:
    """Whether it is an integer, of Python or NumPy."""
    return isinstance(value, numbers.Integral)
