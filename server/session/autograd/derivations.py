"""What the session answers about operations themselves: the programs of their derivatives, and what they consist of."""

from __future__ import annotations

from typing import Any

from server.engine.autograd.derivation import PassTrace, Program, Trace, derive, derive_pass, expand
from server.engine.autograd.inplace import edge_of
from server.engine.operators import BY_INDEX, OPERATORS, Operator
from server.engine.value import Value
from server.session.arguments import READERS
from server.session.requests import answers
from server.session.state import SessionState
from telegrad_protocol import queries
from telegrad_protocol.dtypes import of_code
from telegrad_protocol.errors import ArgumentError, UnknownIdError
from telegrad_protocol.meta import Device, Meta

_MOST_CONSTANTS = 1 << 16


def wire_meta(meta: Meta) -> queries.WireMeta:
    """Return a meta as answers carry it."""
    return meta.shape, meta.strides, meta.offset, meta.dtype.code, meta.device.name


def _meta_of(described: queries.WireMeta) -> Meta:
    """The meta of an operand as it travels; ArgumentError where no tensor has it."""
    shape, strides, offset, dtype, device = described
    if len(shape) != len(strides) or min(*shape, *strides, offset, 0) < 0:
        raise ArgumentError(f"there is no tensor of shape {[*shape]} with strides {[*strides]} from element {offset}")
    return Meta.of(tuple(shape), of_code(dtype), Device(device).on_server, tuple(strides), offset)


class _Operands:
    """Stands for the session's values while arguments are read: operands by their numbers."""

    def __init__(self, values: list[Value]) -> None:
        self.values = dict(enumerate(values))

    def value(self, number: int) -> Value:
        if number not in self.values:
            raise UnknownIdError(f"there is no operand number {number}")
        return self.values[number]


def _read(
    op: int, args: list[Any], metas: list[queries.WireMeta], tracked: list[bool]
) -> tuple[Operator, Trace, tuple[Any, ...]]:
    """Return an operation, a trace, and the arguments with traced values for operands."""
    if not 0 <= op < len(BY_INDEX):
        raise ArgumentError(f"there is no operation number {op}")
    trace = Trace()
    values = [trace.value(_meta_of(meta), is_tracked) for meta, is_tracked in zip(metas, tracked, strict=True)]
    state: Any = _Operands(values)
    return BY_INDEX[op], trace, READERS[op].read(state, args)


def _is_composite(operator: Operator) -> bool:
    return OPERATORS[operator.op.base.name].composite is not None


@answers(queries.Derivation)
def _derivation(state: SessionState, query: queries.Derivation) -> Program:
    operator, trace, args = _read(query.op, query.args, query.metas, [False] * len(query.metas))
    if _is_composite(operator):
        raise ArgumentError(f"{operator.op.public} consists of other operations, and these have derivatives")
    return derive(operator, trace, args, query.needed, query.reached)


@answers(queries.PassProgram)
def _pass_program(state: SessionState, query: queries.PassProgram) -> list[Any]:
    roots, edges = state.values_of(query.roots), []
    for value in state.values_of(query.inputs):
        edge = edge_of(value)
        if edge is None:
            raise ArgumentError(f"pass_program: {value.meta} does not require grad")
        edges.append(edge)
    trace = PassTrace(min(query.most, _MOST_CONSTANTS))
    results = derive_pass(trace, roots, edges, query.create_graph)
    constants = []
    for place, (number, value) in enumerate(trace.constants):
        state.values[query.first + place] = value
        constants.append((number, wire_meta(value.meta), query.create_graph and edge_of(value) is not None))
    return [trace.steps, results, constants]


@answers(queries.Expansion)
def _expansion(state: SessionState, query: queries.Expansion) -> Program:
    if len(query.tracked) != len(query.metas):
        raise ArgumentError("expansion: each operand is tracked or is not")
    operator, trace, args = _read(query.op, query.args, query.metas, query.tracked)
    if operator.composite is None:
        raise ArgumentError(f"{operator.op.public} does not consist of other operations")
    return expand(operator, trace, args)


@answers(queries.Composites)
def _composites(state: SessionState, query: queries.Composites) -> list[int]:
    return [operator.op.index for operator in BY_INDEX if operator.composite is not None]
