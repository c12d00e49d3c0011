"""What groups of steps hold and when: memory by its number, from the group that makes it to the last that reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from telegrad_protocol.meta import Meta

from .analysis import Analysis
from .graph import Slot, Step, slots_in


class Lifetime(NamedTuple):
    """When memory is held, both ends included, and how much. Times of groups are whole numbers; others lie between."""

    begin: float
    end: float
    nbytes: int


def lifetimes(
    groups: Sequence[Sequence[int]], steps: Sequence[Step], analysis: Analysis, outputs: Sequence[Slot]
) -> dict[int, Lifetime]:  # fmt: skip
    """The lifetimes of all memory that the groups make, but for what only the group itself reads that has made it."""
    begin: dict[int, tuple[int, int]] = {}
    end = last_reads(groups, steps, analysis)
    for time, group in enumerate(groups):
        for step in [steps[p] for p in group]:
            if step.operator.op.view_of is not None or step.operator.op.mutates:
                continue
            for slot in step.outs:
                meta = analysis.known[slot]
                if isinstance(meta, Meta):
                    begin.setdefault(analysis.memory_of(slot), (time, meta.extent * meta.dtype.itemsize))
    end.update({analysis.memory_of(slot): len(groups) for slot in outputs})
    return {
        number: Lifetime(time, end[number], nbytes) for number, (time, nbytes) in begin.items()
        if end[number] > time or len(groups[time]) == 1
    }  # fmt: skip


def last_reads(groups: Sequence[Sequence[int]], steps: Sequence[Step], analysis: Analysis) -> dict[int, int]:
    """When each memory is read or made last; that of inputs is among them."""
    return {
        analysis.memory_of(slot): time for time, group in enumerate(groups) for position in group
        for slot in (*slots_in(steps[position].args), *steps[position].outs)
    }  # fmt: skip


def peak_of(held: Iterable[Lifetime]) -> tuple[int, float]:
    """The most bytes that are held at once, and when that is first."""
    changes = [(one.begin, 0, one.nbytes) for one in held]
    changes += [(one.end, 1, -one.nbytes) for one in held]
    total = most = 0
    at = 0.0
    for time, _, change in sorted(changes):
        total += change
        if total > most:
            most, at = total, time
    return most, at


def moved_bytes(groups: Sequence[Sequence[int]], steps: Sequence[Step], analysis: Analysis) -> int:
    """The bytes that all groups read and make; those that only move between the steps of one group are none."""
    held = lifetimes(groups, steps, analysis, ())
    return sum([_moved_by([steps[p] for p in group], analysis, held) for group in groups])


def _moved_by(members: Sequence[Step], analysis: Analysis, held: Mapping[int, Lifetime]) -> int:
    steps = [step for step in members if step.operator.op.view_of is None]
    made = {analysis.roots[slot] for step in steps for slot in step.outs}
    read = {analysis.roots[slot] for step in steps for slot in slots_in(step.args)} - made
    stored = {root for root in made if analysis.memory_of(root) in held or analysis.is_written(root)}
    metas = [analysis.known[root] for root in read | stored]
    return sum([meta.nbytes for meta in metas if isinstance(meta, Meta)])


def with_reuse(held: Mapping[int, Lifetime], over: Mapping[Slot, Slot], analysis: Analysis) -> dict[int, Lifetime]:
    """Lifetimes of memory where results are written over operands: the operand's memory lives on."""
    held, owner = dict(held), dict[int, int]()
    for result, operand in over.items():
        made, number = analysis.memory_of(result), analysis.memory_of(operand)
        number = owner[made] = owner.get(number, number)
        mine = held.pop(made, None)
        if mine is not None and number in held:
            held[number] = held[number]._replace(end=max(held[number].end, mine.end))
    return held


def peak_bytes(
    groups: Sequence[Sequence[int]], steps: Sequence[Step], analysis: Analysis, outputs: Sequence[Slot],
    over: Mapping[Slot, Slot] | None = None,
) -> int:  # fmt: skip
    """The most bytes that are held at once, where each group holds nothing that only itself reads.

    Memory is held from the group that makes it until no slot in it is read any more; ``over`` has results that are
    written over operands.
    """
    held = lifetimes(groups, steps, analysis, outputs)
    return peak_of(with_reuse(held, over or {}, analysis).values())[0]
