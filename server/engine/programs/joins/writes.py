"""Copies of slices into several tensors at the same places, as one kernel: new keys and values of a cache."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from server.engine.programs.analysis import Analysis
from server.engine.programs.fused import JOINERS, joins
from server.engine.programs.graph import Slot, Step
from server.engine.programs.grouping import Group, Grouping
from server.engine.programs.joined import WRITES, Joined
from server.engine.programs.lowering import Lowered
from telegrad_protocol.meta import Meta

_MOST: Final = 8
"""Tensors that one kernel writes to."""


def join_writes(grouping: Grouping) -> None:
    """Join writes with the last ones at the same places, where nothing has to happen between them."""
    if not any([(key, WRITES) in JOINERS for key in grouping.keys.values()]):
        return
    last: dict[Hashable, Group] = {}
    for position, step in enumerate(grouping.steps):
        group = grouping.by_step[position]
        if step.operator.op.name != "index_copy_" or group.positions != [position]:
            continue
        target, dim, index, source = step.args
        known, roots = grouping.analysis.known, grouping.analysis.roots
        alike = dim, roots[index], *[getattr(known[slot], "shape", None) for slot in (target, source)]
        earlier = last.get(alike)
        if earlier is not None and _can_join(grouping, earlier, group):
            grouping.absorb(earlier, group)
            earlier.kind = WRITES
        else:
            last[alike] = group


def _can_join(grouping: Grouping, group: Group, other: Group) -> bool:
    positions = sorted(group.positions + other.positions)
    steps, analysis = grouping.steps, grouping.analysis
    if len(positions) > _MOST or any([analysis.bound[p] is None for p in positions]):
        return False
    if not _are_apart([steps[p] for p in positions], analysis) or not grouping.has_nothing_between(group, other):
        return False
    kernel = lowered_writes(positions, steps, analysis).kernel
    key = grouping.keys.get(kernel.device, 0)
    return isinstance(kernel, Joined) and (key, WRITES) in JOINERS and joins(key, kernel)


def _are_apart(steps: Sequence[Step], analysis: Analysis) -> bool:
    """Whether each target has memory of its own, which none of the steps reads."""
    written = [analysis.memory_of(step.args[0]) for step in steps]
    read = {analysis.memory_of(slot) for step in steps for slot in step.args[2:]}
    return len(set(written)) == len(written) and read.isdisjoint(written)


def lowered_writes(positions: Sequence[int], steps: Sequence[Step], analysis: Analysis) -> Lowered:
    """Describe the kernel of several writes."""
    first = steps[positions[0]]
    loads: dict[str, Slot] = {"index": first.args[2]}
    for number, position in enumerate(positions):
        loads |= {f"target {number}": steps[position].args[0], f"source {number}": steps[position].args[3]}
    metas = [(role, analysis.known[slot]) for role, slot in loads.items()]
    held = tuple([(role, meta) for role, meta in metas if isinstance(meta, Meta)])
    described = Joined(WRITES, first.operator.op.name, (first.args[1],), held, ())
    return Lowered(described, tuple([analysis.roots[slot] for slot in loads.values()]), ())
