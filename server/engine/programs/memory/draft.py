"""A list of steps that is being changed: steps are put between others, put off, taken apart, and read other slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from server.engine.programs.analysis import Analysis
from server.engine.programs.graph import Slot, Step, replaced, slots_in
from server.engine.programs.grouping import Group, candidate_of
from server.engine.programs.temporaries import Lifetime, last_reads, lifetimes, peak_of, with_reuse

from .reuse import reused


class Change(NamedTuple):
    """One change: steps that come in, by the places before or after which they are put; steps that are left out or put
    off, by their positions; and what lives otherwise then.

    Places are positions of steps, or numbers between two of them.
    """

    added: tuple[tuple[float, Step], ...] = ()
    placed: Mapping[int, float] = {}
    """Where steps are put that are put off."""
    renamed: Mapping[int, Mapping[Slot, Slot]] = {}
    """What steps read in place of other slots."""
    left_out: tuple[int, ...] = ()
    held: Mapping[int, Lifetime] = {}
    """Lifetimes that are others, by the number of the memory; new memory has negative numbers."""
    moved: int = 0
    """Bytes that are read and written besides."""


class Draft:
    """Steps, the groups in which they are executed, what is held when, and the changes made so far."""

    def __init__(
        self, groups: Sequence[Group], steps: Sequence[Step], analysis: Analysis, outputs: Sequence[Slot],
        keys: Mapping[object, int],
    ) -> None:  # fmt: skip
        self.groups, self.steps, self.analysis = groups, steps, analysis
        positions = [group.positions for group in groups]
        self.times = {p: time for time, group in enumerate(positions) for p in group}
        """By the position of each step the number of the group in which it is executed."""
        self.makers = {slot: p for p, step in enumerate(steps) for slot in step.outs}
        over = {  # element-wise results may rather be computed again
            result: operand for result, operand in reused(groups, steps, analysis, outputs, keys).items()
            if candidate_of(steps[self.makers[result]], analysis, self.makers[result], keys) is None
        }  # fmt: skip
        self.held = with_reuse(lifetimes(positions, steps, analysis, outputs), over, analysis)
        self.pinned: set[int] = {analysis.memory_of(operand) for operand in over.values()}
        """Memory that is not dropped: results are written over it, or it is read where it was not before."""
        self.last_read = last_reads(positions, steps, analysis)
        self.outputs = frozenset([analysis.memory_of(slot) for slot in outputs])
        self.readers = self._readers()
        self.written_at = self._writers()
        self.changed: set[int] = set()
        """The steps that a change is about; each is changed once."""
        self._changes: list[Change] = []
        numbers = [slot.number for slot in analysis.known]
        self._next = max(numbers, default=0) + 1

    def _readers(self) -> dict[int, list[int]]:
        """By the number of each memory the steps that read it, in order."""
        readers: dict[int, list[int]] = {}
        for position, step in enumerate(self.steps):
            for number in dict.fromkeys([self.analysis.memory_of(slot) for slot in slots_in(step.args)]):
                readers.setdefault(number, []).append(position)
        return readers

    def _writers(self) -> dict[int, list[int]]:
        """By the number of each memory the steps that write to it, in order."""
        writers: dict[int, list[int]] = {}
        for position, effects in enumerate(self.analysis.effects):
            for number in effects.writes:
                writers.setdefault(number, []).append(position)
        return writers

    def new_slot(self) -> Slot:
        """A slot that nothing fills yet."""
        self._next += 1
        return Slot(self._next - 1)

    def is_written_between(self, number: int, first: float, last: float) -> bool:
        """Whether a step between two places writes to a memory."""
        return any([first < p <= last for p in self.written_at.get(number, ())])

    def peak(self, change: Change | None = None) -> tuple[int, float]:
        """The most bytes that are held at once, after a change, and when."""
        held = self.held if change is None else {**self.held, **change.held}
        return peak_of(held.values())

    def make(self, change: Change) -> None:
        """Note a change."""
        self._changes.append(change)
        self.held.update(change.held)
        self.last_read.update({number: int(one.end) for number, one in change.held.items() if number in self.last_read})
        read = [slot for _, step in change.added for slot in slots_in(step.args) if slot in self.analysis.known]
        self.pinned.update([self.analysis.memory_of(slot) for slot in read])
        self.changed.update(change.placed, change.renamed, change.left_out)

    def result(self) -> tuple[list[Step], frozenset[Slot]]:
        """The steps with all changes, and the slots of values that are made again."""
        names: dict[int, Mapping[Slot, Slot]] = {}
        places: dict[int, float] = {}
        left_out: set[int] = set()
        for change in self._changes:
            names.update(change.renamed)
            places.update(change.placed)
            left_out.update(change.left_out)
        placed = [
            (places.get(p, p), _reading(step, names.get(p, {})))
            for p, step in enumerate(self.steps) if p not in left_out
        ]  # fmt: skip
        added = [one for change in self._changes for one in change.added]
        again = frozenset([slot for _, step in added for slot in step.outs if slot not in self.analysis.known])
        return [step for _, step in sorted([*placed, *added], key=lambda one: one[0])], again


def _reading(step: Step, names: Mapping[Slot, Slot]) -> Step:
    if not names:
        return step
    return step._replace(args=replaced(step.args, {slot: names.get(slot, slot) for slot in slots_in(step.args)}))
