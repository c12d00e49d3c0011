"""Results that are written over an operand: one of the same layout that nobody reads after the kernel.

Only kernels do so whose elements depend on the operands' elements at the same position alone, and which read these
before they write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from server.engine.programs.analysis import Analysis
from server.engine.programs.fused import Kernel
from server.engine.programs.graph import Slot, Step, slots_in
from server.engine.programs.grouping import Group
from server.engine.programs.joined import SUMS, Joined
from server.engine.programs.lowering import Lowered
from server.engine.programs.temporaries import last_reads, lifetimes
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

least_bytes = 1 << 20
"""Smaller values have memory of their own."""


def reused(
    groups: Sequence[Group], steps: Sequence[Step], analysis: Analysis, outputs: Sequence[Slot],
    keys: Mapping[object, int],
) -> dict[Slot, Slot]:  # fmt: skip
    """For results the operands that they are written over; both are roots."""
    return _Finder(groups, steps, analysis, outputs, keys).found()


class _Finder:
    """Looks through groups in the order in which they are executed."""

    def __init__(
        self, groups: Sequence[Group], steps: Sequence[Step], analysis: Analysis, outputs: Sequence[Slot],
        keys: Mapping[object, int],
    ) -> None:  # fmt: skip
        positions = [group.positions for group in groups]
        self._groups, self._steps, self._analysis, self._keys = groups, steps, analysis, keys
        self._held = lifetimes(positions, steps, analysis, outputs)
        self._last = last_reads(positions, steps, analysis)
        self._outputs = {analysis.memory_of(slot) for slot in outputs}
        self._makers = {slot: step for step in steps for slot in step.outs}

    def found(self) -> dict[Slot, Slot]:
        over: dict[Slot, Slot] = {}
        for time, group in enumerate(self._groups):
            results = list(self._results(group))
            operands = list(self._operands(group, time)) if results else []
            chosen: dict[Slot, Slot] = {}
            for result in results:
                for operand in operands:
                    if self._fits(result, operand) and self._can_wait(group, {**chosen, result: operand}):
                        chosen[result] = operand
                        operands.remove(operand)
                        break
            over |= chosen
        return over

    def _can_wait(self, group: Group, over: Mapping[Slot, Slot]) -> bool:
        """Whether there is an order in which each operand is read by all that read it before it is written over."""
        members = {p: self._steps[p] for p in group.positions}
        made = {slot: p for p, step in members.items() for slot in step.outs}
        roots = self._analysis.roots
        reads = {p: {roots[slot] for slot in slots_in(step.args)} for p, step in members.items()}
        waits = {p: {made[slot] for slot in slots_in(step.args) if slot in made} for p, step in members.items()}
        for result, operand in over.items():
            waits[made[result]].update([p for p, read in reads.items() if operand in read and p != made[result]])
        while waits:
            ready = {p for p, others in waits.items() if others.isdisjoint(waits)}
            if not ready:
                return False
            waits = {p: others for p, others in waits.items() if p not in ready}
        return True

    def _results(self, group: Group) -> Iterator[Slot]:
        """What a group makes that is large, if its kernel may write it over an operand."""
        members = [self._steps[p] for p in group.positions]
        if group.kind not in ("", SUMS) or (len(members) == 1 and not self._overwrites(members[0])):
            return
        if any([step.operator.op.mutates or len(step.outs) != 1 for step in members]):
            return
        for step in members:
            held = self._held.get(self._analysis.memory_of(step.outs[0]))
            if held is not None and held.nbytes >= least_bytes:
                yield step.outs[0]

    def _overwrites(self, step: Step) -> bool:
        operator, made = step.operator, self._analysis.known[step.outs[0]] if step.outs else None
        if operator.op.view_of is not None or operator.op.form != "functional" or not isinstance(made, Meta):
            return False
        key = self._keys.get(made.device, 0)
        return any([preparer.elementwise for preparer in operator.preparers.get(key, ())])

    def _operands(self, group: Group, time: int) -> Iterator[Slot]:
        """What a group reads last, as one value, of what steps have made."""
        analysis, seen = self._analysis, dict[int, set[Slot]]()
        members = [self._steps[p] for p in group.positions]
        for step in members:
            for slot in slots_in(step.args):
                seen.setdefault(analysis.memory_of(slot), set()).add(analysis.roots[slot])
        written = {number for p in group.positions for number in analysis.effects[p].writes}
        for number, roots in seen.items():
            held = self._held.get(number)
            is_last = held is not None and held.begin < time and self._last[number] == time
            if is_last and number not in written and number not in self._outputs and len(roots) == 1:
                yield from roots

    def _fits(self, result: Slot, operand: Slot) -> bool:
        """Whether a result lies as an operand does, which is all of its memory."""
        analysis = self._analysis
        meta, number = analysis.known[result], analysis.memory_of(operand)
        if not isinstance(meta, Meta) or analysis.known[operand] is not meta or meta.dtype.category < dtypes.FLOAT:
            return False  # of integers the host may know bounds
        is_view = operand not in self._makers or self._makers[operand].operator.op.view_of is not None
        if is_view and analysis.memory_of(result) in self._outputs:
            return False
        return meta.extent == meta.numel and self._held[number].nbytes == meta.numel * meta.dtype.itemsize


def written_over(kernel: Lowered, over: Mapping[Slot, Slot]) -> Lowered:
    """The kernel that writes results over operands, as ``over`` says."""
    joined, described = (kernel.kernel, None) if isinstance(kernel.kernel, Joined) else (None, kernel.kernel)
    if joined is None:
        assert described is not None
        return Lowered(_storing(described, kernel, over), kernel.operands, _others(kernel, over))
    inner, summed = joined.attributes
    register = inner.news[summed][0]
    stored = _storing(inner, kernel, over)
    goes = [*[made for made, _ in stored.news], *[made for _, made in stored.stores]]
    kept = [one for one in joined.news if one[0] == "sums" or kernel.results[int(one[0])] not in over]
    changed = joined._replace(attributes=(stored, goes.index(register)), news=tuple(kept))
    return Lowered(changed, kernel.operands, _others(kernel, over))


def _storing(inner: Kernel, kernel: Lowered, over: Mapping[Slot, Slot]) -> Kernel:
    pairs = list(zip(kernel.results, inner.news, strict=False))
    stores = [(kernel.operands.index(over[root]), register) for root, (register, _) in pairs if root in over]
    news = [new for root, new in pairs if root not in over]
    return inner._replace(news=tuple(news), stores=(*inner.stores, *stores))


def _others(kernel: Lowered, over: Mapping[Slot, Slot]) -> tuple[Slot, ...]:
    return tuple([root for root in kernel.results if root not in over])
