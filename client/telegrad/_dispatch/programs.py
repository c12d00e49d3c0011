"""Programs of operations that the server tells: how an operation is differentiated, and what a composite consists of.

They are asked for once per operation, shapes, types and attributes of its operands, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from telegrad._ops.functions import function
from telegrad._session.current import current_session
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import of_code
from telegrad_protocol.meta import CPU, META, Device, Meta
from telegrad_protocol.ops import TABLE, Op

Template = tuple[Any, ...]
"""Bound arguments with ``Operand`` in the place of tensors, in lists too."""
BY_INDEX: Final = {op.index: op for op in TABLE.values()}
_MOST: Final = 4096
_BITS: Final = 16
_FIRST_OF_GRAPHS: Final = 1 << 62
"""Values of graphs have numbers from here on, ``1 << _BITS`` for each pass; others count from 1."""
_programs: Final[dict[Any, Program]] = {}


class Operand(NamedTuple):
    """Stands for the operand of a number."""

    number: int


class Step(NamedTuple):
    """An operation, its arguments, and the numbers of its results."""

    op: Op
    args: Template
    outs: tuple[int, ...]


class Program(NamedTuple):
    """Steps, the numbers of the values that they compute, and of those that they take."""

    steps: list[Step]
    results: list[int | None]
    takes: frozenset[int]


def template_of(bound: Sequence[Any]) -> tuple[Template, list[Tensor]]:
    """Return bound arguments with operands in the place of tensors, and the tensors."""
    tensors: list[Tensor] = []

    def place(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors.append(value)
            return Operand(len(tensors) - 1)
        return tuple([place(item) for item in value]) if isinstance(value, tuple) else value

    return tuple([place(value) for value in bound]), tensors


def filled(template: Any, values: Any) -> Any:
    """Return a template's arguments, with the values of these numbers in the place of operands."""
    if template.__class__ is Operand:
        return values[template.number]
    return tuple([filled(item, values) for item in template]) if template.__class__ is tuple else template


@cache
def composites() -> frozenset[int]:
    """Return the numbers of the operations that consist of other ones."""
    return frozenset(current_session().query("composites"))


def derivative(op: Op, template: Template, metas: Sequence[Meta], needed: int, reached: tuple[bool, ...]) -> Program:
    """Return the program of an operation's gradients with respect to ``needed``, a bit for each argument's position.

    Operands have the numbers from 0 on; then come the results, and then the gradients of those that have one.
    """
    return _asked("derivation", op, template, metas, needed, list(reached))


def expansion(op: Op, template: Template, metas: Sequence[Meta], tracked: list[bool]) -> Program:
    """Return the operations that a composite consists of, given which operands require a gradient."""
    return _asked("expansion", op, template, metas, tracked)


def backward_pass(
    roots: Sequence[Tensor], inputs: Sequence[Tensor], create_graph: bool
) -> tuple[Program, dict[int, Tensor], list[Tensor]]:
    """Return the program of a pass, the values of the graph that it takes, and those that require a gradient.

    The gradients of ``roots`` have the numbers from 0 on. One round trip. Raises NotSupportedError where elements
    decide what the pass consists of.
    """
    session = roots[0]._session
    first = _FIRST_OF_GRAPHS | session.new_id() << _BITS
    ids = [[tensor._id for tensor in tensors] for tensors in (roots, inputs)]
    steps, results, constants = session.query("pass_program", *ids, first, 1 << _BITS, create_graph)
    values, tracked = {}, []
    for place, (number, (shape, strides, offset, dtype, device), is_tracked) in enumerate(constants):
        meta = Meta.of(tuple(shape), of_code(dtype), Device(device).on_server, tuple(strides), offset)
        values[number] = made = Tensor(session, first + place, meta)
        if is_tracked:
            tracked.append(made)
    return _program(steps, results, False), values, tracked


def _asked(what: str, op: Op, template: Template, metas: Sequence[Meta], *more: Any) -> Program:
    key = (what, op.index, repr(template), tuple(metas), repr(more))
    program = _programs.get(key)
    if program is None:
        raw = [_encoded(param.kind, value) for param, value in zip(op.params, template, strict=True)]
        on_meta = any(meta.device is META for meta in metas)
        steps, results = current_session().query(what, op.index, raw, [_wire_of(meta) for meta in metas], *more)
        program = _program(steps, results, on_meta)
        if len(_programs) >= _MOST:
            _programs.clear()
        _programs[key] = program
    return program


def _wire_of(meta: Meta) -> Any:
    device = CPU if meta.device is META else meta.device
    return meta.shape, meta.strides, meta.offset, meta.dtype.code, device.name


def _encoded(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if not kind.holds_tensors:
        if value is META:
            return CPU.name
        return kind.encode(value) if kind.encode else value
    if value.__class__ is Operand:
        return value.number
    if value.__class__ is tuple:
        return [None if item is None else item.number for item in value]
    return [value.real, value.imag] if isinstance(value, complex) else [value]


def _program(steps: list[Any], results: list[int | None], on_meta: bool) -> Program:
    made_steps: list[Step] = []
    taken, made = {number for number in results if number is not None}, set()
    for index, args, outs in steps:
        op = BY_INDEX[index]
        values = tuple([decoded(param.kind, item) for param, item in zip(op.params, args, strict=True)])
        if on_meta:
            values = tuple([META if value is CPU else value for value in values])
        made_steps.append(Step(op, values, tuple(outs)))
        taken |= {operand.number for operand in _operands(values)}
        made |= set(outs)
    return Program(made_steps, results, frozenset(taken - made))


def _operands(values: Any) -> list[Operand]:
    found: list[Operand] = []
    for value in values:
        if value.__class__ is Operand:
            found.append(value)
        elif value.__class__ is tuple:
            found += _operands(value)
    return found


def decoded(kind: Any, item: Any) -> Any:
    if item is None:
        return None
    if not kind.holds_tensors:
        return kind.decode(item) if kind.decode else item
    if kind.name.startswith("tensors"):
        return tuple([None if number is None else Operand(number) for number in item])
    if isinstance(item, list):
        return complex(*item) if len(item) == 2 else item[0]
    return Operand(item)


def called(op: Op, bound: Template) -> Any:
    """Call an operation with bound arguments as programs of users do."""
    named = {param.name: value for param, value in list(zip(op.params, bound, strict=True))[op.positional :]}
    return function(op.public)(*bound[: op.positional], **named)


def run(program: Program, values: dict[int, Any], invoke: Callable[[Op, Template], Any] = called) -> list[Any]:
    """Run a program on these values and return its results; ``invoke`` runs one operation."""
    for op, args, outs in program.steps:
        result = invoke(op, filled(args, values))
        if outs:
            values.update(zip(outs, result if isinstance(result, (tuple, list)) else (result,), strict=True))
    return [None if number is None else values[number] for number in program.results]
