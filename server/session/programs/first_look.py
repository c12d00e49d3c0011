"""The first look at a batch: whether one may have come before that is the same, told in a few microseconds.

Programs whose shapes change in each step send no batch twice, and pay for this alone. Whether two batches are the same
is found by ``recurring``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from telegrad_protocol import messages

_OLD: Final = 4096
"""Tensors that were made so many before a batch are parameters and the like, the same ones in each batch."""
_LOOKED_AT: Final = 8
"""Of so many calls of a batch it is looked at what they are."""
_UNSURE: Final = 16
"""So many bytes at the end of what is looked at may be those of a number that goes on after it."""


def key_of(body: bytes, instructions: Sequence[Any]) -> tuple[int, int]:
    """Return the first number that a batch gives out, and a hash of what it shares with others that are the same.

    These are operations, and numbers that are no new tensors' ids. All batches that do not come again pay for this, so
    only some of the calls are looked at.
    """
    count = len(instructions)
    calls = [one for one in instructions[:: max(count // _LOOKED_AT, 1)] if one.__class__ is messages.Call]
    first = calls[0].outs[0] if calls and calls[0].outs else 0
    oldest = first - _OLD
    key = [one.op for one in calls]
    if oldest > 0:
        key += [arg for one in calls for arg in one.args if arg.__class__ is int and arg < oldest]
    return first, hash((len(body), count, *key))


def may_be_same(before: bytes, body: bytes, distance: int) -> bool:
    """Return whether two batches may differ in numbers of tensors alone; told quickly, of the first quarter of them.

    If so, the bytes of the one less those of the other are so many times a number whose bytes are 0 or 1. The last
    bytes of what is looked at may be a part of a number.
    """
    size = len(body) // 4
    if distance <= 0 or size <= _UNSURE:
        return True
    places = (_number(body[:size]) - _number(before[:size])) // distance >> 8 * _UNSURE
    return places >= 0 and not places & ~_number(b"\1" * size)


def _number(body: bytes) -> int:
    return int.from_bytes(body, "big")
