"""Deferred checks: devices check indices and matrices while the host goes on, and the host collects findings later.

A kernel that gets an index out of range writes a finding into a record and leaves that index out; one that follows a
factorization writes which matrix has none. Each such launch is entered here under a tag; ``poll`` reads the records
when the devices have run the launches. What ran after the faulty launch worked on wrong data: whoever runs the engine
must roll it back, and delay until then what cannot be undone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from telegrad_protocol.errors import IndexOutOfRangeError, TelegradError, out_of_bounds

from .random import Generator

_MOST_OUTSTANDING = 1 << 12
"""The number of outstanding checks above which the host waits for the devices."""


class DeferredCheck(Protocol):
    """What a launch checks."""

    def error(self, index: int, place: int) -> TelegradError:
        """The error that a finding raises."""


class Check(NamedTuple):
    """What a launch checks: the indices of an operation; ``places`` are what they index, as error messages name it."""

    op: str
    places: tuple[str, ...]

    def error(self, index: int, place: int) -> TelegradError:
        """The error that an index out of range raises."""
        where = self.places[place]
        return IndexOutOfRangeError(
            f"{self.op}: index {index} is out of range for {where}: {out_of_bounds(self.op, index, where)}"
        )


class Finding(NamedTuple):
    """What a device has written: the tag of the launch, and what the check says of: an index, and its place."""

    tag: int
    out_of_range: int
    place: int


class Record(Protocol):
    """Where a device writes its findings, per stream."""

    def mark(self) -> None:
        """Let everything that was launched so far be what ``reached`` asks about."""

    def reached(self, wait: bool) -> bool:
        """Whether the device has run all marked launches; waits for them if asked to."""

    def finding(self) -> Finding | None:
        """Take the finding that was written since the last call."""


class Expected(NamedTuple):
    """A launch whose check is outstanding: its instruction, what undoes its effect on host state, random states."""

    check: DeferredCheck
    instruction: Any
    undo: Callable[[], None] | None
    generators: tuple[tuple[Generator, int, int], ...]


class Fault(NamedTuple):
    """What went wrong on a device: the error, and the instruction that caused it."""

    error: TelegradError
    instruction: Any


class Checks:
    """The deferred checks of one session."""

    __slots__ = ("_tags", "covered", "instruction", "outstanding", "records")

    def __init__(self) -> None:
        self.outstanding: dict[int, Expected] = {}
        self.records: dict[int, Record] = {}
        """The records of devices, by raw stream."""
        self.instruction: Callable[[], Any] | None = None
        """Returns the instruction being executed. Where it is set, its owner polls, and `raise_fault` does nothing."""
        self.covered = False
        """Whether kernels get only indices that were checked before, as in backward passes."""
        self._tags = itertools.count(1)

    def expect(
        self, check: DeferredCheck, generators: Iterable[Generator], undo: Callable[[], None] | None = None
    ) -> int:
        """Enter a launch that makes ``check`` and return its tag; 0 where the indices were checked before."""
        if self.covered:
            return 0
        tag = next(self._tags)
        states = tuple([(g, g.initial_seed(), g.offset) for g in generators])
        instruction = self.instruction() if self.instruction is not None else None
        self.outstanding[tag] = Expected(check, instruction, undo, states)
        return tag

    def expect_again(self, checks: Iterable[tuple[int, DeferredCheck]], instruction: Any, stream: int) -> None:
        """Enter the launches of a graph by the tags that they had when it was captured on a raw stream."""
        for tag, check in checks:
            self.outstanding[tag] = Expected(check, instruction, None, ())
        self.records[stream].mark()

    @property
    def are_too_many(self) -> bool:
        """Whether so many checks are outstanding that the host should wait for them."""
        return len(self.outstanding) > _MOST_OUTSTANDING

    def poll(self, wait: bool = False) -> Fault | None:
        """Drop the outstanding checks if the devices have made them; returns the first fault, if there is one."""
        if not self.outstanding or not all([record.reached(wait) for record in self.records.values()]):
            return None
        findings = [finding for record in self.records.values() if (finding := record.finding()) is not None]
        valid = [finding for finding in findings if finding.tag in self.outstanding]
        expected = dict(self.outstanding)
        self.outstanding.clear()
        return self._fault(min(valid), expected) if valid else None

    def _fault(self, finding: Finding, expected: dict[int, Expected]) -> Fault:
        for tag in reversed(expected):
            undo = expected[tag].undo
            if tag >= finding.tag and undo is not None:
                undo()
        culprit = expected[finding.tag]
        for generator, seed, offset in culprit.generators:
            generator.restore(seed, offset)
        return Fault(culprit.check.error(finding.out_of_range, finding.place), culprit.instruction)

    def raise_fault(self) -> None:
        """Wait and raise the first fault, where operations run without instructions, as in tests and benchmarks."""
        if self.instruction is None and self.outstanding:
            fault = self.poll(wait=True)
            if fault is not None:
                raise fault.error
