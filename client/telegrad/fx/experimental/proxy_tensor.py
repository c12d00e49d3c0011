"""``make_fx``: the operators that a function calls on given arguments, as a graph of ``torch.fx``.

Backward passes are the server's: their results are no values of the graph, so that functions with them are refused.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from telegrad._dispatch.fake_tensors import FakeTensorMode
from telegrad._session.current import current_session, has_session
from telegrad._session.shapes.shape_session import meta_session
from telegrad._tensor.tensor import Tensor
from telegrad.fx._code.pytree_codegen import _PyTreeCodeGen, _PyTreeInfo
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node
from telegrad.nn.modules.module import Module
from telegrad.nn.parameter import Parameter
from telegrad.ops import aten
from telegrad.utils._python_dispatch import TorchDispatchMode
from telegrad.utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from telegrad_protocol.errors import ArgumentError, NotSupportedError, OperatorError

_MODES: Final = ("real", "fake", "symbolic")


def get_proxy_mode() -> None:
    """Return None: no such tracing is under way."""
    return None


class _Tracing(TorchDispatchMode):
    """Notes each operator that is called in a graph, whose constants become attributes of ``root``."""

    def __init__(self, decompositions: Mapping[Any, Callable[..., Any]], sessions: Iterable[Any]) -> None:
        super().__init__()
        self.graph, self.root = Graph(), Module()
        self._decompositions = decompositions
        self._newest = {session: session.new_id() for session in sessions}
        """By session, the number that tensors which were there before are below."""
        self._nodes: dict[int, Node] = {}
        self._kept: list[Any] = []
        """Tensors that the trace has met, which keeps others from getting their ``id``."""

    def track(self, tensor: Any, node: Node) -> None:
        """Note the node that a tensor is the value of."""
        self._nodes[id(tensor)] = node
        self._kept.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self._decompositions:
            with self:
                result = self._decompositions[func](*args, **kwargs)
            if result is not NotImplemented:
                return result
        if func.name() == "aten::_local_scalar_dense":
            raise OperatorError(
                "It appears that you're trying to get value out of a tracing tensor with "
                f"{func} - erroring out! It's likely that this is caused by data-dependent control flow or similar."
            )
        is_new = func.name() == "aten::lift_fresh"  # of data of the program, which are constants of the graph
        given, named = self._noted(tuple(args), is_new), self._noted(kwargs, is_new)
        result = func(*args, **kwargs)
        called = aten.lift_fresh_copy.default if is_new else func  # what is modified in place must stay a constant
        name = called.overloadpacket.__name__
        self._note_results(self.graph.create_node("call_function", called, given, named, name), result)
        return result

    def _note_results(self, node: Node, result: Any) -> None:
        if isinstance(result, Tensor):
            self.track(result, node)
        elif isinstance(result, (tuple, list)):
            for place, part in enumerate(result):
                if part is not None:
                    self._note_results(self.graph.call_function(operator.getitem, (node, place)), part)

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
        """Return the node of a tensor that was there before; NotSupportedError for one that nobody knows."""
        if tensor._id > self._newest.get(tensor._session, 0) and not is_new:
            raise NotSupportedError(
                "make_fx: a backward pass, or an operation that no mode is shown, has computed a tensor of the "
                "function; trace what comes before and behind it"
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


def make_fx(
    f: Callable[..., Any], decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real", _allow_non_fake_inputs: bool = False, **options: Any,
) -> Callable[..., GraphModule]:  # fmt: skip
    """Return a function that runs ``f`` on its arguments and returns the operators that were called, as a module.

    ``decomposition_table`` gives functions for operators that are not to be in the graph. ``tracing_mode="fake"`` runs
    on tensors without elements. Sizes become those of the arguments, so that ``"symbolic"`` is refused, as are what
    reads elements, and gradients that the function computes. The other options are PyTorch's, and change nothing.
    """
    if tracing_mode not in _MODES:
        raise ArgumentError(f"Unexpected tracing type: {tracing_mode}")
    if tracing_mode == "symbolic":
        raise NotSupportedError(
            "make_fx: no size is symbolic here; torch.export.export(dynamic_shapes=...) makes programs for all sizes"
        )

    @functools.wraps(f)
    def trace(*args: Any) -> GraphModule:
        leaves, structure = tree_flatten(args)
        if tracing_mode == "fake":
            fake = FakeTensorMode()
            leaves = [fake.from_tensor(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            with fake:
                return _traced(f, leaves, structure, decomposition_table or {})
        return _traced(f, leaves, structure, decomposition_table or {})

    return trace


def _traced(
    f: Callable[..., Any], leaves: list[Any], structure: TreeSpec, decompositions: Mapping[Any, Callable[..., Any]]
) -> GraphModule:
    leaves = [leaf.view_as(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    sessions = {leaf._session for leaf in leaves if isinstance(leaf, Tensor)} | {meta_session}
    tracing = _Tracing(decompositions, sessions | {current_session()} if has_session() else sessions)
    args = tree_unflatten(leaves, structure)
    for name, leaf in zip(_names(f, args), leaves, strict=True):
        node = tracing.graph.placeholder(name)
        if isinstance(leaf, Tensor):
            tracing.track(leaf, node)
    with tracing:
        result = f(*args)
    tracing.graph.output(tracing.noted(result))
    if any(isinstance(arg, (tuple, list, dict)) for arg in args):
        names = [f"arg{place}" for place in range(len(args))]
        tracing.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, structure, None)))
    return GraphModule(tracing.root, tracing.graph)


def _names(f: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """Return a name for each leaf of the arguments, of its parameter and of its place in it."""
    try:
        parameters = [] if isinstance(f, Module) else [*inspect.signature(f).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    is_named = len(parameters) >= len(args) and not any(one.kind is one.VAR_POSITIONAL for one in parameters)
    given = [parameters[place].name if is_named else f"arg{place}" for place in range(len(args))]
    return [f"{name}_{i}" for name, arg in zip(given, args) for i in range(1, len(tree_flatten(arg)[0]) + 1)]
