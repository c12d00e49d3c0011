"""Writes what a function computes as a graph of ``torch.fx``, while the function runs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import ref

from telegrad._dispatch.fake_tensors import FakeTensorMode
from telegrad._session.grad_mode import set_grad_enabled
from telegrad._session.thread_modes import AutocastSettings
from telegrad._tensor.autograd_graph import LeafNode
from telegrad._tensor.tensor import Tensor
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node, base_types
from telegrad.nn.parameter import Buffer, Parameter

from .autocast_nodes import AutocastNodes

_CLASSES: Final = frozenset((Tensor, Parameter, Buffer))
_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "matmul", "pow", "gt", "lt", "ge", "le")},
    "div": operator.truediv, "__eq__": operator.eq, "__ne__": operator.ne, "__getitem__": operator.getitem,
    "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor, "__mod__": operator.mod,
    "__floordiv__": operator.floordiv,
}  # fmt: skip
"""What methods of tensors with two arguments are in a graph: Python's operators call them."""
_REFLECTED: Final[dict[str, Callable[..., Any]]] = {
    "__rsub__": operator.sub, "__rdiv__": operator.truediv, "__rpow__": operator.pow, "__rmatmul__": operator.matmul,
    "__rfloordiv__": operator.floordiv, "__rmod__": operator.mod,
}  # fmt: skip
_AS_THEY_ARE: Final = (*base_types, type(None), type(...), slice)


_LIKE: Final = "_like"
"""What a node's metadata has of its result until somebody is given the graph."""


def module_of(graph: Graph) -> GraphModule:
    """Return a module of a graph, whose nodes have fake tensors like their results as ``example_value``."""
    fake = FakeTensorMode()
    for node in graph.nodes:
        if _LIKE in node.meta:
            node.meta["example_value"] = fake.of_meta(*node.meta.pop(_LIKE))
    return GraphModule({}, graph)


class UnwritableError(Exception):
    """A graph cannot say what the function has done; the message says why."""


class GraphWriter:
    """A graph that grows. Tensors with numbers up to ``first`` were there before, and are its inputs."""

    def __init__(
        self, session: Any, first: int, names: Mapping[int, str], grad: bool, autocast: AutocastSettings
    ) -> None:  # fmt: skip
        self.graph = Graph()
        self._autocast = AutocastNodes(self.graph, autocast)
        self.inputs: list[Tensor] = []
        self.calls = 0
        self._session, self._first, self._names = session, first, names
        self._grad = self._grad_at_first = grad
        self._nodes: dict[int, Node] = {}
        self._last: Node | None = None
        """The last placeholder."""
        self._made: dict[int, ref[Tensor]] = {}
        """Tensors that the graph computes and the program has not dropped, by their ``id``."""
        self._before: list[tuple[Any, ...]] = []

    def is_known(self, value: Any) -> bool:
        """Whether a value was there before, or is one of the graph's."""
        return value._id <= self._first or id(value) in self._nodes

    def write(
        self, func: Any, args: Any, kwargs: Any, result: Any, grad: bool, autocast: AutocastSettings
    ) -> None:  # fmt: skip
        """Add a call that ran under these modes, and its result; UnwritableError where that cannot be said."""
        given = (self._noted(tuple(args)), self._noted(dict(kwargs)))
        if not self._autocast.switch(autocast):
            raise UnwritableError("a region of autocast in which the function was called has ended in it")
        if grad is not self._grad:
            self.graph.call_function(set_grad_enabled, (grad,))
            self._grad = grad
        self.calls += 1
        self._note_result(self._call(func, *given), result)

    def finish(self) -> list[Tensor]:
        """End the graph with its results, those tensors that the program still has, and return these."""
        results = [tensor for tensor in [made() for made in self._made.values()] if tensor is not None]
        for tensor, before in zip(self.inputs, self._before, strict=True):
            if not _is_unchanged(tensor, before):
                raise UnwritableError("an input gets another history or shape by what is written into it")
        self._autocast.finish()
        if self._grad is not self._grad_at_first:
            self.graph.call_function(set_grad_enabled, (self._grad_at_first,))
        self.graph.output(tuple([self._nodes[id(tensor)] for tensor in results]))
        return results

    def _call(self, func: Any, args: Any, kwargs: Any) -> Node:
        name = func.__name__
        if name == "__get__":
            return self.graph.call_function(getattr, (args[0], func.__self__.fget.__name__))
        if not getattr(func, "__qualname__", "").startswith("Tensor."):
            return self.graph.call_function(func, args, kwargs)
        if name == "__setitem__":
            return self.graph.call_function(operator.setitem, args)
        if len(args) == 2 and not kwargs and name in _OPERATORS:
            return self.graph.call_function(_OPERATORS[name], args)
        if name in _REFLECTED:
            return self.graph.call_function(_REFLECTED[name], (args[1], args[0]))
        return self.graph.call_method(name, args, kwargs)

    def _note_result(self, node: Node, result: Any) -> None:
        if isinstance(result, Tensor):
            if not self.is_known(result):
                self._require_plain(result)
                node.meta[_LIKE] = result._meta, result.requires_grad
                self._nodes[id(result)] = node
                self._made[id(result)] = ref(result, self._forget(id(result)))
        elif isinstance(result, (tuple, list)):
            for place, part in enumerate(result):
                if part is not None:
                    self._note_result(self.graph.call_function(operator.getitem, (node, place)), part)
        elif result is not None:
            raise UnwritableError(f"a call gives a {type(result).__name__} beside tensors")

    def _forget(self, key: int) -> Callable[[Any], None]:
        def forget(dead: Any) -> None:
            del self._made[key], self._nodes[key]

        return forget

    def _noted(self, value: Any) -> Any:
        """Return an argument with nodes in the place of tensors."""
        if isinstance(value, Tensor):
            return self._nodes.get(id(value)) or self._input(value)
        if isinstance(value, dict):
            return {name: self._noted(one) for name, one in value.items()}
        if type(value) is slice:
            return slice(self._noted(value.start), self._noted(value.stop), self._noted(value.step))
        if isinstance(value, (list, tuple)):
            parts = [self._noted(one) for one in value]
            return parts if isinstance(value, list) else tuple(parts)
        if not isinstance(value, _AS_THEY_ARE):
            raise UnwritableError(f"a {type(value).__name__} is an argument")
        return value

    def _input(self, tensor: Tensor) -> Node:
        self._require_plain(tensor)
        if tensor._id > self._first:
            raise UnwritableError("a tensor was computed by what is no function of torch, such as autograd.Function")
        name = self._names.get(id(tensor)) or f"L_tensor_{len(self.inputs)}_"
        graph = self.graph
        with graph.inserting_before() if self._last is None else graph.inserting_after(self._last):
            self._last = node = graph.placeholder(name)
        node.meta[_LIKE] = tensor._meta, tensor.requires_grad
        self.inputs.append(tensor)
        self._before.append(_state(tensor))
        self._nodes[id(tensor)] = node
        return node

    def _require_plain(self, tensor: Tensor) -> None:
        if type(tensor) not in _CLASSES or tensor._session is not self._session:
            raise UnwritableError(f"a {type(tensor).__name__} of its own kind or session")


def _state(tensor: Tensor) -> tuple[Any, ...]:
    """Return what an operation in place may change of a tensor beside its elements."""
    version = 0 if tensor._aliases is None else tensor._aliases.version
    return tensor._id, tensor._meta, tensor._requires_grad, version, tensor._node


def _is_unchanged(tensor: Tensor, before: tuple[Any, ...]) -> bool:
    *now, node = _state(tensor)
    *then, node_then = before
    is_new_leaf = node_then is None and type(node) is LeafNode  # a leaf's node is made once somebody asks
    return now == then and (node is node_then or is_new_leaf)
