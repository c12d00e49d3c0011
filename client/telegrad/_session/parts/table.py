"""The programs that a session's server has been told, and the form in which parts of the queue are sent by them.

A part of the queue whose instructions are those of an earlier one, but for the numbers of tensors and for constants, is
sent as one instruction that says what differs. The first part of a kind is sent as it is, and the second one defines
the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from telegrad._session.thread_modes import DEFAULT, Modes
from telegrad_protocol import messages, wire
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.programs.messages import VERIFIES, DefineProgram, RunProgram
from telegrad_protocol.programs.rows import Flat, Template, is_writable

from .modal import MODAL, with_modes

MOST_PROGRAMS: Final = 256
"""A session has so many programs at most: a further one takes the place of the oldest."""
_FEWEST: Final = 2
"""Fewer instructions than these are sent as they are."""
_MOST_SEEN: Final = 4096


class _Program:
    """A program that the server knows, and what its last run was."""

    __slots__ = ("constants", "encoded", "first", "inputs", "moving", "number")

    def __init__(self, number: int, flat: Flat, encoded: bytes) -> None:
        self.number = number
        self.constants = flat.constants
        self.encoded = encoded
        self.first = 0
        self.inputs: list[int] = [0] * len(flat.inputs)
        self.moving: list[int] = []
        """Positions of inputs that are as far from ``first`` in each run."""

    def run(self, flat: Flat, first: int, encoded: bytes) -> RunProgram:
        """Return the instruction that runs it with these inputs and constants."""
        distance, self.first = first - self.first, first
        moved, changed = self._take_inputs(flat.inputs, distance)
        constants: list[tuple[int, Any]] = []
        if encoded != self.encoded:
            constants = [
                (position, value)
                for position, (value, before) in enumerate(zip(flat.constants, self.constants, strict=True))
                if value is not before and wire.encoder.encode(value) != wire.encoder.encode(before)
            ]
            self.constants, self.encoded = flat.constants, encoded
        return RunProgram(self.number, first, changed, moved, constants)

    def _take_inputs(self, inputs: list[int], distance: int) -> tuple[list[int], list[tuple[int, int]]]:
        """Note the inputs; return the positions that begin or cease to move, and the ids that nothing tells."""
        expected = self.inputs
        before = expected.copy()
        for position in self.moving:
            expected[position] += distance
        if inputs == expected:
            return [], []
        moved, changed, moving = [], [], set(self.moving)
        for position, (id, likely, last) in enumerate(zip(inputs, expected, before, strict=True)):
            if id != likely:
                if id == (last if position in moving else last + distance):
                    moved.append(position)
                else:
                    changed.append((position, id))
        self.inputs = inputs
        self.moving = sorted(moving.symmetric_difference(moved))
        return moved, changed


class ProgramTable:
    """What one session's server has been told of programs.

    ``replace`` is given to ``SendQueue.end_part``. ``programs`` and ``runs`` count what was defined and what was run.
    """

    def __init__(self) -> None:
        self._programs: dict[bytes, _Program] = {}
        self._seen: dict[int, None] = {}
        self._number = 0
        self.runs = 0

    @property
    def programs(self) -> int:
        """How many programs were defined."""
        return self._number

    def forget(self) -> None:
        """Define programs anew from here on."""
        self._programs.clear()
        self._seen.clear()
        self._number = 0

    def replace(self, queued: list[Any], first: int, verifies: bool = False) -> list[Any] | None:
        """Return what is sent in the place of these entries of the queue; None if that is the entries themselves.

        Where it ``verifies``, the server is to compare what it executes as one with the instructions.
        """
        sites = [entry for entry in queued if entry.__class__ is messages.Site]
        entries = [entry for entry in queued if entry.__class__ is not messages.Site] if sites else queued
        instructions, modes = _under_one(entries)
        if modes is None or not any(map(is_writable, instructions)):
            return None
        sent: list[Any] = []
        is_shorter = False
        for is_program, stretch in _stretches(instructions):
            replaced = self._run(stretch, first) if is_program and len(stretch) >= _FEWEST else None
            is_shorter = is_shorter or replaced is not None
            sent += stretch if replaced is None else replaced
        if not is_shorter:
            return None
        if verifies:
            sent = [messages.Mode(VERIFIES, True), *sent, messages.Mode(VERIFIES, False)]
        return sites + (sent if modes is DEFAULT else [(modes, one) for one in sent])

    def _run(self, instructions: list[Any], first: int) -> list[Any] | None:
        """Return the instructions that run a program; None where the server is not told it."""
        flat = Flat(instructions, first)
        key = wire.encoder.encode(flat.rows)
        encoded = wire.encoder.encode(flat.constants)
        program = self._programs.get(key)
        if program is not None:
            self.runs += 1
            return [program.run(flat, first, encoded)]
        if not self._is_second(key) or not _is_allowed(flat):
            return None
        program = self._define(key, flat, encoded)
        self.runs += 1
        definition = DefineProgram(program.number, len(flat.inputs), flat.rows, flat.constants)
        return [definition, program.run(flat, first, encoded)]

    def _is_second(self, key: bytes) -> bool:
        """Return whether these rows were met before, and note that they were met."""
        seen = hash(key)
        if seen in self._seen:
            return True
        if len(self._seen) >= _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[seen] = None
        return False

    def _define(self, key: bytes, flat: Flat, encoded: bytes) -> _Program:
        self._number += 1
        number = self._number
        if len(self._programs) >= MOST_PROGRAMS:
            number = self._programs.pop(next(iter(self._programs))).number
        program = self._programs[key] = _Program(number, flat, encoded)
        return program


def _is_allowed(flat: Flat) -> bool:
    """Return whether a server takes these rows for a program: it refuses too many, and too many tensors."""
    try:
        Template(len(flat.inputs), flat.rows, flat.constants)
    except ProtocolError:
        return False
    return True


def _under_one(entries: list[Any]) -> tuple[list[Any], Modes | None]:
    """Return instructions that change modes by themselves, and the modes before and after them.

    None where instructions of several threads are among them.
    """
    modal = [
        entry[0] if entry.__class__ is tuple else DEFAULT
        for entry in entries
        if entry.__class__ is tuple or entry.__class__ in MODAL
    ]
    modes = modal[0] if modal else DEFAULT
    if all([other is DEFAULT for other in modal]):
        return entries, DEFAULT
    if any([other.thread != modes.thread for other in modal]):
        return entries, None
    instructions, last = with_modes(entries, modes)
    return [*instructions, *modes.changes_from(last)], modes


def _stretches(instructions: list[Any]) -> Iterator[tuple[bool, list[Any]]]:
    """Yield the stretches of instructions that a program may have, and of others, in order."""
    stretch: list[Any] = []
    is_program = True
    for one in instructions:
        if is_writable(one) is not is_program:
            if stretch:
                yield is_program, stretch
            stretch, is_program = [], not is_program
        stretch.append(one)
    if stretch:
        yield is_program, stretch
