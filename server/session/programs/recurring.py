"""Batches that came before: found by their bytes, and taken apart into stretches of calls that are executed as one.

Two batches of a loop differ in numbers of tensors alone, and all that differ do so by the same distance. So the bytes
of a batch, read as an integer, are those of an earlier one plus that distance times a constant. One product and one
comparison tell it, exactly: as long as no number comes to take more bytes, no sum carries from one into the next.
Knows bytes and instructions, and nothing of what stretches do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, Final, NamedTuple

from server.engine.context import Held
from server.replay_policy import RECURRING_BATCHES, ReplayPolicy
from server.session.host_memory.account import Charged
from server.session.host_memory.frames import decoded, note_size
from server.session.state import SessionState
from telegrad_protocol import messages, wire
from telegrad_protocol.errors import OutOfMemoryError
from telegrad_protocol.programs.rows import Flat, Template, is_writable

from .ending import RunStretch
from .first_look import key_of, may_be_same
from .stretches import FEWEST, SOON, Stretch, may_hold

_MOST_BYTES: Final = 1 << 14
"""Longer batches are uploads, or lists of tensors, that are not worth a comparison."""
_MOST_OF_A_LENGTH: Final = 16
"""So many layouts of the same length are kept: each is a product for every batch that has it."""
_SOON: Final = SOON // 64
"""A batch that comes again within so many others is one of a loop."""
_MOST_FAILURES: Final = 2
"""So often it is tried to find what batches of the same operations have in common: a number may change in each."""
_WHILE_RECORDING: Final = 4
"""Of so many batches after calls with a history nothing is learnt: in a training what follows is no stretch either."""
_BYTES_OF_A_SIGHTING: Final = 3000
"""What the host holds for a batch that came once, besides its bytes."""
_NEVER: Final = b"", 0, 0, 0
"""The sighting of a batch that did not come before."""
_NONE_MADE: Final = 1 << 64
"""Where a batch makes no tensor: a number above those of all tensors."""
_BYTES_OF_A_ROW: Final = 2000
"""What the host holds for an instruction of a pattern."""
_WIDTHS: Final = ((1 << 7, 0, 1), (1 << 8, 1, 1), (1 << 16, 1, 2), (1 << 32, 1, 4), (1 << 64, 1, 8))
"""What numbers of a width are below, how many bytes tell the width, and how many have the number."""


class _Others:
    """Instructions of a pattern that are executed one by one."""

    def __init__(self, flat: Flat, first: int, moving: Sequence[bool]) -> None:
        self._template = Template(len(flat.inputs), flat.rows, flat.constants)
        self._inputs, self._first, self._moving = flat.inputs, first, moving

    def instructions(self, distance: int) -> list[Any]:
        """Return them with the numbers of tensors so far from the first ones."""
        inputs = [id + distance if moves else id for id, moves in zip(self._inputs, self._moving)]
        return self._template.instructions(self._template.ids(self._first + distance, inputs))


class _DifferentError(Exception):
    """Two batches differ in more than numbers of tensors."""


class _Sighting(NamedTuple):
    """A batch that came once: the bytes of its message and the instructions in it."""

    body: bytes
    instructions: list[Any]

    @property
    def is_usual(self) -> bool:
        """Whether its bytes are those that the instructions are encoded as here: any others may mean the same."""
        return wire.encode_batch(self.instructions) == self.body

    def size_of(self, count: int) -> int:
        """Return how many bytes the first instructions take, with what is before them."""
        rest = [len(wire.encoder.encode(one)) for one in self.instructions[count:]]
        return len(self.body) - sum(rest)


class Pattern:
    """A batch that came twice: the parts that it consists of, and between what its numbers of tensors may be.

    What is at its end and cannot come again, such as a read with its number, is no part of it.
    """

    __slots__ = ("_held", "count", "first", "least", "most", "parts")

    def __init__(self, state: SessionState, count: int, first: int, moved: Sequence[int], parts: list[Any]) -> None:
        self.count, self.first, self.parts = count, first, parts
        self.least = first + max([_least_as_wide(id) - id for id in moved])
        self.most = first + min([_most_as_wide(id) - id for id in moved])
        self._held = Held(state.host_memory, count * _BYTES_OF_A_ROW)

    @property
    def is_useless(self) -> bool:
        """Whether all that could be executed as one never is."""
        return all([part.is_refused for part in self.parts if part.__class__ is Stretch])

    def items(self, first: int) -> Iterator[Any]:
        """Yield what stands for the parts in the session's stream, where this is the first number that moves."""
        distance = first - self.first
        for part in self.parts:
            if part.__class__ is Stretch:
                yield RunStretch(part, part.ids(distance))
            else:
                yield from part.instructions(distance)


class Layout:
    """Where the numbers that move stand in batches: what these are without them tells the pattern."""

    __slots__ = ("mask", "patterns", "place", "size", "width")

    def __init__(self, size: int, mask: int, width: int) -> None:
        self.size, self.mask, self.width = size, mask, width
        self.place = size - (mask.bit_length() + 7) // 8 + 1
        """Where the first number that moves ends."""
        self.patterns: dict[int, Pattern] = {}

    def split(self, body: memoryview | bytes) -> tuple[int, int]:
        """Return the first number that moves, and the batch with all that move less by it."""
        first = int.from_bytes(body[self.place - self.width : self.place], "big")
        return first, int.from_bytes(body[: self.size], "big") - first * self.mask

    def find(self, body: memoryview | bytes) -> tuple[Pattern, int] | None:
        """Return the pattern of a batch, and the first number that moves; None for other batches."""
        first, rest = self.split(body)
        pattern = self.patterns.get(rest)
        if pattern is None or not pattern.least <= first <= pattern.most:
            return None
        if any([part.__class__ is Stretch and part.has_checks for part in pattern.parts]):
            del self.patterns[rest]  # it will be taken apart in other places
            return None
        return pattern, first


class RecurringBatches:
    """One session's batches. ``policy`` counts those that fit a pattern as hits."""

    def __init__(self, state: SessionState) -> None:
        self.policy = ReplayPolicy(RECURRING_BATCHES)
        self._state = state
        self._layouts: dict[int, list[Layout]] = {}
        """By the length of the batch, the one that fitted last first."""
        self._sightings: dict[int, tuple[bytes, int, int, int]] = Charged(
            state.host_memory, _BYTES_OF_A_SIGHTING, lambda sighting: len(sighting[0])
        )
        """Batches that came once, how many had come before, the first number that each gives out, and how often those
        like it had no pattern in common."""
        self._count = 0
        self._hits = 0
        self._recording = 0
        """Of how many batches to come nothing is learnt."""

    def taken(self, body: memoryview) -> list[Any]:
        """Return what a batch is in the session's stream; raises as ``decoded`` does."""
        state, policy = self._state, self.policy
        self._count += 1
        if len(body) > _MOST_BYTES or state.plain_handlers or (policy.cooldown and not policy.cool_down()):
            return decoded(state, body)
        same = self._layouts.get(len(body), [])
        for layout in same:
            found = layout.find(body)
            if found is not None:
                if found[0].is_useless:
                    return decoded(state, body)
                if layout is not same[0]:
                    same.remove(layout)
                    same.insert(0, layout)
                return self._fitting(layout, *found, body)
        instructions = decoded(state, body)
        if self._recording:
            self._recording -= 1
        elif len(instructions) >= FEWEST:
            self._look(bytes(body), instructions)
        return instructions

    def note_history(self) -> None:
        """Note that most calls have been given a history. Such are no stretch, so the next batches are not learnt."""
        self._recording = _WHILE_RECORDING

    def clear(self) -> None:
        """Forget all batches that were seen and all patterns that were learned from them."""
        self._layouts.clear()
        self._sightings.clear()

    @property
    def patterns(self) -> list[Pattern]:
        """All patterns that are kept, of layouts of every length."""
        return [one for same in self._layouts.values() for layout in same for one in layout.patterns.values()]

    def _fitting(self, layout: Layout, pattern: Pattern, first: int, body: memoryview) -> list[Any]:
        self._hits += 1
        note_size(self._state, layout.size, pattern.count)
        items = list(pattern.items(first))
        if layout.size < len(body):
            items += decoded(self._state, memoryview(_rest(body, layout.size, pattern.count)))
        return items

    def _look(self, body: bytes, instructions: list[Any]) -> None:
        """Make a pattern of a batch that came before; note one that did not."""
        if self._hits:
            self.policy.hit(self._hits)
            self._hits = 0
        self.policy.miss()
        first, key = key_of(body, instructions)
        now = self._count
        before, since, at, failures = self._sightings.get(key, _NEVER)
        if failures >= _MOST_FAILURES:
            return
        if before and now - since <= _SOON and may_be_same(before, body, first - at):
            if not any(map(_is_stretch, _groups(instructions))):
                failures = _MOST_FAILURES
            elif self._learn(before, body, instructions):
                self._sightings.pop(key)
                return
            else:
                failures += 1
        if len(self._sightings) >= RECURRING_BATCHES.sightings:
            self._sightings.clear()
        with suppress(OutOfMemoryError):  # it is not known when it comes again
            self._sightings[key] = b"" if failures >= _MOST_FAILURES else body, now, first, failures

    def _learn(self, before: bytes, body: bytes, instructions: list[Any]) -> bool:
        """Keep the pattern of a batch that came before; returns whether there is one."""
        first = _Sighting(before, wire.decode_instructions(before))
        try:
            found = _pattern_of(self._state, first, _Sighting(body, instructions))
        except Exception:  # they differ, there is no room, or it is in no usual form: executing it says what is wrong
            return False
        if found is not None:
            self._keep(*found, before)
        return found is not None

    def _keep(self, layout: Layout, pattern: Pattern, body: bytes) -> None:
        if len(self.patterns) >= RECURRING_BATCHES.records:
            self.clear()
        same = self._layouts.setdefault(len(body), [])
        known = next(
            (one for one in same if (one.mask, one.size, one.width) == (layout.mask, layout.size, layout.width)), None
        )
        if known is None:
            same.insert(0, layout)
            del same[_MOST_OF_A_LENGTH:]
        (known or layout).patterns[layout.split(body)[1]] = pattern


def _rest(body: memoryview, size: int, count: int) -> bytes:
    """Return the batch of what follows so many bytes and instructions."""
    left = _count_of(body) - count
    return wire.encode_batch([None] * left)[:-left] + bytes(body[size:])


def _count_of(body: memoryview | bytes) -> int:
    """Return how many instructions a batch says it has."""
    begins = body[0]
    return begins & 15 if begins < 0xDC else int.from_bytes(body[1 : 3 if begins == 0xDC else 5], "big")


def _pattern_of(state: SessionState, first: _Sighting, second: _Sighting) -> tuple[Layout, Pattern] | None:
    """Return the pattern that two batches have in common, with its layout; None for none.

    _DifferentError where they differ in more than numbers of tensors.
    """
    if not (first.is_usual and second.is_usual):
        return None
    count = _writable(first.instructions)
    ids, others = (Flat(one.instructions[:count], _NONE_MADE).inputs for one in (first, second))
    distance = max([other - id for id, other in zip(ids, others)], default=0)
    if count < FEWEST or distance <= 0:
        return None
    moved = {id for id, other in zip(ids, others) if id != other}
    parts = list(_parts(first.instructions[:count], second.instructions[:count], moved, distance))
    if not any([part.__class__ is Stretch for part in parts]):
        return None
    size = first.size_of(count)
    mask, left = divmod(_number(second.body, size) - _number(first.body, size), distance)
    if left or mask <= 0:
        return None
    layout = Layout(size, mask, 1)
    layout.width, at = _field_at(first.body, layout.place - 1, moved)
    if layout.split(first.body)[0] != at or layout.split(first.body)[1] != layout.split(second.body)[1]:
        return None
    return layout, Pattern(state, count, at, sorted(moved), parts)


def _number(body: bytes, size: int) -> int:
    return int.from_bytes(body[:size], "big")


def _parts(here: Sequence[Any], there: Sequence[Any], moved: set[int], distance: int) -> Iterator[Any]:
    """Yield the parts of two batches; nothing of what follows a part in which these differ."""
    at = 0
    for count in _lengths(here):
        a, b = here[at : at + count], there[at : at + count]
        at += count
        first = _first_made(a)
        flat, other = Flat(a, first), Flat(b, first if first == _NONE_MADE else first + distance)
        moving = [id in moved for id in flat.inputs]
        if (
            flat.rows != other.rows or not _same(flat.constants, other.constants)
            or [id + distance * moves for id, moves in zip(flat.inputs, moving)] != other.inputs
        ):  # fmt: skip
            raise _DifferentError
        yield Stretch(a, flat, first, moving) if _is_stretch(a) else _Others(flat, first, moving)


def _same(constants: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether constants are the same to the bit: 0.0 is not -0.0, and nan is nan."""
    return wire.encode_batch(list(constants)) == wire.encode_batch(list(others))


def _writable(instructions: Sequence[Any]) -> int:
    """Return how many instructions at the begin can come again."""
    kept = enumerate(instructions)
    return next((n for n, one in kept if one.__class__ is messages.Upload or not is_writable(one)), len(instructions))


def _is_stretch(instructions: Sequence[Any]) -> bool:
    return sum([one.__class__ is messages.Call for one in instructions]) >= FEWEST and all(map(may_hold, instructions))


def _groups(instructions: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield instructions in a row that a stretch may hold, and those between them."""
    return (list(group) for _, group in groupby(instructions, may_hold))


def _lengths(instructions: Sequence[Any]) -> list[int]:
    """Return how many instructions each part has: stretches, and what is between them."""
    lengths: list[int] = []
    between = False
    for ones in _groups(instructions):
        if between and not _is_stretch(ones):
            lengths[-1] += len(ones)
        else:
            lengths.append(len(ones))
        between = not _is_stretch(ones)
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
    return min([id - 1 for id in _made_by(instructions)], default=_NONE_MADE)


def _field_at(body: bytes, place: int, known: set[int]) -> tuple[int, int]:
    """Return how many bytes the number takes whose last byte is at a place, and what it is: one of those that move."""
    for _, before, width in reversed(_WIDTHS):
        begin = place + 1 - width
        number = int.from_bytes(body[max(begin, 0) : place + 1], "big")
        if begin >= before and number in known and _width_of(number) == width:
            return width, number
    return 1, -1


def _width_of(number: int) -> int:
    return next((width for most, _, width in _WIDTHS if number < most), 8)


def _least_as_wide(number: int) -> int:
    return max([most for most, _, _ in _WIDTHS if most <= number], default=0)


def _most_as_wide(number: int) -> int:
    return next((most for most, _, _ in _WIDTHS if number < most), 1 << 64) - 1
