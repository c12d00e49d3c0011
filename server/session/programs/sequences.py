"""A session's programs: sequences of instructions that it was told once, and executes by their numbers.

A run is put into the stream as the instructions that it stands for, so that whatever holds for instructions holds for
these: turns, failures, what is undone.
"""

from __future__ import annotations

from typing import Any, Final

from server.session.state import SessionState
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.programs.messages import DefineProgram, RunProgram
from telegrad_protocol.programs.rows import Template

MOST_PROGRAMS: Final = 1 << 10
_ROW_BYTES: Final = 1200
_INPUT_BYTES: Final = 72
"""What the host holds for a row of a program, and for an input, as measured."""


class Program:
    """The rows of a program, and the inputs of its last run."""

    __slots__ = ("_first", "_inputs", "_moving", "nbytes", "template")

    def __init__(self, definition: DefineProgram) -> None:
        self.template = Template(definition.inputs, definition.rows, definition.constants)
        self.nbytes = weight_of(definition)
        self._first = 0
        self._inputs = [0] * definition.inputs
        self._moving: set[int] = set()
        """Positions of inputs that are as far from the first id in each run."""

    def instructions(self, run: RunProgram) -> list[Any]:
        """Return the instructions that a run stands for; ProtocolError where it does not fit the program."""
        inputs, distance, count = self._inputs, run.first - self._first, len(self._inputs)
        for position in (*run.moved, *[position for position, _ in run.changed]):
            if not 0 <= position < count:
                raise ProtocolError(f"run program: there is no input number {position}")
        self._moving.symmetric_difference_update(run.moved)
        for position in self._moving:
            inputs[position] += distance
        for position, id in run.changed:
            inputs[position] = id
        self._first = run.first
        self.template.change(run.constants)
        return self.template.instructions(run.first, inputs)


def weight_of(definition: DefineProgram) -> int:
    """Return how many bytes the host holds for a program."""
    return len(definition.rows) * _ROW_BYTES + definition.inputs * _INPUT_BYTES


def define_program(state: SessionState, definition: DefineProgram) -> None:
    """Handle the instruction."""
    if len(state.programs) >= MOST_PROGRAMS and definition.program not in state.programs:
        raise ProtocolError(f"define program: a session has at most {MOST_PROGRAMS} programs")
    state.host_memory.check_room(weight_of(definition))
    state.programs[definition.program] = Program(definition)


def run_program(state: SessionState, run: RunProgram) -> None:
    """Handle the instruction: those that it stands for are next."""
    program = state.programs.get(run.program)
    if program is None:
        if state.is_stopped:  # its definition was what failed
            return
        raise ProtocolError(f"run program: there is no program number {run.program}")
    state.inbox.extendleft(reversed(program.instructions(run)))
