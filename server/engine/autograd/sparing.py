"""Passes that hold less: a node whose tensors are large lets go of each as soon as the last formula has taken it.

A node's formulas are evaluated in *turns*, so that what only the first of them needs is freed before the others
allocate their results: a layer's input before the gradient of that input is made. The last formula may say that it
spends the gradient. Where nothing else holds that, the formula's operation writes its result over it. Only for nodes
that are not needed afterwards. Values are those of ``OpNode.apply``, which is for all other nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any, NamedTuple, TypeAlias

from server.engine import context
from server.engine.operators import Formula
from server.engine.value import Value
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta

from .gradient_form import Pick
from .gradients import ALONE_IN_ATTRIBUTE, ALONE_IN_TABLE
from .graph import SavedTensor, SavedTensorList
from .node import GradientPlan, InputGradient, OpNode, fit_gradient

Parted: TypeAlias = Callable[[Sequence["tuple[int, Any]"]], None]
"""Is told, before the node lets go of all that it has saved, what later turns need of it: slots and values."""


class Turn(NamedTuple):
    """One call of a formula.

    ``places`` are those of the gradients that it makes, in the node's results and in its own; ``replaced`` is given in
    place of operands that it has no use for. ``freed`` are the operands that no later turn needs.
    """

    formula: Formula
    pick: Pick
    places: tuple[tuple[int, int | None], ...]
    replaced: tuple[tuple[int, Any], ...]
    freed: tuple[int, ...]
    spends: bool


def _count_in_list() -> int:
    items = [object()]
    return getrefcount(items[0])


_ALONE_IN_LIST = _count_in_list()
"""What ``getrefcount(items[0])`` says of an object that the list alone refers to."""


def turns_of(node: OpNode) -> tuple[Turn, ...]:
    """Return the turns of a node's plan; none where it has nothing to spare. Worked out for the first node."""
    plan = node.plan
    if plan.turns is None:
        plan.turns = _turns(node)
    turns: tuple[Turn, ...] = plan.turns
    return turns


def spares(node: OpNode, grads: Sequence[Value | None]) -> bool:
    """Whether a node that is not needed any more would hold less in turns, as things are."""
    saved, turns = node.saved, turns_of(node)
    if saved is None or not turns or grads[0] is None or any([one is not None for one in grads[1:]]):
        return False
    if turns[-1].spends and _is_spent(grads):
        return True
    first = len(node.plan.constants)
    freed = [saved[place - first] for place in turns[0].freed if place < first + len(saved)] if len(turns) > 1 else []
    return any([
        item.meta.nbytes >= item.storage.backend.least_spent and getrefcount(item.storage) <= ALONE_IN_ATTRIBUTE  # type: ignore[union-attr]
        for item in freed
    ])  # fmt: skip


def apply(node: OpNode, grads: list[Value | None]) -> list[Value | None]:
    """Do what ``node.apply`` does for a node that ``spares``, and release the node."""
    return take_turns(node, grads, [item.unpack(node) for item in node.saved or ()], None)


def take_turns(
    node: OpNode, grads: list[Value | None], unpacked: list[Any], parted: Parted | None
) -> list[Value | None]:  # fmt: skip
    """Evaluate the formulas in turns; takes what was ``unpacked`` out of the list, which may be its only holder."""
    plan, current = node.plan, context.current
    if node.saved is None:
        raise AutogradError("a node takes turns only while it has what it saved")
    turns, first = turns_of(node), len(plan.constants)
    results: list[Value | None] = [None] * len(plan.inputs)
    operands = [*plan.constants, *unpacked]
    spent = grads[0] if turns[-1].spends and _is_spent(grads) else None
    operands += grads
    unpacked.clear()
    if parted is None:
        node.saved = None
    try:
        for turn in turns:
            is_last = turn is turns[-1]
            if is_last and not any([one is not None and one.storage is grads[0].storage for one in results]):  # type: ignore[union-attr]
                current.spent = spent
            _take(turn, operands, results, plan)
            if parted is not None and not is_last and node.saved is not None:
                gone = set(turn.freed)
                count = len(operands) - first - len(grads)
                parted([(k, operands[first + k]) for k in range(count) if first + k not in gone])
                node.saved = None
    finally:
        current.spent = None
    return results


def _take(turn: Turn, operands: list[Any], results: list[Value | None], plan: GradientPlan) -> None:
    """Evaluate one formula, and let go of what no later one needs."""
    made = turn.formula(*turn.pick(_replaced(operands, turn.replaced)))
    for place in turn.freed:
        operands[place] = None
    for place, number in turn.places:
        gradient = made if number is None else made[number]
        meta = plan.inputs[place].meta if number is None else plan.joint.meta[number]  # type: ignore[union-attr]
        results[place] = gradient if gradient is None or gradient.meta is meta else fit_gradient(gradient, meta)


def _replaced(operands: list[Any], replaced: Sequence[tuple[int, Any]]) -> list[Any]:
    if not replaced:
        return operands
    given = operands.copy()
    for place, item in replaced:
        given[place] = item
    return given


def _is_spent(grads: Sequence[Value | None]) -> bool:
    """Whether the gradient is large, and dies with the list: nothing else holds it, or its memory."""
    gradient, current = grads[0], context.current
    if gradient is None or gradient.meta.nbytes < gradient.backend.least_spent or gradient.base is not None:
        return False
    del gradient
    return (
        getrefcount(grads[0]) <= _ALONE_IN_LIST
        and getrefcount(grads[0].storage) <= ALONE_IN_ATTRIBUTE  # type: ignore[union-attr]
        and grads[0].storage.keeper is None  # type: ignore[union-attr]
        and not current.own_streams.left_default
        and (current.recorder is None or current.recorder.lets_spend)
    )


def may_be_spent(values: dict[int, Value], number: int) -> bool:
    """Whether nothing but the table of a recorded pass has a value, and its memory."""
    value = values[number]
    return (
        getrefcount(value) <= ALONE_IN_TABLE
        and value.base is None
        and getrefcount(value.storage) <= ALONE_IN_ATTRIBUTE
        and value.storage.keeper is None
        and not context.current.own_streams.left_default
    )


def _turns(node: OpNode) -> tuple[Turn, ...]:
    plan, saved = node.plan, node.saved or []
    least = context.current.backends[node.metas[0].device].least_spent
    if not _has_large(node, least):
        return ()
    if plan.names_grads or not plan.has_known_results or not plan.reads <= {0}:
        return ()
    if not all([isinstance(item, SavedTensor) for item in saved]) or not all(map(_is_of_one_tensor, plan.inputs)):
        return ()
    sizes = [item.meta.nbytes for item in saved]  # type: ignore[union-attr]
    calls = _joint_turns(plan) if plan.joint is not None else _single_turns(plan, sizes, len(node.metas))
    turns = _with_frees(plan, calls, len(sizes), len(node.metas))
    first = len(plan.constants)
    early = [sizes[place - first] for turn in turns[:-1] for place in turn.freed if first <= place < first + len(sizes)]
    frees = max(early, default=0) >= least
    spends = bool(turns) and turns[-1].spends and node.metas[0].nbytes >= least
    return turns if frees or spends else ()


def _has_large(node: OpNode, least: int) -> bool:
    """Whether a node's gradient, or memory that it has saved, is of so many bytes."""
    for item in node.saved or ():
        if item.__class__ is not SavedTensorList and item.storage.nbytes >= least:  # type: ignore[union-attr]
            return True
    return node.metas[0].nbytes >= least


def _is_of_one_tensor(one: InputGradient) -> bool:
    """Whether an argument is no list."""
    return one.meta.__class__ is Meta or (one.formula is None and len(one.meta) == 1)


def _joint_turns(plan: GradientPlan) -> list[Turn]:
    """The joint formula once for the gradients that the operation makes first, and once for the others."""
    operator = plan.operator
    mask_at = next((at for at, (where, _) in enumerate(plan.fixed) if where == "wanted"), None)
    formula, pick, _ = plan.joint  # type: ignore[misc]
    if not operator.made_first or mask_at is None:
        places = tuple([(k, k) for k in range(len(plan.inputs)) if plan.inputs[k].formula is not None])
        return [Turn(formula, pick, places, (), (), getattr(formula, "spends", False))]  # type: ignore[arg-type]
    positions = operator.grad_positions
    wanted = plan.constants[mask_at]
    parts = [tuple([w and (p in operator.made_first) is is_first for p, w in zip(positions, wanted)])
             for is_first in (True, False)]  # fmt: skip
    if not all(map(any, parts)):
        return []
    turns = []
    for mask in parts:
        named = {n for p, w in zip(positions, mask) if w for n in operator.derivatives[p].saves_args}
        unused = [
            (len(plan.constants) + k, None)
            for k, (where, number) in enumerate(plan.saved) if where == "arg" and number not in named
        ]  # fmt: skip
        places = tuple([(k, k) for k, w in enumerate(mask) if w])
        turns.append(Turn(formula, pick, places, ((mask_at, mask), *unused), (), False))  # type: ignore[arg-type]
    return turns


def _single_turns(plan: GradientPlan, sizes: Sequence[int], outputs: int) -> list[Turn]:
    """The formulas of single gradients; those that alone need the most come first."""
    wanted = [(k, *plan.inputs[k][:2]) for k in range(len(plan.inputs)) if plan.inputs[k].formula is not None]
    first, count = len(plan.constants), len(plan.constants) + len(sizes) + outputs
    reads = {k: set(pick(list(range(count)))) for k, _, pick in wanted}

    def own(k: int) -> int:
        others = set().union(*[reads[o] for o in reads if o != k])
        return sum([sizes[place - first] for place in reads[k] - others if first <= place < first + len(sizes)])

    wanted.sort(key=lambda item: -own(item[0]))
    return [
        Turn(formula, pick, ((k, None),), (), (), getattr(formula, "spends", False))
        for k, formula, pick in wanted
        if formula is not None
    ]


def _with_frees(plan: GradientPlan, turns: Sequence[Turn], saved: int, outputs: int) -> tuple[Turn, ...]:
    """The turns, with the operands that each is the last to need."""
    first, count = len(plan.constants), len(plan.constants) + saved + outputs
    left = set(range(first, count))
    done: list[Turn] = []
    for turn in reversed(turns):
        unused = {place for place, _ in turn.replaced}
        reads = {place for place in turn.pick(list(range(count))) if place not in unused}
        done.append(turn._replace(freed=tuple(sorted(left & reads)), spends=turn.spends and not done))
        left -= reads
    done.reverse()
    if done:
        done[0] = done[0]._replace(freed=tuple(sorted({*done[0].freed, *left})))
    return tuple(done)
