"""A program as a graph of ``torch.fx`` to be read: placeholders, calls of PyTorch's operators, and what is returned."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from telegrad._dispatch.aten_calls import aten_call
from telegrad._dispatch.programs import Operand, called
from telegrad._library.aten import packet
from telegrad._session.current import using
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.fx.graph import Graph
from telegrad.fx.node import Node
from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.exported.arguments import Binder
from telegrad_protocol.exported.checking import operation_of
from telegrad_protocol.exported.description import ProgramDescription, Step, Symbol, formula_of
from telegrad_protocol.exported.sizes import Floor, Formula, constant_of, is_symbol
from telegrad_protocol.meta import Device, Meta

from ._session import RecordingSession
from ._trees import Place

_STEP = 7
"""By how much the sizes differ at which integers that depend on them are told from others."""


class Called(NamedTuple):
    """The operator that a step calls at some sizes, with numbers of values in the place of tensors."""

    target: Any
    args: Any
    kwargs: Any


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
        for number, tensor in zip(step.outs, result if isinstance(result, (tuple, list)) else (result,)):
            self._keep(number, tensor)
        return noted

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


def _two_sizes(symbol: Symbol, place: int) -> tuple[int, int]:
    """Return two sizes of a symbol, which differ if it has two, and otherwise than those at another place."""
    most = sys.maxsize if symbol.max is None else symbol.max
    small = max(symbol.min, min(2, most))
    return small, min(small + _STEP * (place + 1), most)


class _Builder:
    """Makes the graph of one program."""

    def __init__(self, program: ProgramDescription, names: Mapping[int, str]) -> None:
        self._program, self._names = program, names
        self.graph = Graph()
        self._nodes: dict[int, Node] = {}
        self._sizes: dict[Formula, Any] = {}
        pairs = {symbol.name: _two_sizes(symbol, place) for place, symbol in enumerate(program.symbols)}
        self._samples = [{name: pair[which] for name, pair in pairs.items()} for which in (0, 1)]

    def build(self, results: Sequence[Any]) -> Graph:
        """Return the graph, which returns these leaves."""
        for source in (*self._program.tensors, *self._program.inputs):
            name = self._names[source.value]
            self._nodes[source.value] = self._node("placeholder", name, (), {}, name)
        runs = [_Run(self._program, sizes).calls for sizes in self._samples]
        for step, *calls in zip(self._program.steps, *runs, strict=True):
            self._add(step, *calls)
        outputs = self._program.outputs
        returned = [
            self._nodes[outputs[leaf].value] if isinstance(leaf, Place)
            else self._size(leaf) if isinstance(leaf, Formula) else leaf
            for leaf in results
        ]  # fmt: skip
        self.graph.output(tuple(returned))
        return self.graph

    def _node(self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None) -> Node:
        made = self.graph.create_node(kind, target, args, kwargs, name)
        made.name = name or made.name  # also where it is one of Python's, such as ``input``
        return made

    def _add(self, step: Step, first: Called, second: Called) -> None:
        known = self._formulas([*step.args.values()])
        args, kwargs = (self._joined(known, *pair) for pair in zip(first[1:], second[1:], strict=True))
        name = self._names[step.outs[0]] if len(step.outs) == 1 else None
        made = self._node("call_function", first.target, args, kwargs, name)
        made.meta["stack_trace"] = self._program.lines[step.line]
        if len(step.outs) == 1:
            self._nodes[step.outs[0]] = made
            return
        for place, number in enumerate(step.outs):
            name = self._names[number]
            self._nodes[number] = self._node("call_function", operator.getitem, (made, place), {}, name)

    def _formulas(self, value: Any) -> list[Formula]:
        """Return the sizes that occur in a step's arguments; a file has them as JSON."""
        if isinstance(value, dict) and "sum" in value:
            value = formula_of(value)
        if isinstance(value, Formula):
            return [value]
        parts = value if isinstance(value, (list, tuple)) else ()
        return [formula for part in parts for formula in self._formulas(part)]

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
            return self._size(wanted[0])
        return first

    def _size(self, size: Formula) -> Any:
        """Return the node of a size."""
        if size not in self._sizes:
            terms = [self._term(*term) for term in size.sum]
            total = terms[0] if terms else 0
            for term in terms[1:]:
                total = self._node("call_function", operator.add, (total, term), {})
            over = size.over
            self._sizes[size] = (
                total if over == 1 else self._node("call_function", operator.floordiv, (total, over), {})
            )
        return self._sizes[size]

    def _term(self, number: Any, *factors: Any) -> Any:
        product: Any = constant_of(number)
        for factor in factors:
            value = self._factor(factor)
            is_one = type(product) is int and product == 1
            product = value if is_one else self._node("call_function", operator.mul, (product, value), {})
        return product

    def _factor(self, factor: Any) -> Any:
        if not isinstance(factor, Floor):
            return self._symbol(str(factor))
        value = self._symbol(factor.name)
        if factor.plus:
            value = self._node("call_function", operator.add, (value, factor.plus), {})
        return self._node("call_function", operator.floordiv, (value, factor.over), {})

    def _symbol(self, name: str) -> Any:
        formula = Formula(((1, name),))
        if formula not in self._sizes:
            source, dim = next(
                (item, dim) for item in self._program.inputs for dim, size in enumerate(item.shape)
                if isinstance(size, Formula) and is_symbol(size) and name in size.names()
            )  # fmt: skip
            target: Any = packet("sym_size")
            self._sizes[formula] = self._node("call_function", target.int, (self._nodes[source.value], dim), {})
        return self._sizes[formula]


def graph_of(program: ProgramDescription, names: Mapping[int, str], results: Sequence[Any]) -> Graph:
    """Return the graph of a program, whose values have these names; ``results`` are the leaves of what it returns."""
    return _Builder(program, names).build(results)
