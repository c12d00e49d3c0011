"""The first look at a batch: whether one may have come before that is the same, told in a few microseconds.

Programs whose shapes change in each step send no batch twice, and pay for this alone. Whether two batches are the same
is found by ``patterns``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from telegrad_protocol import messages
from telegrad_protocol.ops import TABLE

from ..numbered import number_in

_OLD: Final = 4096
"""Tensors that were made so many before a batch are parameters and the like, the same ones in each batch."""
_LOOKED_AT: Final = 8
"""Of so many calls of a batch it is looked at what they are."""
_MOST_ODD: Final = 1
"""So many of them may have an attribute that is another each time, such as a position."""
_ATTRIBUTE: Final = 1 << 16
"""Larger integers among the arguments of a call are taken to be numbers of tensors, of which a few may be any."""
_OF_TWO: Final = frozenset([op.index for op in TABLE.values() if 1 in op.tensor_positions])
"""Operations whose second argument is a tensor: in most layers that is the weight, which tells layers apart."""


class Look(NamedTuple):
    """What the first look at a batch has found.

    ``first`` is the first number that the batch gives out; ``key`` is a hash of what it shares with others that are the
    same, which are operations and ids of old tensors; ``sample`` has the arguments of the calls that were looked at.
    """

    first: int
    key: int
    sample: list[Sequence[Any]]

    def may_be_same(self, before: Look) -> bool:
        """Return whether this batch and one before may differ in numbers of tensors, and in little else."""
        distance = self.first - before.first
        odd = [
            1 for these, those in zip(self.sample, before.sample) if not _may_be_same(these, those, distance)
        ]  # fmt: skip
        return len(odd) <= _MOST_ODD


def look_at(size: int, instructions: Sequence[Any]) -> Look:
    """Look at some of the calls of a batch of so many bytes: all batches that do not come again pay for this."""
    calls = [one for one in instructions if one.__class__ is messages.Call]
    sample = calls[:: max(len(calls) // _LOOKED_AT, 1)]
    first = calls[0].outs[0] if calls and calls[0].outs else 0
    oldest = first - _OLD
    key = [one.op for one in sample]
    if oldest > 0:
        seconds = [one.args[1] for one in calls if one.op in _OF_TWO and len(one.args) > 1]
        key += [id for id in seconds if id.__class__ is int and id < oldest]
    return Look(first, hash((size, len(instructions), *key)), [one.args for one in sample])


def _may_be_same(these: Sequence[Any], those: Sequence[Any], distance: int) -> bool:
    """Return whether arguments are the same, numbers of tensors aside; lists that may have such are taken to be."""
    for here, there in zip(these, those):
        if here.__class__ is list and here and here[0].__class__ is int:
            continue
        if here.__class__ is int and there.__class__ is int and min(here, there) > _ATTRIBUTE:
            continue  # tensors, or what is hardly met
        if here != there and not (here.__class__ is int and there.__class__ is int and here - there == distance):
            if number_in(here).__class__ is float and number_in(there).__class__ is float:
                continue  # a number that is another one each time
            return False
    return True
