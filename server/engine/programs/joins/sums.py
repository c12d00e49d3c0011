"""Gradients of biases, which are sums over the rows of a gradient, made by the kernel that makes the gradient.

A layer's backward pass would read the gradient once more for it. So the sum is taken out of the layer's operation where
what makes the gradient can make the sum besides, and joined with that: with a normalization's gradients in ``norms``,
with element-wise steps here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from server.engine.operators import OPERATORS
from server.engine.programs.analysis import Analysis
from server.engine.programs.fused import JOINERS, Kernel
from server.engine.programs.graph import Slot, Step
from server.engine.programs.grouping import Group, Grouping, candidate_of
from server.engine.programs.joined import GRADIENTS, SUMS, Joined
from server.engine.programs.lowering import Lowered, lowered
from telegrad_protocol.layout import wrap_dim
from telegrad_protocol.meta import Meta

from .uses import Uses

_LAYER: Final = "_linear_backward"
_AROUND_NORMS: Final[Mapping[str, int]] = {"_to_copy": 1, "add": 2}
"""What may stand between a normalization's gradients and the sum, and how many operands of it count."""
_NORMS: Final = ("_layer_norm_gradients", "_rms_norm_gradients")
_SUM: Final = OPERATORS["sum"]


def has_sums_apart(steps: Sequence[Step], keys: Mapping[object, int]) -> bool:
    """Whether there are biases' gradients, and devices whose kernels sum besides; otherwise no sum is taken out."""
    joins = any([(key, kind) in JOINERS for key in keys.values() for kind in (GRADIENTS, SUMS)])
    return joins and any(map(_has_bias, steps))


def _has_bias(step: Step) -> bool:
    return step.operator.op.name == _LAYER and step.args[3] is True


def with_sums_apart(steps: Sequence[Step], analysis: Analysis, keys: Mapping[object, int]) -> list[Step]:
    """Take the bias's gradient out of the backward passes of layers, where it can be joined with another step."""
    maker = {slot: position for position, step in enumerate(steps) for slot in step.outs}
    result: list[Step] = []
    for step in steps:
        if _has_bias(step) and _can_join(step.args[0], steps, analysis, keys, maker):
            result += _apart(step, analysis.known[step.args[0]])
        else:
            result.append(step)
    return result


def _apart(step: Step, grad: Any) -> list[Step]:
    """The sum, and the layer's other gradients, if it has any."""
    rows = tuple(range(grad.ndim - 1))
    parts = [Step(_SUM, (step.args[0], rows, False, None), step.outs[-1:])]
    if len(step.outs) > 1:
        parts.append(Step(step.operator, (*step.args[:3], False), step.outs[:-1]))
    return parts


def _can_join(
    grad: Slot, steps: Sequence[Step], analysis: Analysis, keys: Mapping[object, int], maker: Mapping[Slot, int]
) -> bool:  # fmt: skip
    """Whether the kernel that makes a gradient can sum it."""
    known, position = analysis.known[grad], maker.get(grad)
    if position is None or not isinstance(known, Meta) or known.ndim < 2 or analysis.is_written(grad):
        return False
    key = keys.get(known.device, 0)
    if (key, GRADIENTS) in JOINERS and _is_of_norm(grad, steps, maker):
        return True
    if (key, SUMS) not in JOINERS or candidate_of(steps[position], analysis, position, keys) is None:
        return False
    made = lowered((position,), steps, analysis, frozenset((analysis.roots[grad],)))
    return isinstance(made.kernel, Kernel) and JOINERS[key, SUMS].takes(
        _described(made.kernel, 0, known.like(known.shape[-1:]))
    )


def _is_of_norm(slot: Slot, steps: Sequence[Step], maker: Mapping[Slot, int], before: int = 2) -> bool:
    """Whether a value is a normalization's gradient, or what ``norms`` joins with it."""
    position = maker.get(slot)
    if position is None:
        return False
    step = steps[position]
    name = step.operator.op.name
    if name in _NORMS:
        return step.outs[0] == slot
    operands = [arg for arg in step.args[: _AROUND_NORMS.get(name, 0)] if arg.__class__ is Slot]
    return before > 0 and any([_is_of_norm(operand, steps, maker, before - 1) for operand in operands])


def is_sum_over_rows(step: Step, analysis: Analysis) -> bool:
    """Whether a step adds up the rows of a matrix, or of several, and keeps the type."""
    if step.operator.op.name != "sum" or step.args[0].__class__ is not Slot or step.args[2]:
        return False
    source, made = analysis.known[step.args[0]], analysis.known[step.outs[0]]
    if not isinstance(source, Meta) or not isinstance(made, Meta) or source.dtype is not made.dtype:
        return False
    dims = step.args[1] if step.args[1].__class__ is tuple else (step.args[1],)
    if source.ndim < 2 or any([dim.__class__ is not int for dim in dims]):
        return False
    return {wrap_dim("sum", dim, source.ndim) for dim in dims} == set(range(source.ndim - 1))


def join_sums(grouping: Grouping, uses: Uses) -> None:
    """Join each sum over rows with the element-wise steps that make what is summed, if that is wanted besides."""
    for position, step in enumerate(grouping.steps):
        if not is_sum_over_rows(step, grouping.analysis):
            continue
        group, alone = _maker_of(step.args[0], grouping, uses), grouping.by_step[position]
        if group is None or alone.positions != [position] or not grouping.has_nothing_between(group, alone):
            continue
        positions = sorted(group.positions + alone.positions)
        kernel = lowered_sums(positions, grouping.steps, grouping.analysis, uses.needed(positions)).kernel
        joiner = JOINERS.get((grouping.keys[kernel.device], SUMS))
        if isinstance(kernel, Joined) and joiner is not None and joiner.takes(kernel):
            grouping.absorb(group, alone)
            group.kind = SUMS


def _maker_of(slot: Slot, grouping: Grouping, uses: Uses) -> Group | None:
    """The element-wise steps that make a value which others read, too, and nobody writes to."""
    position = uses.maker.get(slot)
    if position is None or not (uses.is_output(slot) or len(uses.readers_of(slot)) > 1):
        return None
    if grouping.analysis.is_written(slot):
        return None
    group = grouping.by_step[position]
    return None if group.kind or group.candidate is None else group


def lowered_sums(
    positions: Sequence[int], steps: Sequence[Step], analysis: Analysis, needed: frozenset[Slot]
) -> Lowered:  # fmt: skip
    """Describe the kernel of element-wise steps and a sum over rows; ``needed`` as for ``lowered``."""
    place = next(p for p in positions if steps[p].operator.op.name == "sum")
    summed, made = steps[place].args[0], analysis.known[steps[place].outs[0]]
    inner = lowered([p for p in positions if p != place], steps, analysis, needed | {analysis.roots[summed]})
    assert isinstance(inner.kernel, Kernel)
    assert isinstance(made, Meta)
    described = _described(inner.kernel, inner.results.index(analysis.roots[summed]), made)
    return Lowered(described, inner.operands, (*inner.results, analysis.roots[steps[place].outs[0]]))


def _described(kernel: Kernel, summed: int, made: Meta) -> Joined:
    loads = [(str(number), meta) for number, meta in enumerate(kernel.loads)]
    news = [(str(number), meta) for number, (_, meta) in enumerate(kernel.news)]
    return Joined(SUMS, "sum", (kernel, summed), tuple(loads), (*news, ("sums", made)))
