"""The mode that writes down which operators a function calls, as nodes of a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from telegrad._dispatch.fake_tensors import FakeTensorMode
from telegrad._ops.duals import duals
from telegrad._tensor.tensor import Tensor
from telegrad.fx._functional.graphs import FunctionalGraph
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node
from telegrad.nn.modules.module import Module
from telegrad.nn.parameter import Parameter
from telegrad.ops import aten
from telegrad.utils._python_dispatch import TorchDispatchMode
from telegrad_protocol.errors import NotSupportedError, OperatorError


class UnseenError(NotSupportedError):
    """A tensor of a function that is traced was computed by what the mode has not seen, such as a backward pass."""


class Tracing(TorchDispatchMode):
    """Notes each operator that is called in a graph, whose constants become attributes of ``root``."""

    def __init__(self, decompositions: Mapping[Any, Callable[..., Any]], sessions: Iterable[Any]) -> None:
        super().__init__()
        self.graph, self.root = Graph(), Module()
        self.removes = ""
        """What ``functionalize`` has been told to remove from the graph: "mutations", or also "views"."""
        self.decompositions = decompositions
        self._newest = {session: session.new_id() for session in sessions}
        """By session, the number that tensors which were there before are below."""
        self._nodes: dict[int, Node] = {}
        self._kept: list[Any] = []
        """Tensors that the trace has met, which keeps others from getting their ``id``."""
        self._looks = FakeTensorMode()
        """Makes the tensors without elements that nodes have as ``val``."""

    def track(self, tensor: Any, node: Node) -> None:
        """Note the node that a tensor is the value of."""
        self._nodes[id(tensor)] = node
        self._kept.append(tensor)
        node.meta.setdefault("val", self._looks.of_meta(tensor._meta, False))

    def traced(
        self, function: Callable[[], Any], leaves: Sequence[Any], names: Sequence[str], kind: str = "GraphModule"
    ) -> GraphModule:  # fmt: skip
        """Return what a function computes of these leaves of its arguments, as a module of a class of this name."""
        for name, leaf in zip(names, leaves, strict=True):
            node = self.graph.placeholder(name)
            if isinstance(leaf, Tensor):
                self.track(leaf, node)
        with self:
            result = function()
        self.graph.output(self.noted(result))
        if self.removes:
            self.graph = FunctionalGraph(self.graph, without_views="views" in self.removes).finish()
        return GraphModule(self.root, self.graph, kind)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if duals.levels:
            raise NotSupportedError(
                "make_fx: tangents are computed by the server, so that jvp, jacfwd and hessian are in no graph; "
                "jacrev is, also of itself"
            )
        if func in self.decompositions:
            with self:
                result = self.decompositions[func](*args, **kwargs)
            if result is not NotImplemented:
                return result
        if func.name() == "aten::_local_scalar_dense":
            raise OperatorError(
                "It appears that you're trying to get value out of a tracing tensor with "
                f"{func} - erroring out! It's likely that this is caused by data-dependent control flow or similar."
            )
        is_new = func.name() == "aten::lift_fresh"  # of data of the program, which are constants of the graph
        given, named = self._noted(tuple(args), is_new), self._noted(kwargs, is_new)
        result = self._compute(func, args, kwargs)
        called = aten.lift_fresh_copy.default if is_new else func  # what is modified in place must stay a constant
        name = called.overloadpacket.__name__
        self.note_results(self.graph.create_node("call_function", called, given, named, name), result)
        return result

    def _compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    def note_results(self, node: Node, result: Any) -> None:
        """Note that tensors are the value of a node, and those in a list what is taken of it."""
        if isinstance(result, Tensor):
            self.track(result, node)
        elif isinstance(result, (tuple, list)):
            parts = []
            for place, part in enumerate(result):
                if part is not None:
                    taken = self.graph.call_function(operator.getitem, (node, place))
                    self.note_results(taken, part)
                    parts.append(taken.meta.get("val"))
            node.meta["val"] = tuple(parts)

    def knows(self, tensor: Any) -> bool:
        """Whether a tensor is an argument of the trace, or was computed in it, so that it has a node."""
        return id(tensor) in self._nodes

    def submodule(self, name: str, module: GraphModule) -> Node:
        """Return the node of a module that becomes one of the graph's, under a name like this."""
        place = 0
        while hasattr(self.root, f"{name}_{place}"):
            place += 1
        self.root.add_module(f"{name}_{place}", module)
        return self.graph.get_attr(f"{name}_{place}")

    def noted(self, value: Any) -> Any:
        """Return a value with nodes in the place of tensors."""
        return self._noted(value, False)

    def _noted(self, value: Any, is_new: bool) -> Any:
        if isinstance(value, Tensor):
            return self._nodes.get(id(value)) or self._constant(value, is_new)
        if isinstance(value, dict):
            return {name: self._noted(item, is_new) for name, item in value.items()}
        if isinstance(value, (tuple, list)):
            parts = [self._noted(item, is_new) for item in value]
            return parts if isinstance(value, list) else tuple(parts)
        return value

    def _constant(self, tensor: Tensor, is_new: bool) -> Node:
        """Return the node of a tensor that was there before; UnseenError for one that nobody knows."""
        if tensor._id > self._newest.get(tensor._session, 0) and not is_new:
            raise UnseenError(
                "make_fx: an operation that no mode is shown has computed a tensor of the function; trace what comes "
                "before and behind it"
            )
        kind = "_param_constant" if isinstance(tensor, Parameter) else "_tensor_constant"
        place = 0
        while hasattr(self.root, f"{kind}{place}"):
            place += 1
        name = f"{kind}{place}"
        if isinstance(tensor, Parameter):
            self.root.register_parameter(name, tensor)
        else:
            self.root.register_buffer(name, tensor)
        node = self.graph.get_attr(name)
        self.track(tensor, node)
        return node
