"""The Autograd key's one boxed kernel: it runs an operation below its key, and attaches a node to the results.

Driven by each operator's table of formulas. What in-place operations and views need is in ``inplace``; how a node
computes gradients is in ``node``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

from server.engine import context, keys
from server.engine.dispatcher import AROUND_ANY_NUMBERS, BOXED, SPECIALIZERS, descend, redispatch, resolve
from server.engine.in_c import histories
from server.engine.in_c.histories import edge_of
from server.engine.operators import Operator, Run
from server.engine.plan import Plan, plan_of, run_backend
from server.engine.replay.varying import Around
from server.engine.signature import metas_of
from server.engine.value import Value
from telegrad_protocol.dtypes import FLOAT
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.layout import result_strides

from .graph import (
    Edge,
    SavedOutput,
    SavedTensor,
    SavedTensorList,
    new_autograd_meta,
    next_sequence,
    with_history,
)
from .inplace import Overwritten, check_writable, rebase, requires_grad
from .node import GradientPlan, OpNode, new_node

_BELOW = keys.below(keys.AUTOGRAD)
Arguments: TypeAlias = tuple[Any, ...]


def autograd_kernel(operator: Operator, args: Arguments, signature: Arguments, key_set: int) -> Any:
    """Redispatch below Autograd, then attach a node if an input requires a gradient."""
    lower = key_set & _BELOW
    op = operator.op
    if op.mutates:
        edges: list[Edge | None] = []
        needed = _gather(operator, args, edges)
        return _write(operator, args, signature, lower, edges, needed)
    if context.current.trace is None and (operator.resolved.get(lower) or resolve(operator, lower)) is run_backend:
        plan = operator.plans.get(signature) or _plan_of(operator, args, signature)
        return (plan.recorded or _record_plan(operator, plan, signature))(args)
    plan = _plan_of(operator, args, signature)
    return _recording(operator, plan, signature, lambda args: redispatch(operator, args, signature, lower))(args)


def _plan_of(operator: Operator, args: Arguments, signature: Arguments) -> Plan:
    """Return the plan of a call; an operand that cannot be differentiated is reported before what the plan refuses."""
    try:
        return plan_of(operator, args, signature)
    except Exception:
        _gather(operator, args, [])
        raise


def _record_plan(operator: Operator, plan: Plan, signature: Arguments) -> Run:
    """Return what runs a plan and attaches a node; the plan keeps it."""
    run = plan.recorded = _recording(operator, plan, signature, plan.run)
    return run


def _ready(operator: Operator, key_set: int, signature: Arguments) -> Run | None:
    """Return what the kernel does for one signature if that is to run a plan and attach a node, else None."""
    op = operator.op
    plan = operator.plans.get(signature)
    if plan is None or op.mutates or operator.resolved.get(key_set & _BELOW) is not run_backend:
        return None
    return plan.recorded or _record_plan(operator, plan, signature)


def _around_any_numbers(operator: Operator, key_set: int) -> Around | None:
    """Return what records the operations of a plan whose numbers vary, where nothing else is between."""
    is_plain = not operator.op.mutates and operator.resolved.get(key_set & _BELOW) is run_backend
    return _record_any_numbers if is_plain else None


def _record_any_numbers(operator: Operator, plan: Plan) -> Run:
    """Attach nodes with gradient plans of their own, since formulas read the numbers."""
    return _recording(operator, plan, (), plan.run, keeps=False)


def _recording(operator: Operator, plan: Plan, signature: Arguments, below: Run, keeps: bool = True) -> Run:
    """Return a function that runs ``below`` and attaches a node if an input requires a gradient.

    With ``keeps`` calls share gradient plans, which the plan keeps; otherwise each call has one of its own.

    Every recorded operation calls it, so what depends on the plan alone is worked out here, once. It does not refer to
    the plan, which keeps it: a plan that is forgotten is to be gone at once, and not wait for the garbage collector.
    """
    gradient_plans = plan.gradient_plans
    kept_plans = gradient_plans if keeps else None
    has_outs = plan.outs is not None
    is_single = plan.count == 1 and has_outs
    metas: Any = plan.outs
    is_float = is_single and metas[0].dtype.category >= FLOAT
    positions = operator.grad_positions
    takes_lists = any([operator.op.params[p].kind.name.startswith("tensors") for p in positions])
    if is_single and not takes_lists:
        make_plan = partial(_make_gradient_plan, operator, kept_plans, has_outs, signature)
        in_c = histories.recording_of(positions, gradient_plans, below, metas, is_float, make_plan)
        if in_c is not None:
            return in_c
    is_pair = len(positions) == 2 and not takes_lists
    one, two = positions if is_pair else (0, 0)

    def run(args: Arguments) -> Any:
        if is_pair:  # `_gather`, inlined: nearly all operations have two operands
            a, b = args[one], args[two]
            first = edge_of(a) if a.__class__ is Value else None
            second = edge_of(b) if b.__class__ is Value else None
            edges = [first, second]
            needed = (first is not None) << one | (second is not None) << two
        else:
            edges = []
            needed = _gather(operator, args, edges)
        if not needed:
            return below(args)
        gradient_plan = gradient_plans.get(needed) or _gradient_plan(
            operator, kept_plans, has_outs, needed, args, signature
        )
        saved: list[SavedTensor | SavedTensorList] = []
        for position in gradient_plan.saves:
            value = args[position]
            saved.append(SavedTensor(value) if value.__class__ is Value else _save_list(value))
        result = below(args)
        if not is_single:
            _attach(result if result.__class__ is tuple else (result,), gradient_plan, edges, saved)
            return result
        node: OpNode = new_node()  # constructors, inlined
        node.sequence, node.edges, node.metas = next_sequence(), edges, metas
        node.plan, node.saved, node.retained = gradient_plan, saved, None
        if is_float:
            history = new_autograd_meta()
            history.requires_grad, history.grad_fn = True, node
            history.output = history.rebased = 0
            history.grad = history.accumulator = None
            result.autograd = history
            result.keys |= keys.AUTOGRAD
        if gradient_plan.saves_outs:
            _save_results(gradient_plan, node, (result,))
        return result

    return run


def _attach(
    results: Arguments, plan: GradientPlan, edges: list[Edge | None], saved: list[SavedTensor | SavedTensorList]
) -> None:
    """Make a new node the history of several results that an operation has just computed."""
    node = OpNode(plan, edges, tuple([out.meta for out in results]), saved)
    constants = plan.operator.op.constants
    for number, out in enumerate(results):
        if out.meta.dtype.is_differentiable and number not in constants:
            with_history(out, node, number)
    _save_results(plan, node, results)


def _save_results(plan: GradientPlan, node: OpNode, results: Arguments) -> None:
    """Save those results of a node that its formulas name."""
    for place, number in plan.saves_outs:
        node.saved.insert(place, SavedOutput(results[number], node, number))  # type: ignore[union-attr]


def _gradient_plan(
    operator: Operator, plans: dict[int, Any] | None, has_outs: bool, needed: int, args: Arguments, signature: Arguments
) -> GradientPlan:  # fmt: skip
    """Work out how an operation is differentiated with respect to ``needed``, and add it to the ``plans`` of a plan.

    ``plans`` is None where it is for one call alone. ``has_outs`` says whether the plan knows the metas of the results.
    """
    gradient_plan = GradientPlan(operator, needed, metas_of(args))
    if plans is None:
        return gradient_plan
    plans[needed] = gradient_plan
    kept = operator.plans.get(signature)
    gradient_plan.has_known_results = has_outs and kept is not None and kept.gradient_plans is plans
    return gradient_plan


def _make_gradient_plan(
    operator: Operator, plans: dict[int, Any] | None, has_outs: bool, signature: Arguments, needed: int, args: Arguments
) -> GradientPlan:  # fmt: skip
    """Do the same with the call last, for what is bound to an operation's plan."""
    return _gradient_plan(operator, plans, has_outs, needed, args, signature)


def _write(
    operator: Operator, args: Arguments, signature: Arguments, lower: int, edges: list[Edge | None], needed: int
) -> Any:  # fmt: skip
    """Run an operation that writes into operands, and give these the history of what is written."""
    op = operator.op
    written = _written(op.mutates, args)
    touches_graph = any(map(requires_grad, written))
    if needed or touches_graph:
        for target in written:
            check_writable(op.public, target)
    if touches_graph and not needed:
        return _overwrite(operator, args, signature, lower, written)
    if not needed:
        return redispatch(operator, args, signature, lower)
    if op.form == "out":
        raise AutogradError(
            f"{op.public}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    kernel = descend(operator, lower)
    plan = plan_of(operator, args, signature)
    plans, has_outs = plan.gradient_plans, plan.outs is not None
    gradient_plan = plans.get(needed) or _gradient_plan(operator, plans, has_outs, needed, args, signature)
    saved = [_save(args[position], written) for position in gradient_plan.saves]
    result = plan.run(args) if kernel is run_backend else kernel(operator, args, signature, lower)
    outs = result if result.__class__ is tuple else (result,)
    node = OpNode(gradient_plan, edges, tuple([out.meta for out in outs]), saved)
    _save_results(gradient_plan, node, outs)
    rebase(written[0], node)
    return result


def _overwrite(operator: Operator, args: Arguments, signature: Arguments, lower: int, written: list[Value]) -> Any:
    """Run an in-place operation without derivative: gradients no longer flow through what it modifies."""
    result = redispatch(operator, args, signature, lower)
    for target in written:
        if requires_grad(target):
            rebase(target, Overwritten(target.meta))
    return result


BOXED[keys.AUTOGRAD] = autograd_kernel
SPECIALIZERS[autograd_kernel] = _ready
AROUND_ANY_NUMBERS[autograd_kernel] = _around_any_numbers


def _written(mutates: tuple[int, ...], args: Arguments) -> list[Value]:
    targets: list[Value] = []
    for position in mutates:
        target = args[position]
        if target.__class__ is Value:
            targets.append(target)
        elif target.__class__ is tuple:
            targets.extend(target)
    return targets


def _gather(operator: Operator, args: Arguments, edges: list[Edge | None]) -> int:
    """Append an edge for each differentiable tensor input, lists flattened.

    Returns a bit set of the positions whose arguments require a gradient.
    """
    needed = 0
    for position in operator.grad_positions:
        arg = args[position]
        if arg.__class__ is not Value:
            if arg.__class__ is tuple:
                needed |= _gather_list(arg, edges) << position
            else:
                edges.append(None)
            continue
        edge = edge_of(arg)
        edges.append(edge)
        if edge is not None:
            needed |= 1 << position
    return needed


def _gather_list(items: Arguments, edges: list[Edge | None]) -> bool:
    """Append an edge for each element of a list; returns whether one requires a gradient."""
    item_edges = [edge_of(item) if item is not None else None for item in items]
    edges.extend(item_edges)
    return any(item_edges)


def _save(arg: Any, written: Sequence[Value]) -> SavedTensor | SavedTensorList:
    """Save an argument; values that are in ``written`` are about to be overwritten."""
    if arg.__class__ is not Value:
        return _save_list(arg, written)
    return _save_copy(arg) if any(arg is target for target in written) else SavedTensor(arg)


def _save_list(args: Arguments, written: Sequence[Value] = ()) -> SavedTensorList:
    return SavedTensorList(tuple([_save(arg, written) if arg.__class__ is Value else arg for arg in args]))


def _save_copy(arg: Value) -> SavedTensor:
    """Save an operand that is about to be overwritten: a copy, with the operand's history."""
    edge = edge_of(arg)
    copy = arg.backend.adopt(
        arg.array, arg.meta.like(strides=result_strides(arg.meta.shape, [(arg.meta.shape, arg.meta.strides)]))
    )
    if edge is not None:
        with_history(copy, edge[0], edge[1])
    return SavedTensor(copy)


histories.prepare(_save_list)
