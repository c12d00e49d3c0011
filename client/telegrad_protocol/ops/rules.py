"""Checks and shapes that several families of contracts share."""

from __future__ import annotations

from ..errors import ArgumentError
from ..layout import Size


def check_size(name: str, size: Size) -> Size:
    """``size``, if no dimension is negative."""
    if min(size, default=0) < 0:
        raise ArgumentError(f"{name}: negative dimension in {list(size)}")
    return size
