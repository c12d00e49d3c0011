"""What stands in a session's stream for runs of programs: the end of one that is recorded, the rest of another."""

from __future__ import annotations

from typing import Any, NamedTuple


class EndOfRun(NamedTuple):
    """The end of a recorded run of a program in a situation; ``before`` is what its inputs' ids named at its begin."""

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
