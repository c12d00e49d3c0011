"""Gradients of attention's operands that are put side by side: the kernel writes them where they belong.

Query, key and value that are parts of one product's result have gradients that are parts of one tensor, which ``cat``
makes. Where each gradient's heads lie side by side in its rows, it can be made as a part of that tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from server.engine.programs.analysis import Analysis
from server.engine.programs.fused import JOINERS
from server.engine.programs.graph import Slot, Step
from server.engine.programs.grouping import Grouping
from server.engine.programs.joined import PARTS, Joined
from server.engine.programs.lowering import Lowered
from telegrad_protocol.layout import wrap_dim
from telegrad_protocol.meta import Meta

from .uses import Uses

_ATTENTION: Final = "_attention_backward"


class _Part(NamedTuple):
    """One tensor of a ``cat``: the value that it is a view of, and the steps that make the view of it."""

    origin: Slot
    views: tuple[int, ...]


def join_parts(grouping: Grouping, uses: Uses) -> None:
    """Join attention's gradients with the ``cat`` of all three of them, and with the views in between."""
    for position, step in enumerate(grouping.steps):
        if step.operator.op.name == "cat":
            positions = _positions(position, grouping, uses)
            if positions and _is_taken(positions, grouping, uses):
                _absorb(positions, grouping)


def _absorb(positions: Sequence[int], grouping: Grouping) -> None:
    """Make one group of steps between which nothing can be: only they touch what the first one makes."""
    group, *others = [grouping.by_step[p] for p in positions]
    for other in others:
        grouping.absorb(group, other)
    group.kind = PARTS


def _is_taken(positions: Sequence[int], grouping: Grouping, uses: Uses) -> bool:
    kernel = lowered_parts(positions, grouping.steps, grouping.analysis, uses.needed(positions)).kernel
    joiner = JOINERS.get((grouping.keys[kernel.device], PARTS))
    return joiner is not None and isinstance(kernel, Joined) and joiner.takes(kernel)


def _positions(position: int, grouping: Grouping, uses: Uses) -> list[int]:
    """The steps from attention's gradients to a ``cat`` of them; none where that is not all that becomes of them."""
    steps, analysis = grouping.steps, grouping.analysis
    tensors, dim = steps[position].args[:2]
    out = analysis.known[steps[position].outs[0]]
    if not isinstance(out, Meta) or out.ndim != 3 or len(tensors) != 3 or wrap_dim("cat", dim, out.ndim) != 2:
        return []
    parts = [_part(tensor, grouping, uses) for tensor in tensors]
    found = [part for part in parts if part is not None]
    makers = {uses.maker.get(part.origin, -1) for part in found}
    place = makers.pop() if len(makers) == 1 else -1
    if (
        place < 0
        or steps[place].operator.op.name != _ATTENTION
        or {part.origin for part in found} != {*steps[place].outs}
    ):
        return []
    if not all([_lies_in_rows(part.origin, tensor, analysis) for part, tensor in zip(found, tensors)]):
        return []
    return sorted([place, position, *[view for part in found for view in part.views]])


def _part(slot: Slot, grouping: Grouping, uses: Uses) -> _Part | None:
    """What a tensor is a view of; None where anybody else reads or writes to that, or to a view in between."""
    views: list[int] = []
    while len(uses.readers_of(slot)) == 1 and not uses.is_output(slot) and not grouping.analysis.is_written(slot):
        position = uses.maker.get(slot)
        if position is None:
            return None
        view_of = grouping.steps[position].operator.op.view_of
        if view_of is None:
            return _Part(slot, tuple(views))
        views.append(position)
        slot = grouping.steps[position].args[view_of]
    return None


def _lies_in_rows(origin: Slot, tensor: Slot, analysis: Analysis) -> bool:
    """Whether a gradient (n, heads, t, e) lies in memory like (n, t, heads, e), and is seen as (n, t, heads * e)."""
    made, seen = analysis.known[origin], analysis.known[tensor]
    if not isinstance(made, Meta) or not isinstance(seen, Meta) or made.ndim != 4 or made.offset or seen.offset:
        return False
    n, heads, t, e = made.shape
    return made.strides == (t * heads * e, e, heads * e, 1) and seen.shape == (n, t, heads * e) and seen.is_contiguous


def lowered_parts(
    positions: Sequence[int], steps: Sequence[Step], analysis: Analysis, needed: frozenset[Slot]
) -> Lowered:  # fmt: skip
    """Describe the kernel of attention's gradients as parts, of which ``cat`` alone is ``needed``."""
    attention, joined = steps[positions[0]], steps[positions[-1]]
    op, seen = attention.operator.op, {slot: slot for slot in attention.outs}
    for position in positions[1:-1]:
        view = steps[position]
        place = view.operator.op.view_of
        assert place is not None
        seen[view.outs[0]] = seen[view.args[place]]
    order = tuple([attention.outs.index(seen[tensor]) for tensor in joined.args[0]])
    named = {param.name: arg for param, arg in zip(op.params, attention.args)}
    loads = {role: slot for role, slot in named.items() if slot.__class__ is Slot}
    metas = [(role, analysis.known[slot]) for role, slot in loads.items()]
    out = joined.outs[0]
    made = [("out", analysis.known[out])]
    described = Joined(
        PARTS, op.name, (named["is_causal"], named["scale"], order),
        tuple([(role, meta) for role, meta in metas if isinstance(meta, Meta)]),
        tuple([(role, meta) for role, meta in made if isinstance(meta, Meta)]),
    )  # fmt: skip
    return Lowered(described, tuple([analysis.roots[slot] for slot in loads.values()]), (analysis.roots[out],))
