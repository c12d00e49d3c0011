"""How much memory steps take for what lies between a graph's inputs and its outputs, these included."""

from __future__ import annotations

from collections.abc import Sequence

from telegrad_protocol.meta import Meta

from .analysis import Analysis
from .graph import Slot, Step, slots_in


def peak_bytes(
    groups: Sequence[Sequence[int]], steps: Sequence[Step], analysis: Analysis, outputs: Sequence[Slot]
) -> int:  # fmt: skip
    """The most bytes that are held at once, where each group holds nothing that only itself reads.

    Memory is held from the group that makes it until no slot in it is read any more.
    """
    begin: dict[int, tuple[int, int]] = {}
    end: dict[int, int] = {}
    for time, group in enumerate(groups):
        for step in [steps[p] for p in group]:
            for slot in (*slots_in(step.args), *step.outs):
                end[analysis.memory_of(slot)] = time
            for slot in step.outs:
                meta, number = analysis.known[slot], analysis.memory_of(slot)
                is_new = step.operator.op.view_of is None and not step.operator.op.mutates
                if is_new and isinstance(meta, Meta):
                    begin.setdefault(number, (time, meta.extent * meta.dtype.itemsize))
    for slot in outputs:
        end[analysis.memory_of(slot)] = len(groups)
    changes = [0] * (len(groups) + 2)
    for number, (time, nbytes) in begin.items():
        if end[number] > time or len(groups[time]) == 1:
            changes[time] += nbytes
            changes[end[number] + 1] -= nbytes
    held = peak = 0
    for change in changes:
        held += change
        peak = max(peak, held)
    return peak
