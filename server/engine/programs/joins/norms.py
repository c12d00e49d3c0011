"""Steps around normalizations that are joined with them: residual additions before them, casts on both sides.

Backward, the gradient may come in half precision, and the input's gradient is added to that of the residual path. What
is made of it may be the gradient of a layer with a bias, whose gradient is the sum over its rows. Each element is
computed as the single steps compute it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from server.engine.programs.analysis import Analysis
from server.engine.programs.fused import joins
from server.engine.programs.graph import Slot, Step
from server.engine.programs.grouping import Group, Grouping
from server.engine.programs.joined import GRADIENTS, NORM, PRODUCTS, Joined
from server.engine.programs.lowering import Lowered
from telegrad_protocol.meta import Meta

from .sums import is_sum_over_rows
from .uses import Uses

_FORWARD: Final = ("_layer_norm", "_rms_norm")
BACKWARD: Final = ("_layer_norm_gradients", "_rms_norm_gradients")
_ALWAYS_MADE: Final = ("mean", "rstd", "grad_weight", "grad_bias")


def join_norms(grouping: Grouping, uses: Uses) -> None:
    """Join each normalization with the steps around it, where these are kernels for nothing else."""
    finder = _Finder(grouping, uses)
    for position, step in enumerate(grouping.steps):
        name = step.operator.op.name
        if name in _FORWARD:
            _join(grouping, uses, position, NORM, (finder.sum_before(step), finder.cast_after(step)))
        elif name in BACKWARD:
            _join(grouping, uses, position, GRADIENTS, (finder.cast_before(step), finder.gradients_after(step)))
            _join(grouping, uses, position, GRADIENTS, (finder.sum_over_rows(grouping.by_step[position]),))


def _join(
    grouping: Grouping, uses: Uses, position: int, kind: str, around: Sequence[Group | None]
) -> None:  # fmt: skip
    group, known = grouping.by_step[position], grouping.analysis.known[grouping.steps[position].outs[0]]
    if not isinstance(known, Meta) or grouping.analysis.bound[position] is None or group.kind == PRODUCTS:
        return
    for other in around:
        if other is None or not grouping.has_nothing_between(group, other):
            continue
        positions = sorted(group.positions + other.positions)
        kernel = lowered_norm(positions, grouping.steps, grouping.analysis, uses.needed(positions)).kernel
        if isinstance(kernel, Joined) and joins(grouping.keys[known.device], kernel):
            grouping.absorb(group, other)
            group.kind = kind


class _Finder:
    """Finds groups that do nothing but what a normalization's kernel can do besides."""

    def __init__(self, grouping: Grouping, uses: Uses) -> None:
        self._steps, self._by_step, self._analysis = grouping.steps, grouping.by_step, grouping.analysis
        self._uses = uses

    def sum_before(self, step: Step) -> Group | None:
        """The addition that makes the input, and nothing else."""
        position = self._uses.maker.get(step.args[0])
        return None if position is None or not self._is_sum(position) else self._alone(position)

    def cast_after(self, step: Step) -> Group | None:
        """A cast of the result, and nothing else."""
        return next(self._casts_of(step.outs[0]), None)

    def cast_before(self, step: Step) -> Group | None:
        """The cast that makes the gradient, for this step alone."""
        slot = step.args[0]
        position = self._uses.maker.get(slot)
        if position is None or not self._is_cast(position) or len(self._uses.readers_of(slot)) > 1:
            return None
        return None if self._uses.is_output(slot) else self._alone(position)

    def gradients_after(self, step: Step) -> Group | None:
        """The addition of another gradient to that of the input, with a cast of the sum; or a cast of this alone."""
        made = step.outs[0]
        readers = self._uses.readers_of(made)
        for group in dict.fromkeys([self._by_step[p] for p in readers]):
            sums = [p for p in group.positions if self._is_sum(p) and self._adds_another(p, made)]
            source = self._steps[sums[0]].outs[0] if sums else made
            casts = [p for p in group.positions if self._is_cast(p) and self._reads(p, source)]
            if group.kind or len(sums) > 1 or len(casts) > 1 or len(sums) + len(casts) < len(group.positions):
                continue
            if not sums or not (self._uses.is_output(made) or set(readers).difference(group.positions)):
                return group
        return None

    def sum_over_rows(self, group: Group) -> Group | None:
        """The sum over all rows of what the kernel makes of the input's gradient last, if that is wanted besides."""
        made = self._steps[group.positions[-1]].outs[0]
        readers = self._uses.readers_of(made)
        if len(readers) < 2 and not self._uses.is_output(made):
            return None
        sums = [p for p in readers if is_sum_over_rows(self._steps[p], self._analysis)]
        return next((self._by_step[p] for p in sums if self._steps[p].args[0] == made), None)

    def _casts_of(self, slot: Slot) -> Iterator[Group]:
        for position in self._uses.readers_of(slot):
            group = self._alone(position)
            if group is not None and self._is_cast(position):
                yield group

    def _alone(self, position: int) -> Group | None:
        group = self._by_step[position]
        return group if group.positions == [position] and not self._is_written(self._steps[position]) else None

    def _is_written(self, step: Step) -> bool:
        return any([self._analysis.is_written(slot) for slot in step.outs])

    def _is_cast(self, position: int) -> bool:
        step, known = self._steps[position], self._analysis.known
        if step.operator.op.name != "_to_copy" or self._is_written(step):
            return False
        source, made = known[step.args[0]], known[step.outs[0]]
        return isinstance(source, Meta) and isinstance(made, Meta) and source.device is made.device

    def _is_sum(self, position: int) -> bool:
        step = self._steps[position]
        if step.operator.op.name != "add" or self._by_step[position].candidate is None or self._is_written(step):
            return False
        first, second, alpha = step.args
        operands = [self._analysis.known[slot] for slot in (first, second) if slot.__class__ is Slot]
        shape = getattr(self._analysis.known[step.outs[0]], "shape", None)
        return len(operands) == 2 and alpha == 1 and all([getattr(one, "shape", ()) == shape for one in operands])

    def _reads(self, position: int, slot: Slot) -> bool:
        roots = self._analysis.roots
        return roots[self._steps[position].args[0]] == roots[slot]

    def _adds_another(self, position: int, slot: Slot) -> bool:
        """Whether exactly one of the two operands of a sum is a value."""
        roots = self._analysis.roots
        return [roots[operand] for operand in self._steps[position].args[:2]].count(roots[slot]) == 1


def lowered_norm(
    positions: Sequence[int], steps: Sequence[Step], analysis: Analysis, needed: frozenset[Slot]
) -> Lowered:  # fmt: skip
    """Describe the kernel of a normalization and the steps around it; ``needed`` as for ``lowered``."""
    place = next(p for p in positions if steps[p].operator.op.name in (*_FORWARD, *BACKWARD))
    core, others = steps[place], [steps[p] for p in positions if p != place]
    op, is_forward = core.operator.op, core.operator.op.name in _FORWARD
    named = dict(zip([param.name for param in op.params], core.args))
    loads = {role: slot for role, slot in named.items() if slot.__class__ is Slot}
    news = dict(zip(op.returns, core.outs))
    for step in others:
        first, made = step.args[0], step.outs[0]
        if step.operator.op.name == "add" and is_forward:
            loads["input"], loads["other"] = _widest_first(step, analysis)
            news["total"] = made
        elif step.operator.op.name == "add":
            loads["other"] = step.args[1] if analysis.roots[first] == analysis.roots[core.outs[0]] else first
            news["grad_input"] = made
        elif step.operator.op.name == "sum":
            news["sums"] = made
        elif made == core.args[0]:
            loads["grad_out"] = first
        else:
            news["copy"] = made
    attributes = tuple([item for item in core.args if item.__class__ is not Slot and item is not None])
    kept = {role: slot for role, slot in news.items() if role in _ALWAYS_MADE or analysis.roots[slot] in needed}
    kind = NORM if is_forward else GRADIENTS
    described = Joined(kind, op.name, attributes, _with_metas(loads, analysis), _with_metas(kept, analysis))
    return Lowered(described, _roots(loads, analysis), _roots(kept, analysis))


def _widest_first(step: Step, analysis: Analysis) -> tuple[Slot, Slot]:
    """The operands of a sum, the one that has its type before the other."""
    first, second, _ = step.args
    wanted, known = analysis.known[step.outs[0]], analysis.known[first]
    is_first = isinstance(wanted, Meta) and isinstance(known, Meta) and known.dtype is wanted.dtype
    return (first, second) if is_first else (second, first)


def _with_metas(slots: dict[str, Slot], analysis: Analysis) -> tuple[tuple[str, Meta], ...]:
    metas = [(role, analysis.known[slot]) for role, slot in slots.items()]
    return tuple([(role, meta) for role, meta in metas if isinstance(meta, Meta)])


def _roots(slots: dict[str, Slot], analysis: Analysis) -> tuple[Slot, ...]:
    return tuple([analysis.roots[slot] for slot in slots.values()])
