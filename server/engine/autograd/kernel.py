"""The Autograd key's one boxed kernel: run the operation below, write down how to differentiate it.

Driven by each operator's table of formulas; what in-place operations and views need is in ``inplace``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from telegrad_protocol.errors import AutogradError
from telegrad_protocol.layout import result_strides

from .. import context, keys
from ..dispatcher import BOXED, redispatch
from ..operators import Operator
from ..value import Value
from .graph import Edge, Saved, with_history
from .inplace import Overwritten, check_writable, edge_of, rebase, requires_grad
from .node import OpNode, Wanted

_BELOW = keys.below(keys.AUTOGRAD)
Arguments: TypeAlias = tuple[Any, ...]


def autograd_kernel(operator: Operator, args: Arguments, signature: Arguments, key_set: int) -> Any:
    """Redispatch below Autograd, then attach a node where an input requires a gradient."""
    lower = key_set & _BELOW
    op = operator.op
    if not context.current.grad_enabled or op.updates:
        return redispatch(operator, args, signature, lower)
    edges: list[Edge | None] = []
    needed = _gather(operator, args, edges) if op.differentiable else ()
    if op.mutates:
        return _write(operator, args, signature, lower, edges, needed)
    if not needed:
        return redispatch(operator, args, signature, lower)
    wanted = Wanted.of(operator, needed)
    kept = tuple([
        _keep(arg, saves) if saves or arg.__class__ is tuple else arg.meta if arg.__class__ is Value else arg
        for arg, saves in zip(args, wanted.saves)
    ])  # fmt: skip
    result = redispatch(operator, args, signature, lower)
    return _attach(result, operator, edges, kept, wanted, signature)


def _attach(
    result: Any, operator: Operator, edges: list[Edge | None], kept: Arguments, wanted: Wanted, signature: Arguments
) -> Any:
    """Make a node the history of results that an operation has just computed."""
    outs = result if result.__class__ is tuple else (result,)
    node = _node(operator, edges, outs, kept, wanted)
    node.signature = signature
    for number, out in enumerate(outs):
        if out.meta.dtype.is_differentiable:
            with_history(out, node, number)
    return result


def _node(operator: Operator, edges: list[Edge | None], outs: Arguments, kept: Arguments, wanted: Wanted) -> OpNode:
    """The node of an operation that gave ``outs``, with what its formulas name of them."""
    node = OpNode(operator, tuple(edges), tuple([out.meta for out in outs]), kept, wanted)
    for number in wanted.saves_outs:
        node.saved_outs[number] = Saved(outs[number], node, number)
    return node


def _write(
    operator: Operator, args: Arguments, signature: Arguments, lower: int, edges: list[Edge | None],
    needed: tuple[int, ...],
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
    wanted = Wanted.of(operator, needed)
    kept = tuple([_keep(arg, saves, written) for arg, saves in zip(args, wanted.saves)])
    result = redispatch(operator, args, signature, lower)
    outs = result if result.__class__ is tuple else (result,)
    rebase(written[0], _node(operator, edges, outs, kept, wanted))
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


def _gather(operator: Operator, args: Arguments, edges: list[Edge | None]) -> tuple[int, ...]:
    """Fill in an edge per differentiable tensor input, lists flattened; returns positions that require a gradient."""
    needed: tuple[int, ...] = ()
    for position in operator.grad_positions:
        arg = args[position]
        if arg.__class__ is Value:
            if arg.autograd is None and arg.base is None:
                edges.append(None)
                continue
            edge = edge_of(arg)
            edges.append(edge)
            if edge is not None:
                needed += (position,)
        elif arg.__class__ is tuple:
            found = [edge_of(a) if a is not None else None for a in arg]
            edges.extend(found)
            if any(found):
                needed += (position,)
        else:
            edges.append(None)
    return needed


def _keep(arg: Any, wanted: bool, written: Sequence[Value] = ()) -> Any:
    """What the node remembers of an argument: the value if a formula names it, else its meta."""
    if arg.__class__ is Value:
        if not wanted:
            return arg.meta
        return _keep_overwritten(arg) if written and any(arg is w for w in written) else Saved(arg)
    if arg.__class__ is tuple:
        return tuple([_keep(a, wanted, written) for a in arg])
    return arg


def _keep_overwritten(arg: Value) -> Saved:
    """The old value of an operand that is about to be overwritten: a copy with the old history."""
    edge = edge_of(arg)
    copy = arg.backend.adopt(
        arg.array, arg.meta.like(strides=result_strides(arg.meta.shape, [(arg.meta.shape, arg.meta.strides)]))
    )
    if edge is not None:
        with_history(copy, edge.node, edge.output)
    return Saved(copy)
