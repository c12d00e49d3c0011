"""``torch._dynamo.export``: what a function computes as a module of ``torch.fx``, with the function's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from telegrad._session.current import current_session
from telegrad._tensor.tensor import Tensor
from telegrad.compiler.originals import original_of
from telegrad.compiler.own_backends.exported_region import ExportedRegion
from telegrad.compiler.own_backends.naming import names_of
from telegrad.fx._code.pytree_codegen import _PyTreeCodeGen, _PyTreeInfo
from telegrad.fx.experimental.proxy_tensor import make_fx
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node
from telegrad.nn.modules.module import Module
from telegrad.utils._pytree import TreeSpec, tree_flatten, tree_unflatten


class ExportResult(NamedTuple):
    """The module, and what has to hold for its arguments; both are also its two items."""

    graph_module: GraphModule
    guards: set[Any]


def export(
    f: Callable[..., Any], *extra_args: Any, aten_graph: bool = False, pre_dispatch: bool = False,
    decomposition_table: Any = None, tracing_mode: str = "symbolic", dynamic_shapes: Any = None,
    assume_static_by_default: bool = False, same_signature: bool = True, **options: Any,
) -> Any:  # fmt: skip
    """Return a function that calls ``f`` once, and returns an ``ExportResult`` with a module that does the same.

    With ``aten_graph`` the module's graph is of PyTorch's operators. Sizes and numbers become those of the arguments;
    ``dynamic_shapes`` and further options change nothing: ``torch.export.export`` makes programs for all sizes. Raises
    Unsupported at a graph break.
    """

    def run(*args: Any, **kwargs: Any) -> ExportResult:
        function = original_of(f) or getattr(f, "_orig_mod", f)
        call = _Call(function, args, kwargs)
        module = _of_operators(call, decomposition_table) if aten_graph else _of_calls(call)
        return ExportResult(module, set())

    return run(*extra_args, **options.pop("kwargs", {})) if extra_args else run


class _Call:
    """A function with its arguments, the leaves of these, and the names that the module's ``forward`` has for them."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.leaves, self.structure = tree_flatten((*args, *kwargs.values()))
        self.names = [*_positional_names(function, len(args)), *kwargs]

    def on(self, leaves: list[Any]) -> Any:
        """Call the function on other leaves."""
        given, count = tree_unflatten(leaves, self.structure), len(self.args)
        return self.function(*given[:count], **dict(zip(self.kwargs, given[count:], strict=True)))


def _positional_names(function: Any, count: int) -> list[str]:
    try:
        parameters = [*inspect.signature(getattr(function, "forward", function)).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    named = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return [*named[:count], *[f"arg{place}" for place in range(len(named), count)]]


def _of_operators(call: _Call, decompositions: Any) -> GraphModule:
    places = [place for place, leaf in enumerate(call.leaves) if isinstance(leaf, Tensor)]
    returned: list[TreeSpec] = []

    def flat(*tensors: Any) -> list[Any]:
        filled = list(call.leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        results, spec = tree_flatten(call.on(filled))
        returned.append(spec)
        return results

    module = make_fx(flat, decompositions, "real")(*[call.leaves[place] for place in places])
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    for number, leaf in enumerate(call.leaves):
        if not isinstance(leaf, Tensor):
            at = inputs[number - 1] if number else None
            with module.graph.inserting_before() if at is None else module.graph.inserting_after(at):
                inputs.insert(number, module.graph.placeholder(f"arg{number}"))
    for number, node in enumerate(inputs):
        node.target = node.name = f"arg{number}"
    return _with_structure(module, call, returned[-1])


def _of_calls(call: _Call) -> GraphModule:
    session = current_session()
    region = ExportedRegion(session, call.function, names_of(call.function, call.args, call.kwargs))
    with region:
        result = call.function(*call.args, **call.kwargs)
    results, returned = tree_flatten(result)
    return _with_structure(_rebuilt(region, call.function, call.leaves, results), call, returned)


def _rebuilt(region: ExportedRegion, function: Any, leaves: list[Any], results: list[Any]) -> GraphModule:
    """Return a module whose graph takes the leaves of the arguments, in order, and returns those of the results."""
    graph, attributes = Graph(), _Attributes(function)
    nodes_of: dict[int, Any] = {}
    for number, leaf in enumerate(leaves):
        node = graph.placeholder(f"arg{number}")
        if isinstance(leaf, Tensor):
            nodes_of.setdefault(id(leaf), node)
    copies: dict[Node, Node] = {}
    taken = iter(region.inputs)
    for node in region.graph.nodes:
        if node.op == "placeholder":
            tensor = next(taken)
            copies[node] = nodes_of.get(id(tensor)) or graph.get_attr(attributes.name_of(tensor))
        elif node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    computed = next((node.args[0] for node in region.graph.nodes if node.op == "output"), ())
    nodes_of |= {id(tensor): copies[node] for tensor, node in zip(region.results, computed, strict=True)}
    graph.output([_returned(one, nodes_of, graph, attributes) for one in results])
    return GraphModule(attributes.root, graph)


def _returned(value: Any, nodes_of: dict[int, Any], graph: Graph, attributes: _Attributes) -> Any:
    if not isinstance(value, Tensor):
        return value
    return nodes_of.get(id(value)) or graph.get_attr(attributes.name_of(value))


class _Attributes:
    """What a graph takes that is no argument: parameters and buffers by their paths, other tensors by number."""

    def __init__(self, function: Any) -> None:
        owner = getattr(function, "__self__", function)
        self._paths: dict[int, str] = {}
        self.root: dict[str, Any] = {}
        if isinstance(owner, Module):
            named = {**dict(owner.named_parameters()), **dict(owner.named_buffers())}
            self._paths = {id(tensor): path for path, tensor in named.items()}

    def name_of(self, tensor: Tensor) -> str:
        """Return the name by which the graph has a tensor."""
        name = self._paths.setdefault(id(tensor), f"_tensor_constant{len(self.root)}")
        self.root[name] = tensor
        return name


def _with_structure(module: GraphModule, call: _Call, returned: TreeSpec) -> GraphModule:
    module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(call.names, call.structure, returned)))
    module.recompile()
    return module
