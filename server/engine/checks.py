"""Checks that devices make of what they are given while the host goes on: what is outstanding, and what was found.

A kernel that meets an index out of range writes that down and goes on without it. Each such launch is *expected* here
under a tag; ``settle`` looks at what the devices have written once they have come that far. What ran after the
offending launch worked on wrong data: whoever runs the engine must undo it, and holds back until then what cannot be
undone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from telegrad_protocol.errors import IndexOutOfRangeError, TelegradError

from .random import Generator

_SEEN_LATELY = 1 << 12
"""More checks than this are not left outstanding."""


class Check(NamedTuple):
    """What a launch checks: indices of an operation, into each of some places as messages call them."""

    op: str
    places: tuple[str, ...]

    def error(self, index: int, place: int) -> TelegradError:
        """What is raised of an index out of range."""
        return IndexOutOfRangeError(f"{self.op}: index {index} is out of range for {self.places[place]}")


class Finding(NamedTuple):
    """What a device has written down: the tag of the launch, the index, and which place it missed."""

    tag: int
    found: int
    place: int


class Record(Protocol):
    """Where a device writes."""

    def reached(self, wait: bool) -> bool:
        """Whether the device has run all that was marked; waits for it if asked to."""

    def finding(self) -> Finding | None:
        """What was written since the last time, forgotten with this call."""


class Expected(NamedTuple):
    """A launch whose outcome is not known: its instruction, what undoes its effect on host state, random states."""

    check: Check
    instruction: Any
    undo: Callable[[], None] | None
    generators: tuple[tuple[Generator, int, int], ...]


class Fault(NamedTuple):
    """An index out of range: the error, and the instruction that brought it."""

    error: TelegradError
    instruction: Any


class Checks:
    """Those of one session."""

    __slots__ = ("_tags", "covered", "instruction", "outstanding", "records")

    def __init__(self) -> None:
        self.outstanding: dict[int, Expected] = {}
        self.records: dict[int, Record] = {}
        """By stream."""
        self.instruction: Callable[[], Any] | None = None
        """Says what is being executed, where instructions are; it also settles, so that others need not."""
        self.covered = False
        """Whether all indices that kernels meet now were checked before, as those of backward passes were."""
        self._tags = itertools.count(1)

    def expect(self, check: Check, generators: Iterable[Generator], undo: Callable[[], None] | None = None) -> int:
        """The tag of a launch that makes ``check``; 0 where its finding would be no news."""
        if self.covered:
            return 0
        tag = next(self._tags)
        states = tuple([(g, g.initial_seed(), g.offset) for g in generators])
        instruction = self.instruction() if self.instruction is not None else None
        self.outstanding[tag] = Expected(check, instruction, undo, states)
        return tag

    @property
    def are_many(self) -> bool:
        """Whether it is time to wait for some."""
        return len(self.outstanding) > _SEEN_LATELY

    def settle(self, wait: bool = False) -> Fault | None:
        """Forget what has turned out well; the first thing that has not, with all that was outstanding forgotten."""
        if not self.outstanding or not all([record.reached(wait) for record in self.records.values()]):
            return None
        found = [finding for record in self.records.values() if (finding := record.finding()) is not None]
        known = [finding for finding in found if finding.tag in self.outstanding]
        expected = dict(self.outstanding)
        self.outstanding.clear()
        if not known:
            return None
        first = min(known)
        return self._fault(first, expected)

    def _fault(self, finding: Finding, expected: dict[int, Expected]) -> Fault:
        for tag in reversed(expected):
            undo = expected[tag].undo
            if tag >= finding.tag and undo is not None:
                undo()
        culprit = expected[finding.tag]
        for generator, seed, offset in culprit.generators:
            generator.restore(seed, offset)
        return Fault(culprit.check.error(finding.found, finding.place), culprit.instruction)

    def raise_fault(self) -> None:
        """Wait, and raise what was found: for whoever runs operations without instructions."""
        if self.instruction is None and self.outstanding:
            fault = self.settle(wait=True)
            if fault is not None:
                raise fault.error
