"""Batches that came before: found by their bytes, and taken apart into stretches of calls that are executed as one.

Which bytes are those of a batch that came before is in ``layouts``, what two batches have in common in ``patterns``.
This keeps what came once, and decides what is learnt of it. Knows nothing of what stretches do.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

from server.replay_policy import RECURRING_BATCHES, ReplayPolicy
from server.session.host_memory.account import Charged
from server.session.host_memory.frames import decoded, note_size
from server.session.state import SessionState
from telegrad_protocol import wire
from telegrad_protocol.errors import OutOfMemoryError, ProtocolError

from ..holding import divides_of
from ..stretches import FEWEST, SOON
from .first_look import Look, look_at
from .layouts import Layout
from .pairs import DifferentError
from .patterns import Pattern, Sighting, has_stretches, pattern_of

_MOST_BYTES: Final = 1 << 15
"""Longer batches are uploads, or lists of tensors, that are not worth a comparison."""
_MOST_OF_A_LENGTH: Final = 16
"""So many layouts of the same length are kept: each is a product for every batch that has it."""
_SOON: Final = SOON // 64
"""A batch that comes again within so many others is one of a loop."""
_MOST_FAILURES: Final = 4
"""So often it is tried to find what batches of the same operations have in common: a number may change in each."""
_WHILE_RECORDING: Final = 4
"""Of so many batches after calls with a history nothing is learnt: in a training what follows is no stretch either."""
_BYTES_OF_A_SIGHTING: Final = 3000
"""What the host holds for a batch that came once, besides its bytes."""


class _Once(NamedTuple):
    """A batch that came once: its bytes, how many had come before, and what the first look has found.

    ``failures`` is how often batches that looked like it had no pattern in common.
    """

    body: bytes
    since: int
    look: Look | None
    failures: int


_NEVER: Final = _Once(b"", 0, None, 0)


class RecurringBatches:
    """One session's batches. ``policy`` counts those that fit a pattern as hits."""

    def __init__(self, state: SessionState) -> None:
        self.policy = ReplayPolicy(RECURRING_BATCHES)
        self._state = state
        self._learns = any([backend.gains_by_stretches for backend in state.backends.values()])
        self._layouts: dict[int, list[Layout[Pattern]]] = {}
        """By the length of the batch, the one that fitted last first."""
        self._sightings: dict[int, _Once] = Charged(
            state.host_memory, _BYTES_OF_A_SIGHTING, lambda sighting: len(sighting.body)
        )
        self._count = 0
        self._hits = 0
        self._recording = 0
        """Of how many batches to come nothing is learnt."""

    def taken(self, body: memoryview) -> list[Any]:
        """Return what a batch is in the session's stream; raises as ``decoded`` does."""
        state, policy = self._state, self.policy
        if not self._learns:
            return decoded(state, body)
        self._count += 1
        recorder = state.context.profiler
        if (
            len(body) > _MOST_BYTES or (policy.cooldown and not policy.cool_down())
            or (recorder is not None and not recorder.notes_stretches)
        ):  # fmt: skip
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

    def _fitting(self, layout: Layout[Pattern], pattern: Pattern, first: int, body: memoryview) -> list[Any]:
        try:
            items = pattern.items(first, body)
        except (ProtocolError, DifferentError):  # the batch says what is wrong, if anything is
            return decoded(self._state, body)
        self._hits += 1
        note_size(self._state, layout.size, pattern.count)
        if layout.size < len(body):
            items += decoded(self._state, memoryview(_rest(body, layout.size, pattern.count)))
        return items

    def _look(self, body: bytes, instructions: list[Any]) -> None:
        """Make a pattern of a batch that came before; note one that did not."""
        if self._hits:
            self.policy.hit(self._hits)
            self._hits = 0
        self.policy.miss()
        look, now = look_at(len(body), instructions), self._count
        before: _Once = self._sightings.get(look.key, _NEVER)
        failures = before.failures
        if failures >= _MOST_FAILURES:
            return
        if before.look is not None and now - before.since <= _SOON and look.may_be_same(before.look):
            if not has_stretches(instructions, divides_of(self._state)):
                failures = _MOST_FAILURES
            elif self._learn(before.body, body, instructions):
                self._sightings.pop(look.key)
                return
            else:
                failures += 1
        if len(self._sightings) >= RECURRING_BATCHES.sightings:
            self._sightings.clear()
        kept = b"" if failures >= _MOST_FAILURES else body
        with suppress(OutOfMemoryError):  # it is not known when it comes again
            self._sightings[look.key] = _Once(kept, now, look if kept else None, failures)

    def _learn(self, before: bytes, body: bytes, instructions: list[Any]) -> bool:
        """Keep the pattern of a batch that came before; returns whether there is one."""
        first = Sighting(before, wire.decode_instructions(before))
        try:
            found = pattern_of(self._state, first, Sighting(body, instructions))
        except Exception:  # they differ, there is no room, or it is in no usual form: executing it says what is wrong
            return False
        if found is not None:
            self._keep(*found, before)
        return found is not None

    def _keep(self, layout: Layout[Pattern], pattern: Pattern, body: bytes) -> None:
        if len(self.patterns) >= RECURRING_BATCHES.records:
            self.clear()
        same = self._layouts.setdefault(len(body), [])
        known = next((one for one in same if one.places == layout.places), None)
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
