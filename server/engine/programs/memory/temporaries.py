"""How much memory steps take for what lies between a graph's inputs and its outputs, these included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from server.engine.programs.analysis import Analysis
from server.engine.programs.graph import Slot, Step

from .lifetimes import lifetimes, peak_of
from .reuse import with_reuse


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
