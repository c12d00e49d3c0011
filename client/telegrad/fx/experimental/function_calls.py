"""Calls of operators that take functions, in a trace: each function is a graph of its own, given all that it uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._dispatch.asking import without_innermost
from telegrad._dispatch.fake_tensors import DynamicOutputShapeException
from telegrad._library.rules.fakes import giving_sizes
from telegrad._tensor.listed import tensors_in
from telegrad._tensor.tensor import Tensor
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node
from telegrad.ops import aten
from telegrad_protocol.dtypes import bool_

from .symbolic_shapes import GuardOnDataDependentSymNode
from .tracing_mode import Tracing
from .unknowns import HALF, LENGTH, RESULTS, Known, Unknowns, note, varying_dim

Captured = dict[int, tuple[Tensor, Node]]
"""Tensors that functions name beside their arguments, with their nodes in the graph around the call."""


class FunctionTracing(Tracing):
    """Notes the operators that are called: those that take functions too, and with ``unknowns`` what reads elements."""

    unknowns: Unknowns | None = None

    def __init__(self, decompositions: Any, sessions: Any) -> None:
        super().__init__(decompositions, sessions)
        self._lengths: dict[int, Known] = {}
        """Of results whose length elements decide, which number that is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.unknowns is not None and func is aten._local_scalar_dense.default:
            return self._read(func, args[0], self.unknowns)
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _read(self, func: Any, tensor: Tensor, unknowns: Unknowns) -> Any:
        dtype = tensor.dtype
        if dtype is bool_ or dtype.is_complex:
            raise GuardOnDataDependentSymNode(
                "make_fx: the function decides by an element of a tensor; use torch.cond, torch.where or torch._check"
            )
        node = self.graph.call_function(func, (self.noted(tensor),))
        kind = "float" if dtype.is_floating_point else "integer"
        place, value = unknowns.meet(kind)
        note(node, Known(place, kind))
        return value + HALF if kind == "float" else value

    def _compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        unknowns = self.unknowns
        if unknowns is None:
            return super()._compute(func, args, kwargs)
        met: list[tuple[int, int]] = []

        def meet() -> int:
            met.append(unknowns.meet(LENGTH))
            return met[-1][1]

        try:
            with giving_sizes(meet):
                result = super()._compute(func, args, kwargs)
        except DynamicOutputShapeException:
            if func.name() not in RESULTS:
                raise
            result = RESULTS[func.name()](args[0], meet(), *args[1:], **kwargs)
            first = result[0] if isinstance(result, tuple) else result
            self._lengths[id(first)] = Known(met[0][0], LENGTH, varying_dim(func, args, kwargs))
            return result
        for place, length in met:
            self._note_length(result, place, length)
        return result

    def _note_length(self, result: Any, place: int, length: int) -> None:
        """Note which dimension of an operator's results has a length that its fake kernel has asked for."""
        dims = [
            (tensor, dim) for tensor in tensors_in((result,)) for dim, size in enumerate(tensor.shape) if size == length
        ]
        for tensor, dim in dims:
            if id(tensor) not in self._lengths:
                self._lengths[id(tensor)] = Known(place, LENGTH, dim)
                return
        raise GuardOnDataDependentSymNode(
            "make_fx: no result of an operator has the size that its fake kernel asked for"
        )

    def track(self, tensor: Any, node: Node) -> None:
        super().track(tensor, node)
        known = self._lengths.pop(id(tensor), None)
        if known is not None:
            note(node, known)

    def call_of_functions(self, operator: Any, args: Sequence[Any]) -> list[Any]:
        """Note the call of an operator that takes functions, and return its results, which have nodes."""
        first, behind = operator.first, operator.first + len(operator.graphs)
        captured: Captured = {}
        with without_innermost():
            bodies = [BodyTracing(self, captured) for _ in operator.graphs]
            calls = zip(bodies, args[first:behind], operator.examples(*args[behind:]), strict=True)
            outputs = [body.body(function, examples) for body, function, examples in calls]
            results = [
                result.view_as(result) if self.knows(result) else result for result in operator.results(args, outputs)
            ]
        others, tail = self.noted(tuple(args[:first])), [self.noted(part) for part in args[behind:]]
        tail[-1] = type(tail[-1])([*tail[-1], *[node for _, node in captured.values()]])
        graphs = [self.submodule(name, body.module()) for name, body in zip(operator.graphs, bodies, strict=True)]
        node = self.graph.call_function(operator, (*others, *graphs, *tail))
        self.note_results(node, results)
        return results


class BodyTracing(FunctionTracing):
    """The trace of a function in a call: what it uses of the trace around it becomes an argument."""

    def __init__(self, outer: Tracing, captured: Captured) -> None:
        super().__init__(outer.decompositions, [])
        self._outer, self._captured = outer, captured
        self._places: dict[int, Node] = {}

    def _constant(self, tensor: Tensor, is_new: bool) -> Node:
        if is_new:
            return super()._constant(tensor, is_new)
        if id(tensor) not in self._captured:
            self._captured[id(tensor)] = tensor, self._outer.noted(tensor)
        return self._placeholder(tensor)

    def _placeholder(self, tensor: Tensor) -> Node:
        if id(tensor) not in self._places:
            first = next(iter(self.graph.nodes))
            with self.graph.inserting_before(first):
                self._places[id(tensor)] = made = self.graph.placeholder("arg")
            self.track(tensor, made)
        return self._places[id(tensor)]

    def body(self, function: Callable[..., Any], examples: Sequence[Any]) -> list[Any]:
        """Trace the function on these tensors, and return what it has returned."""
        examples = [example.view_as(example) for example in examples]  # which may be one tensor several times
        for example in examples:
            self.track(example, self.graph.placeholder("arg"))
        with self:
            made = function(*examples)
        self.graph.output(self.noted(made))
        return list(made) if isinstance(made, (tuple, list)) else [made]

    def module(self) -> GraphModule:
        """Return the function as a module, which takes all that any function of the call has captured."""
        given = [node for node in self.graph.nodes if node.op == "placeholder" and node not in self._places.values()]
        inner = [node for node in self.graph.nodes if node.op != "placeholder"]
        for node in [*given, *[self._placeholder(tensor) for tensor, _ in self._captured.values()]]:
            inner[0].prepend(node)
        for place, node in enumerate([node for node in self.graph.nodes if node.op == "placeholder"]):
            node.target = node.name = f"arg{place}_1"
        return GraphModule(self.root, self.graph, "<lambda>")
