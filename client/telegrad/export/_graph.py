"""A program as a graph of ``torch.fx``: placeholders, calls of PyTorch's operators, and what is returned."""

from __future__ import annotations

import linecache
import operator
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from telegrad._dispatch.aten_calls import aten_call
from telegrad._dispatch.fake_tensors import FakeTensorMode
from telegrad._dispatch.programs import Operand, called
from telegrad._library.aten import packet
from telegrad._session.current import using
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.fx._sizes.nodes import SizeNodes
from telegrad.fx.graph import Graph
from telegrad.fx.node import Node
from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.exported.arguments import Binder
from telegrad_protocol.exported.checking import operation_of
from telegrad_protocol.exported.description import (
    ProgramDescription,
    Source,
    Step,
    Symbol,
    TensorType,
    formula_of,
)
from telegrad_protocol.exported.sizes import Formula, is_symbol
from telegrad_protocol.meta import Device, Meta

from ._modes import enter_no_grad, exit_no_grad
from ._module_calls import Calls
from ._names import identifier
from ._session import RecordingSession
from ._trees import Place

_STEPS: Final = (7, 25, 101, 1009, 10007)
"""By how much the sizes differ at which integers that depend on them are told from others."""


class Called(NamedTuple):
    """The operator that a step calls at some sizes, with numbers of values in the place of tensors."""

    target: Any
    args: Any
    kwargs: Any
    devices: tuple[str, ...] = ()


class _Run:
    """Calls the steps of a program on tensors without elements, at some sizes."""

    def __init__(self, program: ProgramDescription, sizes: Mapping[str, int]) -> None:
        self._session, self._sizes = RecordingSession(), dict(sizes)
        self._values: dict[int, Tensor] = {}
        self._numbers: dict[int, int] = {}
        for source in program.sources:
            meta = Meta.of(source.at(self._sizes), BY_NAME[source.dtype], Device(source.device))
            self._keep(source.value, self._session.make(meta))
        self._binder = Binder(self._values.__getitem__, lambda value: isinstance(value, Tensor))
        with using(self._session), no_grad():
            self.calls = [self._call(step) for step in program.steps]

    def _keep(self, number: int, tensor: Tensor) -> None:
        self._values[number] = tensor
        self._numbers.setdefault(id(tensor), number)

    def _call(self, step: Step) -> Called:
        op = operation_of(step)
        bound = self._binder.bind(op, step.args, self._sizes)
        noted = Called(*[self._noted(part) for part in aten_call(op, bound)])
        result = called(op, bound)
        made = [*zip(step.outs, result if isinstance(result, (tuple, list)) else (result,))]
        for number, tensor in made:
            self._keep(number, tensor)
        return noted._replace(devices=tuple([tensor.device.name for _, tensor in made]))

    def _noted(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return Operand(self._numbers[id(value)])
        return _mapped(self._noted, value)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Return a value with what is in lists, tuples and dicts changed."""
    if isinstance(value, dict):
        return {name: change(item) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)([change(item) for item in value])
    return value


def _two_samples(program: ProgramDescription) -> list[dict[str, int]]:
    """Return two sizes for each symbol, by which formulas of steps are told from constants and from each other."""
    first = {symbol.name: max(symbol.min, min(2, _most(symbol))) for symbol in program.symbols}
    formulas = {formula for step in program.steps for formula in _formulas([*step.args.values()])}
    for step in _STEPS:
        second = {
            symbol.name: min(first[symbol.name] + step * (place + 1), _most(symbol))
            for place, symbol in enumerate(program.symbols)
        }
        values = [(formula.value(first), formula.value(second)) for formula in formulas]
        if len({*values}) == len(values) and all([one != other for one, other in values]):
            break
    return [first, second]


def _most(symbol: Symbol) -> int:
    return sys.maxsize if symbol.max is None else symbol.max


def _formulas(value: Any) -> list[Formula]:
    """Return the sizes that occur in a step's arguments; a file has them as JSON."""
    if isinstance(value, dict) and "sum" in value:
        value = formula_of(value)
    if isinstance(value, Formula):
        return [value]
    parts = value if isinstance(value, (list, tuple)) else ()
    return [formula for part in parts for formula in _formulas(part)]


class _Builder:
    """Makes the graph of one program."""

    def __init__(self, program: ProgramDescription, names: Mapping[int, str]) -> None:
        self._program, self._names = program, names
        self.graph = Graph()
        self._looks = FakeTensorMode()
        self._within: Calls = ()
        """The calls of modules that nodes are in."""
        self._turned_off: Node | None = None
        """The node that has turned gradients off, where they are off."""
        self._nodes: dict[int, Node] = {}
        self._sizes = SizeNodes(lambda target, args: self._node("call_function", target, args, {}), self._symbol)
        self._samples = _two_samples(program)

    def build(
        self, arguments: Sequence[tuple[str, Any]], results: Sequence[Any], calls: Sequence[Calls]
    ) -> Graph:  # fmt: skip
        """Return the graph, which is given leaves with these names after the program's tensors, and returns these."""
        self._add_placeholders(arguments)
        runs = [_Run(self._program, sizes).calls for sizes in self._samples]
        for step, within, *both in zip(self._program.steps, calls, *runs, strict=True):
            self._within = within
            self._switch_gradients(step.without_gradient)
            self._add(step, *both)
        self._within = ()
        self._switch_gradients(False)
        outputs = self._program.outputs
        returned = [
            self._nodes[outputs[leaf].value] if isinstance(leaf, Place)
            else self._sizes.node(leaf) if isinstance(leaf, Formula) else leaf
            for leaf in results
        ]  # fmt: skip
        self.graph.output(tuple(returned))
        return self.graph

    def _add_placeholders(self, arguments: Sequence[tuple[str, Any]]) -> None:
        for held in self._program.tensors:
            self._add_source(held)
        for name, leaf in arguments:
            if isinstance(leaf, Place):
                self._add_source(self._program.inputs[leaf])
            else:
                self._node("placeholder", identifier(name), (), {}).meta["val"] = leaf
        for held in self._program.tensors:
            if held.kind == "constant" and held.is_written:  # each call begins with the constant as it was
                target: Any = packet("lift_fresh_copy")
                given = (self._nodes[held.value],)
                self._nodes[held.value] = copied = self._node(
                    "call_function", target.default, given, {}, wanted="lift_fresh_copy"
                )
                self._note_look(copied, held, held.device)

    def _add_source(self, source: Source) -> None:
        name = self._names[source.value]
        self._nodes[source.value] = made = self._node("placeholder", name, (), {}, name)
        self._note_look(made, source, source.device)

    def _note_look(self, node: Node, look: TensorType, device: str) -> None:
        """Note what a node's result is like: at the smaller of two sizes, and the sizes as formulas."""
        meta = Meta.of(look.at(self._samples[0]), BY_NAME[look.dtype], Device(device))
        node.meta["val"] = self._looks.of_meta(meta, False)
        if any([isinstance(size, Formula) for size in look.shape]):
            node.meta["sizes"] = look.shape

    def _switch_gradients(self, are_off: bool) -> None:
        if are_off and self._turned_off is None:
            self._turned_off = self._node("call_function", enter_no_grad, (), {})
        elif not are_off and self._turned_off is not None:
            self._node("call_function", exit_no_grad, (self._turned_off,), {})
            self._turned_off = None

    def _node(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None, wanted: str | None = None
    ) -> Node:  # fmt: skip
        """Add a node: under this name, or under one like that which is wanted."""
        made = self.graph.create_node(kind, target, args, kwargs, name or wanted)
        made.name = name or made.name  # also where it is one of Python's, such as ``input``
        if self._within:
            made.meta["calls"] = self._within
            made.meta["nn_module_stack"] = {key: (path, kind) for key, path, kind in self._within}
        return made

    def _add(self, step: Step, first: Called, second: Called) -> None:
        known = _formulas([*step.args.values()])
        args = self._joined(known, first.args, second.args)
        kwargs = self._joined(known, first.kwargs, second.kwargs)
        name = self._names[step.outs[0]] if len(step.outs) == 1 else None
        made = self._node("call_function", first.target, args, kwargs, name, first.target.overloadpacket.__name__)
        made.meta["stack_trace"] = _stack_trace(self._program.lines[step.line])
        if len(step.outs) == 1:
            self._nodes[step.outs[0]] = made
        else:
            for place, number in enumerate(step.outs):
                name = self._names[number]
                self._nodes[number] = self._node("call_function", operator.getitem, (made, place), {}, name)
        for number, look, device in zip(step.outs, step.results, first.devices, strict=True):
            self._note_look(self._nodes[number], look, device)
        if len(step.outs) != 1:
            made.meta["val"] = tuple([self._nodes[number].meta["val"] for number in step.outs])

    def _joined(self, known: list[Formula], first: Any, second: Any) -> Any:
        """Return an argument with nodes for values, and for the integers that differ between two sizes."""
        if isinstance(first, Operand):
            return self._nodes[first.number]
        if isinstance(first, dict):
            return {name: self._joined(known, value, second[name]) for name, value in first.items()}
        if type(first) in (list, tuple):
            return type(first)([self._joined(known, *pair) for pair in zip(first, second, strict=True)])
        if type(first) is int and first != second:
            wanted = [one for one in known if tuple([one.value(sizes) for sizes in self._samples]) == (first, second)]
            return self._sizes.node(wanted[0])
        return first

    def _symbol(self, name: str) -> Any:
        source, dim = next(
            (item, dim) for item in self._program.inputs for dim, size in enumerate(item.shape)
            if isinstance(size, Formula) and is_symbol(size) and name in size.names()
        )  # fmt: skip
        target: Any = packet("sym_size")
        return self._node("call_function", target.int, (self._nodes[source.value], dim), {})


def sizes_of_values(program: ProgramDescription) -> dict[str, int]:
    """Return the sizes that the values of a program's nodes have."""
    return _two_samples(program)[0]


def graph_of(
    program: ProgramDescription, names: Mapping[int, str], arguments: Sequence[tuple[str, Any]], results: Sequence[Any],
    calls: Sequence[Calls] | None = None,
) -> Graph:  # fmt: skip
    """Return the graph of a program, whose values have these names.

    ``arguments`` are the leaves of what it takes, with their names, and ``results`` those of what it returns; ``calls``
    are those of modules that steps are in.
    """
    return _Builder(program, names).build(arguments, results, calls or [()] * len(program.steps))


def _stack_trace(line: str) -> str:
    """Return a line of a program, which says file, number and function, in the form of tracebacks."""
    place, _, function = line.rpartition(" in ")
    file, _, number = place.rpartition(":")
    is_readable = number.isdigit() and os.path.isfile(file)  # a program from a file may name anything
    code = linecache.getline(file, int(number)).strip() if is_readable else ""
    return f'  File "{file}", line {number}, in {function}\n    {code}\n' if file else line
