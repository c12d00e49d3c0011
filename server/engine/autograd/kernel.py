"""The Autograd key's one boxed kernel: run the operation below, write down how to differentiate it.

Driven by each operator's table of formulas; what in-place operations and views need is in ``inplace``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from telegrad_protocol.dtypes import FLOAT
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.layout import result_strides

from .. import context, keys
from ..dispatcher import BOXED, descend, redispatch
from ..operators import Operator
from ..plan import Plan, metas_of, plan_of, run_backend
from ..value import Value
from .graph import AutogradMeta, Edge, Saved, SavedList, SavedResult, to_edge, with_history
from .inplace import Overwritten, check_writable, edge_of, rebase, requires_grad
from .node import OpNode, Tape

_BELOW = keys.below(keys.AUTOGRAD)
Arguments: TypeAlias = tuple[Any, ...]


def autograd_kernel(operator: Operator, args: Arguments, signature: Arguments, key_set: int) -> Any:
    """Redispatch below Autograd, then attach a node where an input requires a gradient."""
    lower = key_set & _BELOW
    op = operator.op
    if op.updates:
        return redispatch(operator, args, signature, lower)
    edges: list[Edge | None] = []
    needed = _gather(operator, args, edges)
    if op.mutates:
        return _write(operator, args, signature, lower, edges, needed)
    if not needed:
        return redispatch(operator, args, signature, lower)
    kernel = (operator.resolved.get(lower) if context.current.trace is None else None) or descend(operator, lower)
    plan = operator.plans.get(signature) or plan_of(operator, args, signature)
    tape = plan.tapes.get(needed)
    if tape is None:
        tape = _tape(operator, plan, needed, args)
        tape.is_foreseen = plan.outs is not None and operator.plans.get(signature) is plan
    saved: list[Saved | SavedList] = []
    for position in tape.saves:
        arg = args[position]
        saved.append(Saved(arg) if arg.__class__ is Value else _save_list(arg))
    result = plan.run(args) if kernel is run_backend else kernel(operator, args, signature, lower)
    if result.__class__ is Value:
        node = OpNode(tape, edges, (result.meta,), saved)
        if result.meta.dtype.category >= FLOAT:
            result.autograd = AutogradMeta(True, node, 0)
            result.keys |= keys.AUTOGRAD
        if tape.saves_outs:
            _save_results(tape, node, (result,))
    else:
        _attach(result, tape, edges, saved)
    return result


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


def _tape(operator: Operator, plan: Plan, needed: int, args: Arguments) -> Tape:
    found = plan.tapes[needed] = Tape(operator, needed, metas_of(args))
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
    tape = plan.tapes.get(needed) or _tape(operator, plan, needed, args)
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
        if arg.__class__ is Value:
            known = arg.autograd
            if arg.base is not None or (known is not None and known.grad_fn is None):
                edge = edge_of(arg)
            else:
                edge = None if known is None else to_edge((known.grad_fn, known.output))
            edges.append(edge)
            if edge is not None:
                needed |= 1 << position
        elif arg.__class__ is tuple:
            found = [edge_of(a) if a is not None else None for a in arg]
            edges.extend(found)
            if any(found):
                needed |= 1 << position
        else:
            edges.append(None)
    return needed


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
        with_history(copy, edge.node, edge.output)
    return Saved(copy)
