"""Operations and backward on behalf of HTTP: executed beside the instruction stream, whose state they leave alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.engine import backward as backward_pass
from server.engine.autograd.graph import AccumulateGrad
from server.engine.autograd.inplace import edge_of, set_requires_grad
from server.engine.dispatcher import dispatch
from server.engine.value import Value
from server.ipc import requests
from server.ipc.requests import NewTensor, RunOp, RunOps, TensorInfo
from server.session.arguments import describe_values
from server.session.autograd.gradients import seeds
from server.session.failures import as_telegrad_error
from server.session.requests import answers
from server.session.state import SessionState
from server.session.tensors import begin_upload
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError, AutogradError, TelegradError

from .plain_arguments import bind, tensors_in
from .tensors import describe_value


@answers(RunOps)
def run_ops(state: SessionState, request: RunOps) -> list[list[TensorInfo]]:
    """Run steps in order; the first that fails is the answer, with its place in ``site``."""
    results = []
    for i, step in enumerate(request.steps):
        try:
            results.append(_new_tensor(state, step) if isinstance(step, NewTensor) else _run_op(state, step))
        except TelegradError as error:
            _locate(state, error, step, f"ops[{request.first + i}]")
            raise
        except Exception as error:  # no name is bound to what is raised: its traceback would keep this frame's values
            site = f"ops[{request.first + i}]"
            raise _locate(state, as_telegrad_error(error, _operation(step)), step, site) from error
    return results


def _operation(step: requests.Step) -> str:
    return "tensor" if isinstance(step, NewTensor) else step.op


def _locate(state: SessionState, error: TelegradError, step: requests.Step, site: str) -> TelegradError:
    mentioned = {} if isinstance(step, NewTensor) else _mentioned(state, step)
    error.operation, error.site, error.operands = _operation(step), site, describe_values(list(mentioned.values()))
    return error


def _new_tensor(state: SessionState, step: NewTensor) -> list[TensorInfo]:
    upload = begin_upload(state, 0, step.device, step.shape, dtypes.named(step.dtype))
    upload.write(0, step.data)
    return _name(state, "tensor", [upload.finish()], None if step.out is None else (step.out,), step.requires_grad)


def _run_op(state: SessionState, step: RunOp) -> list[TensorInfo]:
    operator, bound = bind(state, step.op, step.args, step.kwargs)
    mentioned = _mentioned(state, step)
    result = dispatch(operator, bound)
    state.verify()
    state.operations += 1
    results = list(result) if isinstance(result, tuple) else [] if result is None else [result]
    if not operator.op.mutates or (results and step.out is not None):
        return _name(state, step.op, results, step.out, step.requires_grad)
    changed = {id(value) for position in operator.op.mutates for value in _flat(bound[position])}
    return [describe_value(number, value) for number, value in mentioned.items() if id(value) in changed]


def _mentioned(state: SessionState, step: RunOp) -> dict[int, Value]:
    return tensors_in(state, [step.args, step.kwargs])


def _flat(argument: Any) -> Sequence[Any]:
    return argument if isinstance(argument, tuple) else (argument,)


def _name(
    state: SessionState, op: str, results: list[Value], ids: tuple[int, ...] | None, is_leaf: bool
) -> list[TensorInfo]:
    if ids is not None and len(ids) != len(results):
        raise ArgumentError(f"{op}: 'out' names {len(ids)} tensors, the results are {len(results)}")
    for value in results if is_leaf else ():
        if value.autograd is not None and value.autograd.grad_fn is not None:
            raise AutogradError(f"{op}: the result was computed from tensors that require grad, so it is no leaf")
        set_requires_grad(value, True)
    ids = tuple([state.new_id() for _ in results]) if ids is None else ids
    state.values.update(zip(ids, results))
    return [describe_value(number, value) for number, value in zip(ids, results)]


@answers(requests.Backward)
def backward(state: SessionState, request: requests.Backward) -> list[tuple[int, TensorInfo]]:
    """Accumulate gradients into leaves, and name those that have no name yet."""
    if len(request.gradients) != len(request.roots):
        raise ArgumentError(f"backward: {len(request.roots)} roots and {len(request.gradients)} gradients")
    roots, gradients = seeds(state, request.roots, request.gradients)
    inputs = None if request.inputs is None else state.values_of(request.inputs)
    leaves = _leaves_of(roots) if inputs is None else inputs
    backward_pass.backward(
        roots, gradients, retain_graph=request.retain_graph, create_graph=request.create_graph, inputs=inputs
    )
    return _gradients(state, leaves)


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


def _gradients(state: SessionState, leaves: Sequence[Value]) -> list[tuple[int, TensorInfo]]:
    names = {id(value): number for number, value in reversed(state.values.items())}
    accumulated = []
    for leaf in leaves:
        gradient = leaf.autograd.grad if leaf.autograd is not None else None
        if gradient is None or id(leaf) not in names:
            continue
        number = names.setdefault(id(gradient), -1)
        if number < 0:
            number = names[id(gradient)] = state.new_id()
            state.values[number] = gradient
        accumulated.append((names[id(leaf)], describe_value(number, gradient)))
    return sorted(accumulated)
