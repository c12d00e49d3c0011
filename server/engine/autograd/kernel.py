"""The Autograd key's one boxed kernel: run the operation below, write down how to differentiate it.

Driven by each operator's table of formulas; what in-place operations and views need is in ``inplace``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

from server.engine import context, keys
from server.engine.dispatcher import BOXED, READY, descend, redispatch, resolve
from server.engine.operators import Operator
from server.engine.plan import Plan, metas_of, plan_of, run_backend
from server.engine.prepared import Run
from server.engine.value import AutogradMeta, Value
from telegrad_protocol.dtypes import FLOAT
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.layout import result_strides

from .graph import Edge, Saved, SavedList, SavedResult, next_sequence, with_history
from .inplace import Overwritten, check_writable, edge_of, rebase, requires_grad
from .node import OpNode, Tape, new_node

_BELOW = keys.below(keys.AUTOGRAD)
Arguments: TypeAlias = tuple[Any, ...]
new_history = partial(object.__new__, AutogradMeta)
"""What autograd knows of a value, without its attributes, for who sets them all."""


def autograd_kernel(operator: Operator, args: Arguments, signature: Arguments, key_set: int) -> Any:
    """Redispatch below Autograd, then attach a node where an input requires a gradient."""
    lower = key_set & _BELOW
    op = operator.op
    if op.updates:
        return redispatch(operator, args, signature, lower)
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
    """The plan of a call; that an operand cannot be differentiated is found out before what a plan refuses."""
    if signature not in operator.plans:
        _gather(operator, args, [])
    return plan_of(operator, args, signature)


def _record_plan(operator: Operator, plan: Plan, signature: Arguments) -> Run:
    """A plan's run with its node, which the plan keeps."""
    found = plan.recorded = _recording(operator, plan, signature, plan.run)
    return found


def _ready(operator: Operator, key_set: int, signature: Arguments) -> Run | None:
    """What the kernel does for one signature, where that is to run a plan and attach a node."""
    op = operator.op
    plan = operator.plans.get(signature)
    if plan is None or op.mutates or op.updates or operator.resolved.get(key_set & _BELOW) is not run_backend:
        return None
    return plan.recorded or _record_plan(operator, plan, signature)


def _recording(operator: Operator, plan: Plan, signature: Arguments, below: Run) -> Run:
    """Run ``below``, and attach a node where an input requires a gradient.

    Nothing of this is done with every operation that can be done once for its plan.
    """
    tapes = plan.tapes
    is_single = plan.count == 1 and plan.outs is not None
    metas: Any = plan.outs
    is_float = is_single and metas[0].dtype.category >= FLOAT
    positions = operator.grad_positions
    takes_lists = any([operator.op.params[p].kind.name.startswith("tensors") for p in positions])
    is_pair = len(positions) == 2 and not takes_lists
    one, two = positions if is_pair else (0, 0)

    def run(args: Arguments) -> Any:
        if is_pair:  # as `_gather`, which most operations are spared
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
        tape = tapes.get(needed) or _tape(operator, plan, needed, args, signature)
        saved: list[Saved | SavedList] = []
        for position in tape.saves:
            value = args[position]
            saved.append(Saved(value) if value.__class__ is Value else _save_list(value))
        result = below(args)
        if not is_single:
            _attach(result if result.__class__ is tuple else (result,), tape, edges, saved)
            return result
        made: OpNode = new_node()
        made.sequence, made.edges, made.metas = next_sequence(), edges, metas
        made.tape, made.saved, made.retained = tape, saved, None
        if is_float:
            known = new_history()
            known.requires_grad, known.grad_fn = True, made
            known.output = known.rebased = 0
            known.grad = known.accumulator = None
            result.autograd = known
            result.keys |= keys.AUTOGRAD
        if tape.saves_outs:
            _save_results(tape, made, (result,))
        return result

    return run


def _attach(results: Arguments, tape: Tape, edges: list[Edge | None], saved: list[Saved | SavedList]) -> None:
    """Make a node the history of several results that an operation has just computed."""
    node = OpNode(tape, edges, tuple([out.meta for out in results]), saved)
    for number, out in enumerate(results):
        if out.meta.dtype.is_differentiable:
            with_history(out, node, number)
    _save_results(tape, node, results)


def _save_results(tape: Tape, node: OpNode, results: Arguments) -> None:
    """Let a node keep those of its results that its formulas name."""
    for place, number in tape.saves_outs:
        node.saved.insert(place, SavedResult(results[number], node, number))  # type: ignore[union-attr]


def _tape(operator: Operator, plan: Plan, needed: int, args: Arguments, signature: Arguments) -> Tape:
    found = plan.tapes[needed] = Tape(operator, needed, metas_of(args))
    found.is_foreseen = not operator.op.mutates and plan.outs is not None and operator.plans.get(signature) is plan
    return found


def _write(
    operator: Operator, args: Arguments, signature: Arguments, lower: int, edges: list[Edge | None], needed: int
) -> Any:  # fmt: skip
    """An operation that writes into operands: their history becomes that of what is written."""
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
        raise AutogradError(f"{op.public}: out= does not support differentiation, but an operand requires grad")
    kernel = descend(operator, lower)
    plan = plan_of(operator, args, signature)
    tape = plan.tapes.get(needed) or _tape(operator, plan, needed, args, signature)
    saved = [_save(args[position], written) for position in tape.saves]
    result = plan.run(args) if kernel is run_backend else kernel(operator, args, signature, lower)
    outs = result if result.__class__ is tuple else (result,)
    node = OpNode(tape, edges, tuple([out.meta for out in outs]), saved)
    _save_results(tape, node, outs)
    rebase(written[0], node)
    return result


def _overwrite(operator: Operator, args: Arguments, signature: Arguments, lower: int, written: list[Value]) -> Any:
    """Run an in-place operation without derivative: what was modified no longer passes gradients on."""
    result = redispatch(operator, args, signature, lower)
    for target in written:
        if requires_grad(target):
            rebase(target, Overwritten(target.meta))
    return result


BOXED[keys.AUTOGRAD] = autograd_kernel
READY[autograd_kernel] = _ready


def _written(mutates: tuple[int, ...], args: Arguments) -> list[Value]:
    found: list[Value] = []
    for position in mutates:
        target = args[position]
        if target.__class__ is Value:
            found.append(target)
        elif target.__class__ is tuple:
            found.extend(target)
    return found


def _gather(operator: Operator, args: Arguments, edges: list[Edge | None]) -> int:
    """Fill in an edge per differentiable tensor input, lists flattened; returns bits of positions that require a
    gradient.
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
    """Fill in an edge per element of a list; tells whether one requires a gradient."""
    found = [edge_of(item) if item is not None else None for item in items]
    edges.extend(found)
    return any(found)


def _save(arg: Any, written: Sequence[Value]) -> Saved | SavedList:
    """What a node keeps of an argument; ``written`` are about to be overwritten."""
    if arg.__class__ is not Value:
        return _save_list(arg, written)
    return _keep_overwritten(arg) if any(arg is w for w in written) else Saved(arg)


def _save_list(args: Arguments, written: Sequence[Value] = ()) -> SavedList:
    return SavedList(tuple([_save(arg, written) if arg.__class__ is Value else arg for arg in args]))


def _keep_overwritten(arg: Value) -> Saved:
    """The old value of an operand that is about to be overwritten: a copy with the old history."""
    edge = edge_of(arg)
    copy = arg.backend.adopt(
        arg.array, arg.meta.like(strides=result_strides(arg.meta.shape, [(arg.meta.shape, arg.meta.strides)]))
    )
    if edge is not None:
        with_history(copy, edge[0], edge[1])
    return Saved(copy)
