"""A program as modules again: one for each module that was called, which may be replaced."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from telegrad.fx._code.pytree_codegen import CallCodeGen
from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule as FxGraphModule
from telegrad.fx.node import Node, map_arg
from telegrad.nn.modules.module import Module
from telegrad.utils._pytree import tree_leaves
from telegrad_protocol.errors import NotSupportedError

from ._module import Parts, ProgramModule
from ._module_calls import ModuleCall


class UnflattenedModule(ProgramModule):
    """A program whose submodules are those that the exported module has called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.__dict__["_check"](*tree_leaves(self.in_order(args, kwargs)))
        return super().__call__(*args, **kwargs)


class _Call(NamedTuple):
    """The nodes of a call of a module."""

    call: ModuleCall
    nodes: list[Node]


class Unflattener:
    """Makes modules of the graph of a program; ``paths`` has those of its tensors, by the names of placeholders.

    ``tree`` has the tensors in modules without a ``forward``, which are replaced by those that are made.
    """

    def __init__(self, graph: Graph, paths: dict[str, str], tree: Module) -> None:
        self._paths, self._tree = paths, tree
        self._order = {node: place for place, node in enumerate(graph.nodes)}
        self._made: dict[str, list[tuple[Any, str]]] = {}
        """By the path of a module, forms of the graphs of its calls, and the targets under which these are."""
        self._output = graph.output_node()
        self._given = [node for node in graph.nodes if node.op == "placeholder" and node.name not in paths]
        self._steps = [node for node in graph.nodes if node.op not in ("placeholder", "output")]

    def graph(self) -> Graph:
        """Return the graph of the whole, after the modules that it calls were put into ``tree``."""
        return self._graph_of(self._steps, self._given, [], "", 0)

    def _graph_of(
        self, nodes: Sequence[Node], given: Sequence[Node], returned: Sequence[Node], path: str, depth: int
    ) -> Graph:  # fmt: skip
        """Return the graph of these nodes: ``path`` is that of the module, ``depth`` the number of calls around it."""
        made, copies = Graph(), {}
        for node in given:
            copies[node] = made.node_copy(node) if node.op == "placeholder" else made.placeholder(node.name)
            copies[node].meta = copy.copy(node.meta)
        for part in _parts(nodes, depth):
            for tensor in self._tensors_of([part] if isinstance(part, Node) else part.nodes, copies):
                if isinstance(part, Node) or not self._is_within(tensor, part.call.path):
                    copies[tensor] = made.get_attr(self._relative(self._paths[tensor.name], path))
            if isinstance(part, Node):
                copies[part] = made.node_copy(part, copies.__getitem__)
            else:
                self._add_call(made, copies, part, path, depth)
        if not path:
            self._add_attributes(made, copies)
            made.output(map_arg(self._output.args[0], copies.__getitem__))
        else:
            results = tuple([copies[node] for node in returned])
            made.output(results[0] if len(results) == 1 else results)
        return made

    def _add_attributes(self, made: Graph, copies: dict[Node, Node]) -> None:
        """Read tensors of the program that it returns as they are."""
        for tensor in self._output.all_input_nodes:
            if tensor not in copies:
                copies[tensor] = made.get_attr(self._paths[tensor.name])

    def _add_call(self, made: Graph, copies: dict[Node, Node], part: _Call, path: str, depth: int) -> None:
        inside = set(part.nodes)
        used = dict.fromkeys([one for node in part.nodes for one in node.all_input_nodes if one not in inside])
        given = [one for one in used if one in copies and not self._is_within(one, part.call.path)]
        returned = [node for node in part.nodes if any([user not in inside for user in node.users])]
        graph = self._graph_of(part.nodes, given, returned, part.call.path, depth + 1)
        called = made.call_module(self._target(graph, part.call, path), tuple([copies[one] for one in given]))
        if len(returned) == 1:
            copies[returned[0]] = called
            called.meta["val"] = returned[0].meta.get("val")
            return
        for place, node in enumerate(returned):
            copies[node] = made.call_function(operator.getitem, (called, place))
            copies[node].meta = copy.copy(node.meta)

    def _target(self, graph: Graph, call: ModuleCall, path: str) -> str:
        """Return the path, seen from that of the caller, of a module with this graph, which is made at most once."""
        known, form = self._made.setdefault(call.path, []), _form(graph)
        target = next((target for earlier, target in known if earlier == form), None)
        if target is None:
            target = call.path if not known else f"{call.path}@{len(known)}"
            known.append((form, target))
            module = FxGraphModule(_at(self._tree, call.path), graph, "InterpreterModule")
            above, _, name = target.rpartition(".")
            _at(self._tree, above).add_module(name, module)
        return self._relative(target, path)

    def _relative(self, target: str, path: str) -> str:
        if path and not target.startswith(f"{path}."):
            raise NotSupportedError(
                f"unflatten: {path!r} calls {target!r} or reads a tensor of it, which is no part of it; call "
                "`program.module()`, which has no submodules of its own"
            )
        return target[len(path) + 1 :] if path else target

    def _tensors_of(self, nodes: Sequence[Node], copies: dict[Node, Node]) -> list[Node]:
        """Return the tensors of the program that nodes use and that no node here has read."""
        used = dict.fromkeys([one for node in nodes for one in node.all_input_nodes])
        return [one for one in used if one.name in self._paths and one not in copies]

    def _is_within(self, tensor: Node, path: str) -> bool:
        return self._paths.get(tensor.name, "").startswith(f"{path}.")


def _parts(nodes: Sequence[Node], depth: int) -> Iterator[Node | _Call]:
    """Yield the nodes of a call itself, and the calls of modules in it with theirs."""
    current: _Call | None = None
    for node in nodes:
        calls = node.meta.get("calls", ())[1:]
        call = calls[depth] if len(calls) > depth else None
        if current is not None and current.call != call:
            yield current
            current = None
        if call is None:
            yield node
        elif current is None:
            current = _Call(call, [node])
        else:
            current.nodes.append(node)
    if current is not None:
        yield current


def _form(graph: Graph) -> Any:
    """Return what is the same for graphs that compute the same: nodes are told by their places."""
    places = {node: place for place, node in enumerate(graph.nodes)}
    return [
        (
            node.op,
            node.target if node.op != "placeholder" else None,
            repr(map_arg((node.args, node.kwargs), places.get)),
        )
        for node in graph.nodes
    ]


def _at(tree: Module, path: str) -> Module:
    """Return the module at a path, which is made with those above it if it has no tensors."""
    for name in filter(None, path.split(".")):
        if name not in tree._modules:
            tree.add_module(name, Module())
        tree = tree._modules[name]
    return tree


def unflattened(graph: Graph, parts: Parts) -> UnflattenedModule:
    """Return the modules of a program's graph."""
    tree = Module()
    parts.place_in(tree)
    made = Unflattener(graph, {name: held.name for name, (held, _) in parts.tensors.items()}, tree).graph()
    made.set_codegen(CallCodeGen(parts.info))
    parts.place_in(tree)  # modules that were made have the tensors that their own graphs read
    module = UnflattenedModule(tree, made)
    parts.place_in(module)
    module.__dict__["_check"] = parts.guards()
    return module
