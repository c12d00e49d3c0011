"""Numbers of a batch that are others each time it comes: which ones a stretch can hold, and where they stand.

A number that changes, such as a step size or a weight that is annealed, is read from the bytes of each batch, and by
the launches of the operation (``engine.replay.varying``). So it divides no stretch. Knows bytes and constants, and
nothing of how stretches are executed.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from server.engine.operators import BY_INDEX
from server.engine.replay.varying import varies
from telegrad_protocol import messages, wire

Place: TypeAlias = tuple[int, int]
"""An operation, and the line of the program that calls it."""
Apart: TypeAlias = tuple[int, Any, Any]
"""Which constant of an instruction differs in two batches, and what it is in both."""
_PLAIN: Final = frozenset((int, str, bool, bytes, type(None)))
"""Types of constants that are the same where they are equal."""
_DOUBLE: Final = struct.Struct(">d")
_BEFORE: Final = b"\xcb"
"""What a number of double precision is preceded by."""


class Numbered(NamedTuple):
    """A number of an instruction: which of the constants it is, and how far from where the bytes begin it stands.

    In the place of a tensor it is a list of its own.
    """

    constant: int
    offset: int
    is_list: bool


def place_of(call: messages.Call) -> Place:
    """Return what is remembered of a call whose numbers turned out to be needed before it is launched."""
    return call.op, call.site


def differing(
    here: Any, there: Any, apart: Sequence[Apart], fixed: Collection[Place], keys: int
) -> list[Numbered] | None:  # fmt: skip
    """Return the numbers in which an instruction of two batches differs; None where it differs in more.

    ``fixed`` are places where numbers have to be the same, ``keys`` those of the session's devices.
    """
    if not apart:
        return []
    if here.__class__ is not messages.Call or place_of(here) in fixed or not _reads_numbers(here.op, keys):
        return None
    numbers = [(number_in(a), number_in(b)) for _, a, b in apart]
    if not all([varies(a) and varies(b) for a, b in numbers]):
        return None
    offsets = [(_offset(here, a), _offset(there, b)) for a, b in numbers]
    if not all([a == b != -1 for a, b in offsets]):
        return None
    return [Numbered(n, at, isinstance(a, list)) for (n, a, _), (at, _) in zip(apart, offsets, strict=True)]


def number_in(constant: Any) -> Any:
    """Return the number that a constant is, also in the place of a tensor; anything else as it is."""
    return constant[0] if constant.__class__ is list and len(constant) == 1 else constant


def is_same(a: Any, b: Any) -> bool:
    """Return whether constants are the same to the bit: 0.0 is not -0.0, and nan is nan."""
    kind = a.__class__
    if kind is b.__class__ and kind in _PLAIN:
        return bool(a == b)
    return wire.encoder.encode(a) == wire.encoder.encode(b)


def _reads_numbers(operation: int, keys: int) -> bool:
    operator = BY_INDEX[operation]
    return bool(operator.reads_numbers & keys) and operator.composite is None


def _offset(instruction: Any, number: float) -> int:
    """Return how far from where an instruction begins a number of it stands; -1 where that is not certain."""
    encoded, wanted = wire.encoder.encode(instruction), _BEFORE + _DOUBLE.pack(number)
    place = encoded.find(wanted)
    return place + len(_BEFORE) if place >= 0 and encoded.find(wanted, place + 1) < 0 else -1


class Numbers:
    """The numbers of a stretch: their positions among its constants, and where they stand in a batch."""

    __slots__ = ("_are_lists", "_offsets", "constants", "holes")

    def __init__(self, numbered: Sequence[Numbered]) -> None:
        self.constants = tuple([one.constant for one in numbered])
        self._offsets = tuple([one.offset for one in numbered])
        self._are_lists = tuple([one.is_list for one in numbered])
        self.holes = [(offset, offset + _DOUBLE.size) for offset in self._offsets]
        """Where the bytes of a batch begin and end that may be others."""

    def of(self, body: memoryview) -> tuple[float, ...]:
        """Return them as a batch has them."""
        return tuple([_DOUBLE.unpack_from(body, offset)[0] for offset in self._offsets])

    def as_constants(self, numbers: Sequence[float]) -> list[tuple[int, Any]]:
        """Return the constants that numbers are."""
        made = zip(self.constants, numbers, self._are_lists, strict=True)
        return [(constant, [number] if is_list else number) for constant, number, is_list in made]
