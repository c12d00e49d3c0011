"""What stands in a session's stream for runs of programs: the end of one that is recorded or verified, or its rest.

Likewise for stretches, calls that came again without a program.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class EndOfRun(NamedTuple):
    """The end of a recorded run of a program in a situation; ``before``: what its inputs' ids named at its begin."""

    program: Any
    situation: Any
    recording: Any
    ids: list[int]
    before: list[Any]


class RestOfRun(NamedTuple):
    """A run that is executed as one and has stopped in between: its inputs that are used, and how far it has come."""

    program: Any
    variant: Any
    values: list[Any]
    ids: list[int]
    execution: Any


class EndOfVerification(NamedTuple):
    """The end of instructions that were executed as one before, on copies, with these ``outputs``.

    ``changed`` has the inputs that were taken, with their copies; ``failures`` is how often the session had failed.
    """

    variant: Any
    values: list[Any]
    ids: list[int]
    instructions: list[Any]
    outputs: tuple[Any, ...]
    changed: list[tuple[Any, Any]]
    failures: int


class RunStretch(NamedTuple):
    """Calls that came again: which ones, the ids of their inputs and results by slot, and numbers that change."""

    stretch: Any
    ids: list[int]
    numbers: tuple[float, ...] = ()


class EndOfStretch(NamedTuple):
    """The end of a stretch that is recorded; ``before`` tells what its inputs' ids named at its begin."""

    stretch: Any
    situation: Any
    recording: Any
    ids: list[int]
    before: list[Any]


class RestOfStretch(NamedTuple):
    """A stretch that is executed as one and has stopped in between; ``drawn`` has the generators' states before it."""

    stretch: Any
    variant: Any
    values: list[Any]
    ids: list[int]
    execution: Any
    drawn: list[Any]


class EndOfCall(NamedTuple):
    """The end of a call in a stretch that is recorded; ``recorder`` is told what it has made."""

    stretch: Any
    recorder: Any
    call: Any


STRETCHES: Final = (RunStretch, EndOfCall, EndOfStretch, RestOfStretch)
