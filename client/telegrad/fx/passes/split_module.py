"""``split_module``: divides a graph into partitions, each of which becomes a module that the new graph calls."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from telegrad.fx.graph import Graph
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node, map_arg
from telegrad.nn.modules.module import Module

__all__ = ["split_module"]

_OF_BASE = frozenset(("placeholder", "get_attr"))
"""Operations of nodes that stay in the new graph, and are passed to partitions that use them."""


class _Names(NamedTuple):
    """How partitions, their nodes and their inputs are named, and whether they return a tuple in any case."""

    affix: str | None
    keeps_nodes: bool
    keeps_inputs: bool
    returns_tuples: bool

    def of_partition(self, id: Any) -> str:
        return f"submod_{id}" if self.affix is None else f"submod_{self.affix}_{id}"


class _Partition:
    """The nodes of one partition, what they take from outside, and which of them are used there, in order of use."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.followers: dict[_Partition, None] = {}
        """Partitions that take its results."""

    def module(self, root: Module, names: _Names, paths: dict[str, str] | None) -> GraphModule:
        """Return the partition as a module with its parts of ``root``, whose former paths are noted in ``paths``."""
        graph, made, parts = Graph(), dict[Node, Node](), dict[str, Any]()
        for number, node in enumerate(self.inputs):
            made[node] = graph.placeholder(node.name if names.keeps_inputs else f"arg_{number}", type_expr=node.type)
            made[node].meta = node.meta.copy()
        for node in self.nodes:
            target = node.target
            if node.op == "call_module":
                target = str(node.target).replace(".", "_")
                parts[target] = root.get_submodule(str(node.target))
                if paths is not None:
                    paths[f"{self.name}.{target}"] = str(node.target)
            args, kwargs = map_arg((node.args, node.kwargs), made.__getitem__)
            name = node.name if names.keeps_nodes else None
            made[node] = graph.create_node(node.op, target, args, kwargs, name, node.type)
            made[node].meta = node.meta.copy()
        results = tuple([made[node] for node in self.outputs])
        graph.output(results[0] if len(results) == 1 and not names.returns_tuples else results)
        return GraphModule(parts, graph)


class _Division:
    """The partitions of a graph, by the id that a program gives them."""

    def __init__(self, nodes: list[Node], choose: Callable[[Node], Any], names: _Names) -> None:
        self.partitions: dict[Any, _Partition] = {}
        self.owners: dict[Node, _Partition] = {}
        for node in nodes:
            if node.op not in _OF_BASE and node.op != "output":
                id = choose(node)
                owner = self.partitions.setdefault(str(id), _Partition(names.of_partition(id)))
                owner.nodes.append(node)
                self.owners[node] = owner
        for node in nodes:
            self._note_uses(node)

    def _note_uses(self, node: Node) -> None:
        owner = self.owners.get(node)
        for used in node.all_input_nodes:
            of_used = self.owners.get(used)
            if of_used is owner:
                continue
            if owner is not None:
                owner.inputs[used] = None
            if of_used is not None:
                of_used.outputs[used] = None
            if owner is not None and of_used is not None:
                of_used.followers[owner] = None

    def in_order(self) -> list[_Partition]:
        """Return the partitions so that each comes after those whose results it takes; RuntimeError for a circle.

        Which comes first of two that could is as in PyTorch: the one that became possible last.
        """
        needed = {
            one: {self.owners[used] for used in one.inputs if used in self.owners} for one in self.partitions.values()
        }
        ready = [one for one, others in needed.items() if not others]
        ordered: list[_Partition] = []
        while ready:
            last = ready.pop()
            ordered.append(last)
            for follower in last.followers:
                needed[follower].discard(last)
                if not needed[follower]:
                    ready.append(follower)
        if len(ordered) < len(needed):
            raise RuntimeError("cycle exists between partitions!")
        return ordered


class _Base:
    """The graph that calls the partitions."""

    def __init__(self, root: Module, names: _Names, paths: dict[str, str] | None) -> None:
        self._root, self._names, self._paths = root, names, paths
        self.graph, self.parts = Graph(), dict[str, Any]()
        self.made: dict[Node, Node] = {}

    def add(self, node: Node) -> None:
        """Add an input, or an attribute of the module."""
        if node.op == "placeholder":
            made = self.graph.create_node("placeholder", node.target, node.args, {}, node.name, node.type)
        else:
            made = self.graph.create_node("get_attr", node.target, (), {}, node.name, node.type)
            self.parts[str(node.target)] = operator.attrgetter(str(node.target))(self._root)
        made.meta = node.meta.copy()
        self.made[node] = made

    def call(self, partition: _Partition) -> None:
        """Call a partition, and take its results apart."""
        self.parts[partition.name] = partition.module(self._root, self._names, self._paths)
        called = self.graph.call_module(partition.name, tuple([self.made[node] for node in partition.inputs]))
        if len(partition.outputs) == 1 and not self._names.returns_tuples:
            self.made[next(iter(partition.outputs))] = called
            return
        for number, node in enumerate(partition.outputs):
            self.made[node] = self.graph.call_function(operator.getitem, (called, number))
            self.made[node].meta = node.meta.copy()


def split_module(
    m: GraphModule, root_m: Module, split_callback: Callable[[Node], Any], qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False, keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True, *, partition_affix: str | None = None, tuple_return: bool = False,
) -> GraphModule:  # fmt: skip
    """Return a module that calls one module for each partition, with the parts of ``m`` that each of them uses.

    ``split_callback`` gives the id of the partition that a node belongs to. Inputs and attributes are the new module's,
    which passes them on. ``qualname_map`` gets the former paths of the parts. With ``keep_original_order`` a partition
    is called as soon as what it takes is there. Raises RuntimeError where partitions need each other's results.
    """
    names = _Names(partition_affix, bool(keep_original_node_name), keep_original_input_name, tuple_return)
    nodes = list(m.graph.nodes)
    division, base = _Division(nodes, split_callback, names), _Base(m, names, qualname_map)
    waiting = division.in_order()
    begun: set[_Partition] = set()
    for node in nodes:
        if node.op in _OF_BASE:
            base.add(node)
        elif node in division.owners:
            begun.add(division.owners[node])
        if keep_original_order:
            for partition in _callable(waiting, begun, base):
                base.call(partition)
                waiting.remove(partition)
    for partition in waiting:
        base.call(partition)
    results = m.graph.output_node().args[0]
    base.graph.output(map_arg(results, base.made.__getitem__))
    return GraphModule(base.parts, base.graph)


def _callable(waiting: list[_Partition], begun: set[_Partition], base: _Base) -> Iterator[_Partition]:
    """Yield partitions, the nodes of which have come up, whose inputs are there."""
    for partition in tuple(waiting):
        if partition in begun and base.made.keys() >= partition.inputs.keys():
            yield partition
