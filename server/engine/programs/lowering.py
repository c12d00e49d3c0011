"""From a group of steps to the description of one kernel: registers for slots, and which of them go to memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from telegrad_protocol.meta import Meta

from .analysis import Analysis
from .fused import Compute, Kernel, Register, cast_of, compute_of
from .graph import Slot, Step, replaced, slots_in
from .joined import Joined


class Lowered(NamedTuple):
    """A kernel, the roots of the values that it reads and writes, and those of the new values that it makes."""

    kernel: Kernel | Joined
    operands: tuple[Slot, ...]
    results: tuple[Slot, ...]


def lowered(positions: Sequence[int], steps: Sequence[Step], analysis: Analysis, needed: frozenset[Slot]) -> Lowered:
    """Describe a group's kernel; ``needed`` are the roots of what is read outside of it."""
    members = [steps[p] for p in positions]
    made = {step.outs[0] for step in members if not step.operator.op.mutates}
    roots = analysis.roots
    operands = tuple(
        dict.fromkeys([roots[slot] for step in members for slot in slots_in(step.args) if roots[slot] not in made])
    )
    held = {root: Register(number) for number, root in enumerate(operands)}
    computes: list[Compute] = []
    written: dict[Slot, None] = {}
    for position, step in zip(positions, members):
        root = roots[step.outs[0]]
        for compute in _computes_of(step, analysis, position, held, len(operands) + len(computes)):
            computes.append(compute)
            held[root] = Register(len(operands) + len(computes) - 1)
        if step.operator.op.mutates:
            written[root] = None
    metas = analysis.known
    results = tuple([root for root in held if root in made and root in needed])
    kernel = Kernel(
        _meta(metas[members[0].outs[0]]).shape, tuple([_meta(metas[root]) for root in operands]), tuple(computes),
        tuple([(held[root], _meta(metas[root])) for root in results]),
        tuple([(operands.index(root), held[root]) for root in written if root not in made]),
    )  # fmt: skip
    return Lowered(kernel, operands, results)


def _computes_of(
    step: Step, analysis: Analysis, position: int, held: dict[Slot, Register], number: int
) -> list[Compute]:
    """A step's computation, and a cast where it writes to a target of another type."""
    op, bound = step.operator.op, analysis.bound[position]
    target = _meta(analysis.known[step.outs[0]])
    args = replaced(step.args, {slot: held[analysis.roots[slot]] for slot in slots_in(step.args)})
    compute = compute_of(op, args, bound or (), target)
    if compute is None:
        raise TypeError(f"{op.name} is not element-wise")
    if compute.dtype is target.dtype:
        return [compute]
    return [compute, cast_of(Register(number), target.like(dtype=compute.dtype), target.dtype)]


def _meta(known: object) -> Meta:
    if not isinstance(known, Meta):
        raise TypeError(f"expected a meta, got {known!r}")
    return known
