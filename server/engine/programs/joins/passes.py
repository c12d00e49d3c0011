"""All joins in the order in which they are made, and what describes the kernel of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from server.engine.programs.analysis import Analysis
from server.engine.programs.graph import Slot, Step
from server.engine.programs.grouping import Group, Grouping
from server.engine.programs.joined import CASTS, GRADIENTS, NORM, PARTS, PRODUCTS, SUMS, WEIGHTS, WRITES
from server.engine.programs.lowering import Lowered, lowered

from .casts import join_casts, lowered_casts
from .norms import join_norms, lowered_norm
from .parts import join_parts, lowered_parts
from .products import described_products, join_products
from .sums import join_sums, lowered_sums
from .uses import Uses
from .weights import join_weights, lowered_weights
from .writes import join_writes, lowered_writes

_Describe: TypeAlias = Callable[[Sequence[int], Sequence[Step], Analysis, frozenset[Slot]], Lowered]
_DESCRIBED: Final[Mapping[str, _Describe]] = {
    "": lowered, NORM: lowered_norm, GRADIENTS: lowered_norm, SUMS: lowered_sums, PARTS: lowered_parts,
    CASTS: lambda positions, steps, analysis, needed: lowered_casts(positions, steps, analysis),
    WRITES: lambda positions, steps, analysis, needed: lowered_writes(positions, steps, analysis),
    WEIGHTS: lambda positions, steps, analysis, needed: lowered_weights(positions, steps, analysis),
    PRODUCTS: described_products,
}  # fmt: skip


def joined(grouping: Grouping, uses: Uses, outputs: Sequence[Slot]) -> Grouping:
    """The groups with all that is joined besides element-wise steps; those given may be changed."""
    grouping = join_products(grouping, uses)
    join_norms(grouping, uses)
    join_writes(grouping)
    join_sums(grouping, uses)
    join_parts(grouping, uses)
    join_weights(grouping)
    return join_casts(grouping, outputs)


def described(group: Group, steps: Sequence[Step], analysis: Analysis, uses: Uses) -> Lowered:
    """The kernel of a group."""
    positions = group.positions
    return _DESCRIBED[group.kind](positions, steps, analysis, uses.needed(positions))
