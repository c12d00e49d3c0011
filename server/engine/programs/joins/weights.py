"""Gradients of layers' weights and biases, which no other gradient waits for: those of several layers are one launch.

A layer's backward pass makes its input's gradient, too, which the layer below waits for. So it is taken apart where a
device can join the rest with that of other layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from server.engine.programs.analysis import Analysis
from server.engine.programs.fused import JOINERS
from server.engine.programs.graph import Slot, Step
from server.engine.programs.grouping import Group, Grouping
from server.engine.programs.joined import WEIGHTS, Joined
from server.engine.programs.lowering import Lowered
from telegrad_protocol.meta import Meta

LAYER: Final = "_linear_backward"


def has_weights_apart(steps: Sequence[Step], keys: Mapping[object, int]) -> bool:
    """Whether there are gradients of several weights, and devices that join them; otherwise no step is taken apart."""
    return any([(key, WEIGHTS) in JOINERS for key in keys.values()]) and sum(map(_is_layer, steps)) > 1


def with_weights_apart(steps: Sequence[Step], analysis: Analysis, keys: Mapping[object, int]) -> list[Step]:
    """Make the gradients of weights and biases by steps of their own, where there are several that can be joined."""
    found = [step for step in steps if _is_layer(step) and _is_taken([step], analysis, keys)]
    if len(found) < 2:
        return list(steps)
    chosen = {id(step) for step in found if step.args[2] is not None}
    return [part for step in steps for part in (apart(step) if id(step) in chosen else [step])]


def with_layers_whole(steps: Sequence[Step]) -> list[Step]:
    """Make one step of the two by which a pass has made a layer's gradients to hold less.

    What can be joined, and what is better made apart, is found from whole layers.
    """
    whole: list[Step] = []
    for step in steps:
        both = _both(whole[-1], step) if whole else None
        if both is None:
            whole.append(step)
        else:
            whole[-1] = both
    return whole


def _both(others: Step, by_input: Step) -> Step | None:
    """The step that makes what two make, of one gradient: those of weight and bias, and then that of the input."""
    if others.operator.op.name != LAYER or by_input.operator.op.name != LAYER:
        return None
    grad, input, none, has_bias = others.args
    if none is not None or by_input.args[0] != grad or by_input.args[1] is not None or by_input.args[3]:
        return None
    return Step(others.operator, (grad, input, by_input.args[2], has_bias), (*by_input.outs, *others.outs))


def _is_layer(step: Step) -> bool:
    """Whether a step makes a weight's gradient."""
    return step.operator.op.name == LAYER and step.args[1] is not None


def apart(step: Step) -> list[Step]:
    """The input's gradient, and the others."""
    grad, input, weight, has_bias = step.args
    return [
        Step(step.operator, (grad, None, weight, False), step.outs[:1]),
        Step(step.operator, (grad, input, None, has_bias), step.outs[1:]),
    ]


def _is_taken(steps: Sequence[Step], analysis: Analysis, keys: Mapping[object, int]) -> bool:
    """Whether a device makes the gradients of these layers' weights in one launch."""
    if not all([isinstance(analysis.known[arg], Meta) for step in steps for arg in step.args[:2]]):
        return False
    kernel = _lowered(steps, analysis).kernel
    joiner = JOINERS.get((keys.get(kernel.device, 0), WEIGHTS))
    return joiner is not None and isinstance(kernel, Joined) and joiner.takes(kernel)


def join_weights(grouping: Grouping) -> None:
    """Join each gradient of a weight with those before it, as many as a device takes."""
    last: dict[Any, Group] = {}
    for position, step in enumerate(grouping.steps):
        group = grouping.by_step[position]
        if not _is_layer(step) or step.args[2] is not None or group.positions != [position]:
            continue
        device = getattr(grouping.analysis.known[step.args[0]], "device", None)
        earlier = last.get(device)
        if earlier is not None and _can_join(grouping, earlier, group):
            grouping.absorb(earlier, group)
            earlier.kind = WEIGHTS
        else:
            last[device] = group


def _can_join(grouping: Grouping, group: Group, other: Group) -> bool:
    positions = sorted(group.positions + other.positions)
    if any([grouping.analysis.bound[p] is None for p in positions]):
        return False
    is_taken = _is_taken([grouping.steps[p] for p in positions], grouping.analysis, grouping.keys)
    return is_taken and grouping.has_nothing_between(group, other)


def lowered_weights(positions: Sequence[int], steps: Sequence[Step], analysis: Analysis) -> Lowered:
    """Describe the kernel of several layers' gradients."""
    return _lowered([steps[p] for p in positions], analysis)


def _lowered(steps: Sequence[Step], analysis: Analysis) -> Lowered:
    loads: dict[str, Slot] = {}
    news: dict[str, Slot] = {}
    for number, step in enumerate(steps):
        grad, input, weight, _ = step.args
        loads |= {f"grad {number}": grad, f"input {number}": input}
        made = step.outs if weight is None else step.outs[1:]
        news |= dict(zip([f"weight {number}", f"bias {number}"][: len(made)], made, strict=True))
    described = Joined(WEIGHTS, LAYER, (), _metas(loads, analysis), _metas(news, analysis))
    roots = analysis.roots
    return Lowered(
        described, tuple([roots[slot] for slot in loads.values()]), tuple([roots[slot] for slot in news.values()])
    )


def _metas(slots: Mapping[str, Slot], analysis: Analysis) -> tuple[tuple[str, Any], ...]:
    return tuple([(role, analysis.known[slot]) for role, slot in slots.items()])
