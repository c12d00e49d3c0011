"""The mark by which PyTorch's functions say whether their interface stays; here it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def compatibility(is_backward_compatible: bool) -> Callable[[T], T]:
    """Return a decorator that returns what it decorates."""
    return lambda decorated: decorated
