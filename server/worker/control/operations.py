"""Operations and backward on behalf of HTTP: executed beside the instruction stream, whose state they leave alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from server.engine import backward as backward_pass
from server.engine.autograd.graph import AccumulateGrad
from server.engine.autograd.inplace import edge_of, set_requires_grad
from server.engine.dispatcher import dispatch
from server.engine.value import Value
from server.ipc import requests as verbs
from server.ipc.requests import NewTensor, RunOp, RunOps, TensorInfo
from server.session import failures
from server.session.arguments import describe_values
from server.session.transfers import Incoming, new_value
from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.errors import ArgumentError, AutogradError, DTypeError, TelegradError

from .plain_arguments import bind, tensors_in
from .tensors import describe_value

if TYPE_CHECKING:
    from server.session.session import Session


def run_ops(session: Session, request: RunOps) -> list[list[TensorInfo]]:
    """Run steps in order; the first that fails is the answer, with its place in ``site``."""
    answers = []
    for i, step in enumerate(request.steps):
        try:
            answers.append(_new_tensor(session, step) if isinstance(step, NewTensor) else _run_op(session, step))
        except TelegradError as error:
            _locate(session, error, step, f"ops[{request.first + i}]")
            raise
        except Exception as error:  # no name is bound to what is raised: its traceback would keep this frame's values
            site = f"ops[{request.first + i}]"
            raise _locate(session, failures.known(error, _operation(step)), step, site) from error
    return answers


def _operation(step: verbs.Step) -> str:
    return "tensor" if isinstance(step, NewTensor) else step.op


def _locate(session: Session, error: TelegradError, step: verbs.Step, site: str) -> TelegradError:
    mentioned = {} if isinstance(step, NewTensor) else _mentioned(session, step)
    error.operation, error.site, error.operands = _operation(step), site, describe_values(list(mentioned.values()))
    return error


def _new_tensor(session: Session, step: NewTensor) -> list[TensorInfo]:
    dtype = BY_NAME.get(step.dtype)
    if dtype is None:
        raise DTypeError(f"unknown dtype {step.dtype!r}: expected one of {', '.join(BY_NAME)}")
    incoming = Incoming(0, new_value(session.host.backend(step.device), step.shape, dtype))
    incoming.write(0, step.data)
    return _name(session, "tensor", [incoming.finish()], None if step.out is None else (step.out,), step.requires_grad)


def _run_op(session: Session, step: RunOp) -> list[TensorInfo]:
    operator, bound = bind(session, step.op, step.args, step.kwargs)
    mentioned = _mentioned(session, step)
    result = dispatch(operator, bound)
    session.hindsight.verify()
    session.host.operations += 1
    results = list(result) if isinstance(result, tuple) else [] if result is None else [result]
    if not operator.op.mutates or (results and step.out is not None):
        return _name(session, step.op, results, step.out, step.requires_grad)
    changed = {id(value) for position in operator.op.mutates for value in _flat(bound[position])}
    return [describe_value(number, value) for number, value in mentioned.items() if id(value) in changed]


def _mentioned(session: Session, step: RunOp) -> dict[int, Value]:
    return tensors_in(session, [step.args, step.kwargs])


def _flat(argument: Any) -> Sequence[Any]:
    return argument if isinstance(argument, tuple) else (argument,)


def _name(
    session: Session, op: str, results: list[Value], ids: tuple[int, ...] | None, is_leaf: bool
) -> list[TensorInfo]:
    if ids is not None and len(ids) != len(results):
        raise ArgumentError(f"{op}: 'out' names {len(ids)} tensors, the results are {len(results)}")
    for value in results if is_leaf else ():
        if value.autograd is not None and value.autograd.grad_fn is not None:
            raise AutogradError(f"{op}: the result was computed from tensors that require grad, so it is no leaf")
        set_requires_grad(value, True)
    ids = tuple([session.new_id() for _ in results]) if ids is None else ids
    session.values.update(zip(ids, results))
    return [describe_value(number, value) for number, value in zip(ids, results)]


def backward(session: Session, request: verbs.Backward) -> list[tuple[int, TensorInfo]]:
    """Accumulate gradients into leaves, and name those that have no name yet."""
    if len(request.gradients) != len(request.roots):
        raise ArgumentError(f"backward: {len(request.roots)} roots and {len(request.gradients)} gradients")
    roots = [session.value(number) for number in request.roots]
    gradients = [None if number is None else session.value(number) for number in request.gradients]
    inputs = None if request.inputs is None else [session.value(number) for number in request.inputs]
    leaves = _leaves_of(roots) if inputs is None else inputs
    backward_pass.backward(
        roots, gradients, retain_graph=request.retain_graph, create_graph=request.create_graph, inputs=inputs
    )
    return _gradients(session, leaves)


def _leaves_of(roots: Sequence[Value]) -> list[Value]:
    """The leaves that the graph of ``roots`` reaches."""
    edges = [edge for edge in map(edge_of, roots) if edge is not None]
    stack = [edge[0] for edge in edges]
    seen = set(stack)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return [node.leaf for node in seen if isinstance(node, AccumulateGrad)]


def _gradients(session: Session, leaves: Sequence[Value]) -> list[tuple[int, TensorInfo]]:
    names = {id(value): number for number, value in reversed(session.values.items())}
    found = []
    for leaf in leaves:
        gradient = leaf.autograd.grad if leaf.autograd is not None else None
        if gradient is None or id(leaf) not in names:
            continue
        number = names.setdefault(id(gradient), -1)
        if number < 0:
            number = names[id(gradient)] = session.new_id()
            session.values[number] = gradient
        found.append((names[id(leaf)], describe_value(number, gradient)))
    return sorted(found)
