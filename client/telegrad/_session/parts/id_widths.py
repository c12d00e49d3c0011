"""How many bytes the ids of tensors take in MessagePack."""

from __future__ import annotations

from typing import Final

_BYTES_UP_TO: Final = ((1 << 7, 1), (1 << 8, 1), (1 << 16, 2), (1 << 32, 4))
"""Integers below the first number take so many bytes, behind the byte that says how many."""


def width_of(id: int) -> tuple[int, int]:
    """Return what ids of the same width are below, and how many bytes they take."""
    return next(((most, width) for most, width in _BYTES_UP_TO if id < most), (1 << 64, 8))
