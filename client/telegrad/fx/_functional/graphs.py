"""Graphs without writes: what an operator would have written is a value of its own, of which views are made anew.

What the graph is given and writes into is copied back before it returns, so that the module does what it did.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from telegrad._dispatch.own_operators import OwnOverload
from telegrad._library.overloads import OpOverload
from telegrad._tensor.tensor import Tensor
from telegrad.fx.graph import Graph
from telegrad.fx.node import Node, map_arg
from telegrad.ops import aten
from telegrad_protocol.memory_format import contiguous_format

from .views import ViewStep

_WHERE: Final = ("stack_trace", "nn_module_stack", "calls")
"""What the metadata of a node has of where it comes from."""
_STATISTICS: Final = ("running_mean", "running_var")
_UNSAID: Final = {
    "aten::batch_norm": "training", "aten::native_batch_norm": "training", "aten::cudnn_batch_norm": "training",
    "aten::instance_norm": "use_input_stats",
}  # fmt: skip
"""Operators that write running statistics, which their schemas do not say, and the argument that tells whether."""
_BATCH_NORMS: Final = {"aten::batch_norm", "aten::native_batch_norm", "aten::_native_batch_norm_legit"}
"""Those that a form without writes has, which returns new statistics beside three results."""
_NORM_ARGUMENTS: Final = ("input", "weight", "bias", *_STATISTICS, "training", "momentum", "eps")


class _Storage:
    """Memory that views share: ``values`` has the node of each view since the last write, by the steps to it."""

    def __init__(self, value: Node, source: Node | None = None) -> None:
        self.values: dict[tuple[ViewStep, ...], Node] = {(): value}
        self.source = source
        """What the graph is given, for memory that it is given."""

    @property
    def is_to_be_copied_back(self) -> bool:
        """Whether what the graph is given has been written to."""
        return self.source is not None and self.values[()] is not self.source


class _View(NamedTuple):
    storage: _Storage
    steps: tuple[ViewStep, ...]


class Written(NamedTuple):
    """What a graph was given and writes into, and the node of what it is at the end."""

    source: Node
    value: Node


class FunctionalGraph:
    """A copy of a graph of operators, whose nodes have what they return as ``val``, in which none writes.

    ``written`` is what the graph it was would have written into of what it is given; ``finish`` copies that back, or
    leaves it to the caller. Views are copies if ``without_views``.
    """

    def __init__(self, graph: Graph, without_views: bool = False) -> None:
        self.graph = Graph(tracer_cls=graph._tracer_cls)
        self._without_views = without_views
        self._views: dict[Node, _View] = {}
        self._lists: dict[Node, tuple[_View, Node]] = {}
        """Nodes of operators that return several views, with what these are views of."""
        self._copies: dict[Node, Node] = {}
        self._writers: set[Node] = set()
        """Calls that write into copies, which stay whether or not something uses their results."""
        self._where: dict[str, Any] = {}
        for node in graph.nodes:
            self._where = {name: node.meta[name] for name in _WHERE if name in node.meta}
            self._add(node)

    @property
    def written(self) -> list[Written]:
        """What the graph is given and has written into."""
        storages = {id(view.storage): view.storage for view in self._views.values()}
        return [Written(s.source, s.values[()]) for s in storages.values() if s.source and s.is_to_be_copied_back]

    def finish(self, are_copied_back: bool = True) -> Graph:
        """Return the graph; what it writes into of what it is given is copied back at its end, or returned first."""
        output = self.graph.output_node()
        if are_copied_back:
            for source, value in self.written:
                with self.graph.inserting_before(output):
                    self.graph.call_function(aten.copy_.default, (source, value))
        else:
            output.args = ((*[value for _, value in self.written], *output.args[0]),)
        self.graph.eliminate_dead_code(lambda node: node in self._writers or node.is_impure())
        return self.graph

    def _add(self, node: Node) -> None:
        if node in self._copies or node in self._views:
            return
        target: Any = node.target
        if isinstance(target, (OpOverload, OwnOverload)):
            self._call(node, target)
        elif target is operator.getitem and node.args[0] in self._lists:
            self._take(node)
        else:
            self._copy(node)

    def _copy(self, node: Node) -> None:
        """Copy a node that is no operator, and one that is given to the graph."""
        copied = self.graph.node_copy(node, self._node)
        self._keep(node, copied, copied if node.op in ("placeholder", "get_attr") else None)

    def _keep(self, node: Node, made: Node, source: Node | None = None) -> None:
        self._copies[node] = made
        if isinstance(node.meta.get("val"), Tensor):
            self._views[node] = _View(_Storage(made, source), ())

    def _node(self, node: Node) -> Node:
        """Return the node that has by now what a node of the other graph has."""
        view = self._views.get(node)
        return self._copies[node] if view is None else self._value(view)

    def _value(self, view: _View) -> Node:
        storage, steps = view
        if steps not in storage.values:
            parent = self._value(_View(storage, steps[:-1]))
            storage.values[steps] = self._shown(steps[-1], parent)
        return storage.values[steps]

    def _shown(self, step: ViewStep, parent: Node) -> Node:
        target = _copying(step.target) if self._without_views else step.target
        made = self.emit(target, parent, *step.rest, **step.kwargs)
        return made if step.place is None else self._item(made, step.place)

    def _item(self, of: Node, place: int) -> Node:
        taken = self.graph.call_function(operator.getitem, (of, place))
        taken.meta["val"] = of.meta["val"][place]
        return taken

    def emit(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Add the call of an operator, with what it returns as ``val``."""
        name = target.overloadpacket.__name__
        made = self.graph.create_node("call_function", target, args, kwargs, name)
        made.meta["val"] = target(*map_arg(args, _look), **map_arg(kwargs, _look))
        made.meta.update(self._where)
        return made

    def _call(self, node: Node, target: Any) -> None:
        arguments = dict(_bound(node, target))
        shown = [name for name, (_, alias) in arguments.items() if alias == "view"]
        if any([alias == "write" for _, alias in arguments.values()]):
            self._write(node, target, arguments)
        elif shown and isinstance(arguments[shown[0]][0], Node) and node.args:
            self._note_view(node, target)
        else:
            copied = self.graph.node_copy(node, self._node)
            self._keep(node, copied)

    def _note_view(self, node: Node, target: Any) -> None:
        of = self._views[node.args[0]]
        rest, kwargs = map_arg(node.args[1:], self._node), map_arg(node.kwargs, self._node)
        if not isinstance(node.meta.get("val"), Tensor):
            self._lists[node] = of, node
            return
        self._views[node] = _View(of.storage, (*of.steps, ViewStep(target, rest, dict(kwargs))))
        self._value(self._views[node])

    def _take(self, node: Node) -> None:
        """Note that a node takes one of the views that an operator returns as a list."""
        of, several = self._lists[node.args[0]]
        rest, kwargs = map_arg(several.args[1:], self._node), map_arg(several.kwargs, self._node)
        step = ViewStep(several.target, rest, dict(kwargs), node.args[1])
        self._views[node] = _View(of.storage, (*of.steps, step))

    def _write(self, node: Node, target: Any, arguments: dict[str, tuple[Any, str]]) -> None:
        written = [value for value, alias in arguments.values() if alias == "write" and value is not None]
        if isinstance(target, OpOverload) and target.name() in _BATCH_NORMS and written:
            self._norm(node, {name: value for name, (value, _) in arguments.items()})
            return
        functional = _functional(target)
        if functional is not None and len(written) == 1 and isinstance(written[0], Node):
            self._set(written[0], self._result(functional, node, written[0]))
            self._views[node] = self._views[written[0]]
            return
        self._write_to_copies(node, [leaf for value in written for leaf in _nodes_in(value)])

    def _norm(self, node: Node, arguments: dict[str, Any]) -> None:
        """Have a normalization return its statistics."""
        given = [map_arg(arguments.get(name), self._node) for name in _NORM_ARGUMENTS]
        made = self.emit(aten._native_batch_norm_legit_functional.default, *given)
        self._keep(node, self._item(made, 0) if isinstance(node.meta.get("val"), Tensor) else made)
        for place, name in enumerate(_STATISTICS, 3):
            self._set(arguments[name], self._item(made, place))

    def _result(self, functional: OpOverload, node: Node, written: Node) -> Node:
        """Return the node of what an operator would write, which has the type of what it is written into."""
        out = {name: value for name, value in node.kwargs.items() if value is not written}
        made = self.emit(functional, *map_arg(node.args, self._node), **map_arg(out, self._node))
        dtype = written.meta["val"].dtype
        return made if made.meta["val"].dtype is dtype else self.emit(aten._to_copy.default, made, dtype=dtype)

    def _write_to_copies(self, node: Node, written: list[Node]) -> None:
        """Have an operator without a functional form write into copies, which nothing else sees."""
        copies = {one: self.emit(aten.clone.default, self._node(one)) for one in written}
        made = self.graph.node_copy(node, lambda one: copies.get(one) or self._node(one))
        self._keep(node, made)
        self._writers.add(made)
        for one, copied in copies.items():
            self._set(one, copied)
        if len(copies) == 1 and _returns_what_it_writes(node.target):
            self._views[node] = self._views[written[0]]

    def _set(self, node: Node, value: Node) -> None:
        """Have a node, and all that shows its memory, be what was written into it."""
        storage, steps = self._views[node]
        made = value
        for place in range(len(steps) - 1, -1, -1):
            made = steps[place].written(self.emit, self._value(_View(storage, steps[:place])), made)
        made = self._laid_out(made, storage)
        storage.values = {(): made, **({steps: value} if steps else {})}

    def _laid_out(self, made: Node, storage: _Storage) -> Node:
        """Return a node that lies in memory as what was there before, on which views depend."""
        before = storage.values[()].meta["val"]
        if made.meta["val"].stride() == before.stride() or not before.is_contiguous():
            return made
        return self.emit(aten.clone.default, made, memory_format=contiguous_format)


def _returns_what_it_writes(target: Any) -> bool:
    if isinstance(target, OwnOverload):
        return bool(target.mutates)
    returns = target._schema.returns
    return bool(returns) and returns[0].alias_info is not None


def _look(node: Node) -> Any:
    return node.meta["val"]


def _bound(node: Node, target: Any) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Yield the arguments of a call by name, with whether their memory is shown or written to."""
    if isinstance(target, OwnOverload):
        for place, value in enumerate(node.args):
            yield str(place), (value, "write" if place in target.mutates else "")
        return
    names = [argument.name for argument in target._schema.arguments]
    given = {**dict(zip(names, node.args)), **node.kwargs}
    unsaid = _STATISTICS if given.get(_UNSAID.get(target._schema.name, "")) else ()
    for argument in target._schema.arguments:
        if argument.name in given:
            alias = argument.alias_info
            is_written = argument.name in unsaid or (alias is not None and alias.is_write)
            yield argument.name, (given[argument.name], "write" if is_written else "view" if alias is not None else "")


def _nodes_in(value: Any) -> list[Node]:
    return [value] if isinstance(value, Node) else [node for node in value if isinstance(node, Node)]


def _functional(target: Any) -> OpOverload | None:
    """Return the operator that returns what this one writes; None where there is none."""
    if isinstance(target, OwnOverload):
        return None
    schema = target._schema
    library, _, name = schema.name.partition("::")
    if library != "aten":
        return None
    is_in_place = name.endswith("_") and not name.endswith("__")
    if not is_in_place and not any([argument.is_out for argument in schema.arguments]):
        return None
    packet = getattr(aten, name[:-1] if is_in_place else name, None)
    wanted = [(a.name, str(a.type)) for a in schema.arguments if is_in_place or not a.is_out]
    for overload in packet.overloads() if packet is not None else ():
        found = getattr(packet, overload)
        takes = [(a.name, str(a.type)) for a in found._schema.arguments]
        if takes == wanted and not any([a.alias_info is not None for a in found._schema.arguments]):
            return found  # type: ignore[no-any-return]
    return None


def _copying(target: Any) -> Any:
    """Return the operator that copies what this one shows; itself where there is none."""
    name = target.name().partition("::")[2].partition(".")[0]
    packet = getattr(aten, f"{name}_copy", None)
    overload = target._overloadname or "default"
    return getattr(packet, overload, target) if packet is not None else target
