"""Instructions of two batches beside each other: which tensors stand for which, and which constants are others.

Knows nothing of what a batch is made of, nor of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from telegrad_protocol import messages
from telegrad_protocol.programs.rows import Flat, holds_lists

from ..numbered import Apart, is_same

NONE_MADE: Final = 1 << 64
"""Where a batch makes no tensor: a number above those of all tensors."""


class DifferentError(Exception):
    """Two batches differ in more than a pattern allows."""


class Pair(NamedTuple):
    """Two instructions that differ in tensors and constants alone.

    ``ids`` has the number of each tensor in both, in the order of rows; ``constants`` is how many they have, of which
    those that are ``apart`` are others.
    """

    here: Any
    there: Any
    ids: list[tuple[int, int]]
    constants: int
    apart: list[Apart]


def pair_of(here: Any, there: Any) -> Pair:
    """Return a pair of instructions; DifferentError where they do not do the same."""
    kind = here.__class__
    if kind is not there.__class__:
        raise DifferentError
    if kind is not messages.Call:
        return _others(here, there)
    if here.op != there.op or here.site != there.site or len(here.args) != len(there.args):
        raise DifferentError
    ids: list[tuple[int, int]] = []
    constants: list[tuple[Any, Any]] = []
    for holds_list, a, b in zip(holds_lists(here.op), here.args, there.args):
        if holds_list is not None and a.__class__ is int and b.__class__ is int:
            ids.append((a, b))
        elif holds_list is None or not _is_tensors(a, b, holds_list):
            constants.append((a, b))
        elif a is not None:
            ids += _each(a, b)
    ids += _each(here.outs, there.outs)
    if here.freed or there.freed:
        ids += _each(here.freed, there.freed)
    apart = [(n, a, b) for n, (a, b) in enumerate(constants) if not (a is b or is_same(a, b))]
    return Pair(here, there, ids, len(constants), apart)


def _others(here: Any, there: Any) -> Pair:
    """Return a pair of instructions that have no constants."""
    flat, other = Flat([here], NONE_MADE), Flat([there], NONE_MADE)
    if flat.rows != other.rows or flat.constants or other.constants:
        raise DifferentError
    return Pair(here, there, list(zip(flat.inputs, other.inputs, strict=True)), 0, [])


def _is_tensors(a: Any, b: Any, holds_list: bool) -> bool:
    """Whether what stands in the place of tensors is none, or a list of them; False for a number in both."""
    kinds = [one is None or (holds_list and one.__class__ is not int) for one in (a, b)]
    if kinds[0] is not kinds[1] or (a is None) is not (b is None) or int in (a.__class__, b.__class__):
        raise DifferentError
    return kinds[0]


def _each(here: Iterable[int | None], there: Iterable[int | None]) -> Iterator[tuple[int, int]]:
    these, those = list(here), list(there)
    if len(these) != len(those):
        raise DifferentError
    for a, b in zip(these, those):
        if a is not None and b is not None:
            yield a, b
        elif a is not b:
            raise DifferentError


def numbers_there(pairs: Sequence[Pair], first: int, distance: int) -> dict[int, int]:
    """Return the number that stands for each tensor of some pairs; DifferentError where it is not one for each.

    What they make has numbers above ``first``, and so far from these in the other batch.
    """
    there: dict[int, int] = {}
    for pair in pairs:
        for a, b in pair.ids:
            if there.setdefault(a, b) != b or (a > first and b - a != distance) or (a <= first < b - distance):
                raise DifferentError
    if len(set(there.values())) != len(there):
        raise DifferentError
    return there
