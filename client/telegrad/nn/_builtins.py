"""Which functions of telegrad's are builtins in PyTorch."""

from __future__ import annotations

from types import FunctionType
from typing import Any, Final

from telegrad._ops import functions

_MADE_THERE: Final = functions.__file__


def is_builtin(value: Any) -> bool:
    """Tell whether a value is a function of an operation; one that a class has is no method in PyTorch."""
    is_made_there = isinstance(value, FunctionType) and value.__code__.co_filename == _MADE_THERE
    return is_made_there and any([value is run for run in functions._CACHE.values()])
