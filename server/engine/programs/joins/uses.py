"""Which steps make and read values, and which values are wanted beyond certain steps."""

from __future__ import annotations

from collections.abc import Sequence

from server.engine.programs.analysis import Analysis
from server.engine.programs.graph import Slot, Step, slots_in


class Uses:
    """What makes slots, and what reads values, which are known by their roots."""

    def __init__(self, steps: Sequence[Step], analysis: Analysis, outputs: Sequence[Slot]) -> None:
        self._steps, self._roots = steps, analysis.roots
        self.outputs = frozenset([analysis.roots[slot] for slot in outputs])
        self.maker: dict[Slot, int] = {slot: p for p, step in enumerate(steps) for slot in step.outs}
        """The step that fills a slot."""
        self._readers: dict[Slot, list[int]] = {}
        for position, step in enumerate(steps):
            for root in dict.fromkeys([self._roots[slot] for slot in slots_in(step.args)]):
                self._readers.setdefault(root, []).append(position)

    def readers_of(self, slot: Slot) -> Sequence[int]:
        """The steps that read a value."""
        return self._readers.get(self._roots[slot], ())

    def is_output(self, slot: Slot) -> bool:
        """Whether a value is wanted afterwards."""
        return self._roots[slot] in self.outputs

    def needed(self, positions: Sequence[int]) -> frozenset[Slot]:
        """The roots of what these steps make and others read, or what is wanted afterwards."""
        inside = set(positions)
        made = {self._roots[slot] for p in positions for slot in self._steps[p].outs}
        return frozenset([r for r in made if r in self.outputs or not inside.issuperset(self._readers.get(r, ()))])
