"""The programs that a session's server has been told, and the form in which parts of the queue are sent by them.

A part of the queue whose instructions are those of an earlier one, but for the numbers of tensors and for constants, is
sent as one instruction that says what differs. The first part of a kind is sent as it is, and the second one defines
the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Final

from telegrad._session.thread_modes import DEFAULT, Modes
from telegrad_protocol import messages, wire
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.programs.messages import VERIFIES, DefineProgram, RunProgram
from telegrad_protocol.programs.rows import Flat, Template, is_writable

from .expected import Expected, Varying, expected_after
from .modal import MODAL, with_modes
from .template_runs import TemplateRun, encoded, expanded

MOST_PROGRAMS: Final = 256
"""A session has so many programs at most: a further one takes the place of the oldest."""
_FEWEST: Final = 2
"""Fewer instructions than these are sent as they are."""
_MOST_SEEN: Final = 4096
_MOST_EXPECTED: Final = 8
"""So many programs at most whose runs are encoded in the same number of bytes are compared with a part."""
_NOT_KEPT: Final = object()
"""Stands for a constant of the last run whose value is told again; None is a value that constants may have."""


class Program:
    """A program that the server knows, and what its last run was."""

    __slots__ = (
        "_compared", "constants", "encoded", "expected", "first", "inputs", "moving", "number", "tunes", "under",
        "varying",
    )  # fmt: skip

    def __init__(self, number: int, flat: Flat, encoded: bytes, tunes: bool) -> None:
        self.number, self.tunes = number, tunes
        self.constants = flat.constants
        self.encoded = encoded
        self.first = 0
        self.inputs: list[int] = [0] * len(flat.inputs)
        self.moving: list[int] = []
        """Positions of inputs that are as far from ``first`` in each run."""
        self.varying = Varying()
        """The other inputs, and constants, that have changed between runs."""
        self.expected: Expected | None = None
        """What its next run is encoded as, where that can be told."""
        self.under = DEFAULT
        """The modes that it is run under."""
        self._compared = 0
        """Its runs that were compared instruction by instruction, since one was what was expected."""

    def run(
        self, inputs: list[int], given: list[Any], first: int, encoded: bytes, freed: Sequence[int] = ()
    ) -> RunProgram:  # fmt: skip
        """Return the instruction that runs it with these inputs and constants; these are also ``encoded``.

        What has died before is ``freed``.
        """
        self._catch_up()
        distance, self.first = first - self.first, first
        moved, changed = self._take_inputs(inputs, distance)
        constants: list[tuple[int, Any]] = []
        if encoded != self.encoded:
            constants = [
                (position, value)
                for position, (value, before) in enumerate(zip(given, self.constants, strict=True))
                if value is not before
                and (before is _NOT_KEPT or wire.encoder.encode(value) != wire.encoder.encode(before))
            ]
            self.constants, self.encoded = given, encoded
        if self._compared and (changed or constants):  # all inputs of the first run are new
            self.varying = self.varying.with_these(changed, constants)
        return RunProgram(self.number, first, changed, moved, constants, [*freed])

    def is_to_be_expected(self) -> bool:
        """Return whether to tell now what the next run is encoded as, which costs more than a comparison does.

        After the second comparison, the fourth, the eighth: programs whose runs are never as expected cost little.
        """
        self._compared += 1
        return self._compared > 1 and not self._compared & (self._compared - 1)

    def run_as_expected(self, text: bytes, modes: list[Modes], first: int) -> RunProgram | None:
        """Return the instruction that runs it where it is encoded as expected; None where it is not."""
        expected = self.expected
        run = expected.run(text, first) if expected is not None and expected.modes == modes else None
        if run is not None:
            self._compared = 1
        return run

    def _catch_up(self) -> None:
        """Note what runs were that were encoded as expected."""
        expected, self.expected = self.expected, None
        if expected is None:
            return
        for position in self.moving:
            self.inputs[position] += expected.first - self.first
        for position, id in expected.varying_inputs():
            self.inputs[position] = id
        self.first = expected.first
        if self.varying.constants:  # their values are told again
            varying = self.varying.constants
            self.constants = [_NOT_KEPT if n in varying else value for n, value in enumerate(self.constants)]
            self.encoded = b""

    def _take_inputs(self, inputs: list[int], distance: int) -> tuple[list[int], list[tuple[int, int]]]:
        """Note the inputs; return the positions that begin or cease to move, and the ids that nothing tells."""
        expected = self.inputs
        if not self.moving and inputs == expected:
            return [], []
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
        self._programs: dict[bytes, Program] = {}
        self._by_number: dict[int, Program] = {}
        self._expected: dict[int, list[Program]] = {}
        """Programs whose next run is expected, by how many bytes it has."""
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
        self._by_number.clear()
        self._expected.clear()
        self._seen.clear()
        self._number = 0

    def knows(self, program: Program) -> bool:
        """Return whether the server knows this program by its number."""
        return self._by_number.get(program.number) is program

    def program(self, number: int) -> Program | None:
        """Return the program that the server knows by a number."""
        return self._by_number.get(number)

    def run_again(
        self, program: Program, inputs: list[int], constants: list[Any], encoded: bytes, first: int, modes: Modes,
        freed: Sequence[int] = (),
    ) -> list[Any]:  # fmt: skip
        """Return what is queued for a run with these inputs and constants, which are also ``encoded``, under modes.

        The program's last run may have been under others. What has died before is ``freed``.
        """
        run = program.run(inputs, constants, first, encoded, freed)
        self.runs += 1
        return [run] if modes is DEFAULT else [(modes, run)]

    def replace(self, queued: list[Any], first: int, verifies: bool = False, tunes: bool = False) -> list[Any] | None:
        """Return what is sent in the place of these entries of the queue; None if that is the entries themselves.

        Where it ``verifies``, the server is to compare what it executes as one with the instructions; where it
        ``tunes``, to measure ways to compute products.
        """
        plain = [entry[1] if type(entry) is tuple else entry for entry in queued]
        modes = _modes_of(queued)
        text = _encoded(plain)
        for program in self._expected.get(len(text), ()):
            run = program.run_as_expected(text, modes, first) if program.tunes is tunes else None
            if run is not None:
                self.runs += 1
                return _sent_under(program.under, [run], verifies)
        sent, whole = self._compare(expanded(queued), first, verifies, tunes)
        if whole is not None and text and whole.is_to_be_expected():
            whole.expected = expected_after(whole.number, first, expanded(plain), modes, whole.moving, whole.varying)
            others = [other for other in self._expected.get(len(text), ()) if other is not whole]
            self._expected[len(text)] = [whole, *others[: _MOST_EXPECTED - 1]]
        return sent

    def _compare(
        self, queued: list[Any], first: int, verifies: bool, tunes: bool
    ) -> tuple[list[Any] | None, Program | None]:
        """Return what is sent, and the program that all of it is a run of, if it is one run of a known program."""
        sites = [entry for entry in queued if entry.__class__ is messages.Site]
        entries = [entry for entry in queued if entry.__class__ is not messages.Site] if sites else queued
        if not (_are_of_one_thread(entries) and any(map(_is_writable, entries))):
            return None, None
        sent: list[Any] = []
        is_shorter = False
        for is_program, stretch in _stretches(entries):
            replaced = self._run_of(stretch, first, verifies, tunes) if is_program else None
            is_shorter = is_shorter or replaced is not None
            sent += stretch if replaced is None else replaced
        if not is_shorter:
            return None, None
        return sites + sent, None if sites else self._whole(sent)

    def _whole(self, sent: list[Any]) -> Program | None:
        """Return the program that all of what is sent is a run of, and note the modes that it is run under."""
        modes, run = sent[0] if sent[0].__class__ is tuple else (DEFAULT, sent[0])
        if len(sent) > 1 or run.__class__ is not RunProgram:
            return None
        whole = self._by_number[run.program]
        whole.under = modes
        return whole

    def _run_of(self, stretch: list[Any], first: int, verifies: bool, tunes: bool) -> list[Any] | None:
        """Return what is sent for entries that are a run of a program, which leaves the modes as they were before it.

        None where they are sent as they are.
        """
        instructions, modes = _under_one(stretch)
        run = self._run(instructions, first, tunes) if len(stretch) >= _FEWEST else None
        return None if run is None or modes is None else _sent_under(modes, run, verifies)

    def _run(self, instructions: list[Any], first: int, tunes: bool) -> list[Any] | None:
        """Return the instructions that run a program; None where the server is not told it."""
        flat = Flat(instructions, first)
        key = wire.encoder.encode((flat.rows, tunes))
        encoded = wire.encoder.encode(flat.constants)
        program = self._programs.get(key)
        if program is not None:
            self.runs += 1
            return [program.run(flat.inputs, flat.constants, first, encoded)]
        if not self._is_second(key) or not _is_allowed(flat):
            return None
        program = self._define(key, flat, encoded, tunes)
        self.runs += 1
        definition = DefineProgram(program.number, len(flat.inputs), flat.rows, flat.constants, tunes)
        return [definition, program.run(flat.inputs, flat.constants, first, encoded)]

    def _is_second(self, key: bytes) -> bool:
        """Return whether these rows were met before, and note that they were met."""
        seen = hash(key)
        if seen in self._seen:
            return True
        if len(self._seen) >= _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[seen] = None
        return False

    def _define(self, key: bytes, flat: Flat, encoded: bytes, tunes: bool) -> Program:
        self._number += 1
        number = self._number
        if len(self._programs) >= MOST_PROGRAMS:
            number = self._programs.pop(next(iter(self._programs))).number
            self._by_number[number].expected = None
        program = self._programs[key] = self._by_number[number] = Program(number, flat, encoded, tunes)
        return program


def instructions_of(queued: list[Any]) -> list[Any]:
    """Return the instructions of a part as a program has them: with changes of modes, and without lines told of."""
    return _under_one([entry for entry in expanded(queued) if entry.__class__ is not messages.Site])[0]


def modes_of(queued: list[Any]) -> Modes | None:
    """Return the modes that a part is a run of a program under: those of its first instruction."""
    return _under_one([entry for entry in expanded(queued) if entry.__class__ is not messages.Site])[1]


def run_in(table: ProgramTable, sent: list[Any]) -> Program | None:
    """Return the program that all of what is sent for a part is a run of; None where there is none."""
    plain = [entry[1] if entry.__class__ is tuple else entry for entry in sent]
    others = [one for one in plain if one.__class__ is not messages.Site]
    return table.program(others[0].program) if len(others) == 1 and others[0].__class__ is RunProgram else None


def _encoded(plain: list[Any]) -> bytes:
    """Return the bytes of instructions, none where something among them is no instruction."""
    try:
        return encoded(plain)
    except TypeError:
        return b""


def _modes_of(queued: list[Any]) -> list[Modes]:
    """Return the modes of each entry, for runs of templates those of each instruction; none where all are default."""
    if tuple not in map(type, queued):
        return []
    entries = [entry if type(entry) is tuple else (DEFAULT, entry) for entry in queued]
    modes = [[mode] * (len(one) if one.__class__ is TemplateRun else 1) for mode, one in entries]
    return [*chain.from_iterable(modes)]


def _sent_under(modes: Modes, sent: list[Any], verifies: bool) -> list[Any]:
    """Return instructions as entries of a queue."""
    if verifies:
        sent = [messages.Mode(VERIFIES, True), *sent, messages.Mode(VERIFIES, False)]
    return sent if modes is DEFAULT else [(modes, one) for one in sent]


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
    if not _are_of_one_thread(entries):
        return entries, None
    instructions, last = with_modes(entries, modes)
    return [*instructions, *modes.changes_from(last)], modes


def _are_of_one_thread(entries: list[Any]) -> bool:
    """Return whether all entries that depend on modes were queued by one thread."""
    threads = [
        (entry[0] if entry.__class__ is tuple else DEFAULT).thread
        for entry in entries
        if entry.__class__ is tuple or entry.__class__ in MODAL
    ]
    return threads.count(threads[0]) == len(threads) if threads else True


def _is_writable(entry: Any) -> bool:
    return is_writable(entry[1] if entry.__class__ is tuple else entry)


def _stretches(entries: list[Any]) -> Iterator[tuple[bool, list[Any]]]:
    """Yield the stretches of entries that a program may have, and of others, in order."""
    for is_program, stretch in groupby(entries, _is_writable):
        yield is_program, [*stretch]
