"""What a batch that came twice consists of: stretches of calls that are executed as one, and what is between them.

A pattern is found by comparing two batches, instruction by instruction. Most differ in numbers of tensors alone, which
move together, but for a few (``taken``). A few may have a number that is another each time, such as the position of a
token: these are decoded anew. Whether a later batch is the same is told by its bytes, see ``layouts``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from itertools import groupby
from operator import or_
from typing import Any, Final, NamedTuple, TypeAlias

from server.engine.context import Held
from server.session.state import SessionState
from telegrad_protocol import messages, wire
from telegrad_protocol.programs.rows import Flat, Template, is_writable

from ..ending import RunStretch
from ..holding import Holding, divides_of
from ..numbered import Numbered, Numbers, Place, differing
from ..stretches import FEWEST, MOST_REFUSALS, Stretch
from ..taken import Taken, places_of
from .layouts import Layout, layout_of, least_as_wide, most_as_wide
from .pairs import NONE_MADE, DifferentError, Pair, numbers_there, pair_of

_BYTES_OF_A_ROW: Final = 2000
"""What the host holds for an instruction of a pattern."""
_CHANGING: Final = 8
"""One of so many instructions may differ in more than numbers of tensors."""


class _Difference(NamedTuple):
    """What two instructions differ in beside numbers of tensors that move: other numbers, and any tensors.

    Of each tensor it has the number in both, and where the bytes of these stand in the instruction.
    """

    numbers: list[Numbered]
    tensors: dict[int, tuple[int, list[tuple[int, int]]]]


class _Others:
    """Instructions of a pattern that are executed one by one."""

    def __init__(self, flat: Flat, first: int, taken: Taken) -> None:
        self._template = Template(len(flat.inputs), flat.rows, flat.constants)
        self._first, self._taken = first, taken
        self.holes = taken.holes
        """Where bytes begin and end that may be others."""

    def instructions(self, distance: int, body: memoryview) -> list[Any]:
        """Return them with the numbers of tensors so far from the first ones; DifferentError for others."""
        first = self._first + distance
        inputs = self._taken.at(distance, body, first)
        if inputs is None:
            raise DifferentError
        return self._template.instructions(self._template.ids(first, inputs))


class _Changing:
    """Instructions of which one is another each time: decoded from bytes of the batch, and executed one by one."""

    def __init__(self, count: int, begin: int, end: int) -> None:
        self._header = wire.encode_batch([None] * count)[:-count]
        self._begin, self._end = begin, end
        self.holes = ((begin, end),)

    def instructions(self, _: int, body: memoryview) -> list[Any]:
        """Return what a batch has in this place; ProtocolError where it has something else in it."""
        return wire.decode_instructions(self._header + bytes(body[self._begin : self._end]))


_Part: TypeAlias = "Stretch | _Others | _Changing"


class Sighting(NamedTuple):
    """A batch that came once: the bytes of its message and the instructions in it."""

    body: bytes
    instructions: list[Any]

    @property
    def is_usual(self) -> bool:
        """Whether its bytes are those that the instructions are encoded as here: any others may mean the same."""
        return wire.encode_batch(self.instructions) == self.body

    def ends(self) -> list[int]:
        """Return where the bytes of each instruction end, and of what is before all of them."""
        sizes = [len(wire.encoder.encode(one)) for one in self.instructions]
        ends = [len(self.body) - sum(sizes)]
        for size in sizes:
            ends.append(ends[-1] + size)
        return ends


class Pattern:
    """A batch that came twice: the parts that it consists of, and between what its numbers of tensors may be.

    What is at its end and cannot come again, such as a read with its number, is no part of it.
    """

    __slots__ = ("_divides", "_held", "_known", "_stretches", "count", "first", "least", "most", "parts")

    def __init__(
        self, state: SessionState, count: int, first: int, moved: Sequence[int], parts: Sequence[_Part]
    ) -> None:
        self.count, self.first, self.parts = count, first, tuple(parts)
        self._stretches = [part for part in parts if isinstance(part, Stretch)]
        self.least = first + max([least_as_wide(id) - id for id in moved])
        self.most = first + min([most_as_wide(id) - id for id in moved])
        self._held = Held(state.host_memory, count * _BYTES_OF_A_ROW)
        self._divides, self._known = divides_of(state), 0
        """What no stretch holds, which only grows, and how much of it the stretches were compared with."""

    @property
    def is_useless(self) -> bool:
        """Whether all that could be executed as one never is."""
        return all([one.refusals >= MOST_REFUSALS for one in self._stretches])

    @property
    def is_divided(self) -> bool:
        """Whether a stretch turned out to hold what it cannot, so that it has to end before that."""
        for one in self._stretches:
            if one.has_other_numbers:
                return True
        known = sum(map(len, self._divides))
        if known == self._known:
            return False
        self._known = known
        return any([one.is_divided for one in self._stretches])

    def items(self, first: int, body: memoryview) -> list[Any]:
        """Return what stands for the parts in the session's stream, where this is the first number that moves.

        ProtocolError where the bytes between the parts that do not change are no instructions, and DifferentError
        where a tensor cannot be the one that the batch names.
        """
        distance = first - self.first
        items: list[Any] = []
        for part in self.parts:
            if part.__class__ is Stretch:
                ids = part.ids(distance, body)
                if ids is None:
                    raise DifferentError
                items.append(RunStretch(part, ids, part.numbers.of(body)))
            else:
                items += part.instructions(distance, body)  # type: ignore[union-attr]
        return items


def pattern_of(state: SessionState, first: Sighting, second: Sighting) -> tuple[Layout[Pattern], Pattern] | None:
    """Return the pattern that two batches have in common, with its layout; None for none.

    DifferentError where they differ in more than a pattern allows.
    """
    if not (first.is_usual and second.is_usual):
        return None
    count = _writable(first.instructions)
    here, there = first.instructions[:count], second.instructions[:count]
    if count < FEWEST or len(there) < count:
        return None
    pairs = [pair_of(one, other) for one, other in zip(here, there)]
    distance = _distance(here, there, pairs)
    if distance <= 0:
        return None
    keys = reduce(or_, [backend.key for backend in state.backends.values()])
    varying = [_difference(pair, distance, state.fixed_numbers, keys) for pair in pairs]
    changing = [difference is None for difference in varying]
    moved = {
        a for difference, pair in zip(varying, pairs) if difference is not None
        for a, b in pair.ids if a != b and a not in difference.tensors
    }  # fmt: skip
    ends = first.ends()
    if sum(changing) * _CHANGING > count or not moved or ends[: count + 1] != second.ends()[: count + 1]:
        raise DifferentError
    parts = list(_Parting(divides_of(state), moved, distance).parts(pairs, varying, ends))
    if not any([part.__class__ is Stretch for part in parts]):
        return None
    holes = [hole for part in parts for hole in part.holes]
    found: tuple[Layout[Pattern], int] | None = layout_of(first.body, second.body, ends[count], distance, moved, holes)
    return None if found is None else (found[0], Pattern(state, count, found[1], sorted(moved), parts))


def _distance(here: Sequence[Any], there: Sequence[Any], pairs: Sequence[Pair]) -> int:
    """Return how far the numbers of two batches are from each other that they give out, or that move most."""
    first, second = _first_made(here), _first_made(there)
    if NONE_MADE not in (first, second):
        return second - first
    return max([b - a for pair in pairs for a, b in pair.ids], default=0)


def _difference(pair: Pair, distance: int, fixed: Collection[Place], keys: int) -> _Difference | None:
    """Return in what two instructions differ beside numbers of tensors that move; None where that is too much."""
    here, there = pair.here, pair.there
    numbers = differing(here, there, pair.apart, fixed, keys) if pair.apart else []
    tensors: dict[int, tuple[int, list[tuple[int, int]]]] = {}
    others = [(a, b) for a, b in pair.ids if b - a != distance and a != b]
    if others:
        encoded, encoded_there = wire.encoder.encode(here), wire.encoder.encode(there)
        for a, b in others:
            tensors[a] = b, places_of(encoded, encoded_there, a, b)
    is_told = numbers is not None and all([places for _, places in tensors.values()])
    return _Difference(numbers, tensors) if numbers is not None and is_told else None


class _Parting:
    """Takes two batches apart whose numbers that move are these, and differ by a distance."""

    def __init__(self, divides: Sequence[Collection[int]], moved: set[int], distance: int) -> None:
        self._divides, self._moved, self._distance = divides, moved, distance

    def parts(
        self, pairs: Sequence[Pair], varying: Sequence[_Difference | None], ends: Sequence[int]
    ) -> Iterator[_Part]:  # fmt: skip
        """Yield the parts of two batches, whose instructions differ in this, or in more where it is None."""
        at, here = 0, [pair.here for pair in pairs]
        for count in _lengths(here, [difference is None for difference in varying], self._divides):
            begin, at = at, at + count
            those = varying[begin:at]
            is_one = None not in those and is_stretch(here[begin:at], self._divides)
            if any([difference is None or (difference.numbers and not is_one) for difference in those]):
                yield _Changing(count, ends[begin], ends[at])
            else:
                known = [difference for difference in those if difference is not None]
                yield self._part(pairs[begin:at], known, ends[begin:at], is_one)

    def _part(
        self, pairs: Sequence[Pair], varying: Sequence[_Difference], begins: Sequence[int], is_one: bool
    ) -> Stretch | _Others:
        here = [pair.here for pair in pairs]
        first, distance = _first_made(here), self._distance
        flat, there = Flat(here, first), numbers_there(pairs, first, distance)
        numbered, anywhere = _numbered(pairs, varying, begins), _anywhere(flat, varying, begins)
        moving = [id in self._moved and position not in anywhere for position, id in enumerate(flat.inputs)]
        expected = {
            id: id + distance * moves
            for position, (id, moves) in enumerate(zip(flat.inputs, moving)) if position not in anywhere
        }  # fmt: skip
        if any([there[id] != number for id, number in expected.items()]):
            raise DifferentError
        taken = Taken(flat.inputs, moving, anywhere)
        if is_one:
            return Stretch(here, flat, first, taken, self._divides, Numbers(numbered))
        return _Others(flat, first, taken)


def _numbered(pairs: Sequence[Pair], varying: Sequence[_Difference], begins: Sequence[int]) -> list[Numbered]:
    """Return numbers by their places among the constants of all instructions, and from where the batch begins."""
    found, before = [], 0
    for pair, difference, begin in zip(pairs, varying, begins, strict=True):
        found += [Numbered(before + each.constant, begin + each.offset, each.is_list) for each in difference.numbers]
        before += pair.constants
    return found


def _anywhere(flat: Flat, varying: Sequence[_Difference], begins: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
    """Return where a batch has the numbers of any tensors, by their positions among the inputs."""
    found: dict[int, list[tuple[int, int]]] = {}
    for difference, at in zip(varying, begins, strict=True):
        for id, (_, places) in difference.tensors.items():
            found.setdefault(flat.inputs.index(id), []).extend([(at + begin, at + end) for begin, end in places])
    return found


def _writable(instructions: Sequence[Any]) -> int:
    """Return how many instructions at the begin can come again."""
    kept = enumerate(instructions)
    return next((n for n, one in kept if one.__class__ is messages.Upload or not is_writable(one)), len(instructions))


def is_stretch(instructions: Sequence[Any], divides: Sequence[Collection[int]]) -> bool:
    """Return whether so many instructions are worth to be executed as one, and may be."""
    calls = sum([one.__class__ is messages.Call for one in instructions])
    return calls >= FEWEST and all(map(Holding(*divides).holds, instructions))


def has_stretches(instructions: Sequence[Any], divides: Sequence[Collection[int]]) -> bool:
    """Return whether any instructions in a row are worth to be executed as one, and may be."""
    return any([is_stretch(list(ones), divides) for _, ones in groupby(instructions, Holding(*divides).holds)])


def _lengths(
    instructions: Sequence[Any], changing: Sequence[bool], divides: Sequence[Collection[int]]
) -> list[int]:  # fmt: skip
    """Return how many instructions each part has: stretches, and what is between them."""
    lengths: list[int] = []
    at, is_between, holding = 0, False, Holding(*divides)

    def holds(pair: tuple[Any, bool]) -> bool:
        if pair[1]:
            holding.end()
        return not pair[1] and holding.holds(pair[0])

    for _, group in groupby(zip(instructions, changing), holds):
        count = len(list(group))
        whole = is_stretch(instructions[at : at + count], divides) and not any(changing[at : at + count])
        at += count
        if is_between and not whole:
            lengths[-1] += count
        else:
            lengths.append(count)
        is_between = not whole
    return lengths


def _made_by(instructions: Sequence[Any]) -> list[int]:
    """Return the ids that instructions give out."""
    made: list[int] = []
    for one in instructions:
        if one.__class__ is messages.Backward:
            made += [gradient for _, gradient in one.leaves]
        else:
            made += [id for id in getattr(one, "outs", ()) if id is not None]
    return made


def _first_made(instructions: Sequence[Any]) -> int:
    """Return the number before the least that instructions give out; above all numbers where they give out none."""
    return min([id - 1 for id in _made_by(instructions)], default=NONE_MADE)
