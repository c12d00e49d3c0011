"""Backward passes that stop where the client computes: at nodes whose derivative it has, and at places that it watches.

A pass goes on until nothing is left but what lies behind stops. The client takes the gradients that have reached a
stop, gives others for them, and the pass goes on behind it. A stop is an edge that is watched, or a ``ClientNode``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from server.engine import context
from server.engine.value import Storage, Value
from telegrad_protocol.errors import AutogradError, ProtocolError
from telegrad_protocol.meta import Meta

from .anomaly import new_task
from .gradients import in_layout_of
from .graph import Edge, Node
from .graph_task import count_dependencies, initial_gradient
from .inplace import edge_of
from .node import fit_gradient, zeros
from .packed import PackedTensor


class ClientNode(Node):
    """A node whose derivative the client computes."""

    __slots__ = ("saved",)

    def __init__(self, edges: Sequence[Edge | None], metas: tuple[Meta, ...]) -> None:
        super().__init__(edges, metas)
        self.saved: Sequence[tuple[Storage, int, Meta]] = ()
        """Memory that the derivative needs as it was at a version of it, and the meta of the tensor there."""

    def check_saved(self) -> None:
        """Raise AutogradError where a tensor that the client has saved was modified since."""
        for storage, version, meta in self.saved:
            if storage.version != version:
                raise AutogradError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"{meta}, saved by a function of the program, is at version {storage.version}; expected version "
                    f"{version} instead; clone it before you modify it"
                )

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        if not self.edges:
            return ()
        raise AutogradError(
            "backward: the pass reached a function whose derivative is in the client's program, which did not expect it"
        )

    def release(self) -> None:
        self.saved = ()


class Hooked:
    """A stop at the node of an operation: before it computes gradients, or behind it, before these are spread.

    ``places`` are the edges whose gradients the client is shown, ``packed`` what the client's program keeps of what
    the operation has saved.
    """

    __slots__ = ("is_behind", "node", "packed", "places")

    def __init__(self, node: Node, is_behind: bool, places: tuple[int, ...] = ()) -> None:
        self.node = node
        self.is_behind = is_behind
        self.places = places
        self.packed: list[PackedTensor] = []


Stop: TypeAlias = "Node | Edge | Hooked"


def node_at(stop: Stop) -> Node:
    """Return the node that a stop is at."""
    if isinstance(stop, Hooked):
        return stop.node
    return stop if isinstance(stop, Node) else stop[0]


class ClientPass:
    """A backward pass that stops. It is made of several steps, between which other instructions are executed."""

    def __init__(
        self, stops: Mapping[int, Stop], inputs: Sequence[Value] | None, retain_graph: bool, create_graph: bool
    ) -> None:
        self.create_graph = create_graph
        self._retain_graph = retain_graph
        self._targets = [_edge_to(value) for value in inputs or ()]
        self.inputs = inputs
        self._task = new_task(retain_graph, create_graph, self._targets)
        self._ready: list[tuple[int, Node]] = []
        self._counts: dict[Node, int] = {}
        self._wanted: set[Node] | None = None
        self._awaited: dict[Node, int] = {}
        """How many stops there are at a node which the client has not given gradients for."""
        self._stops = {number: node_at(stop) for number, stop in stops.items()}
        self._behind = {stop.node for stop in stops.values() if isinstance(stop, Hooked) and stop.is_behind}
        """Nodes that the pass stops behind."""
        self._computed: dict[Node, list[Value | None] | None] = {}
        """What the nodes that it has stopped behind have computed; None where no gradient has reached them."""
        self.reached: list[int] = []
        """The numbers of stops that gradients of the roots may flow to."""
        for number, node in self._stops.items():
            stop = stops[number]
            if isinstance(stop, Hooked) and stop.is_behind:
                continue
            self._awaited[node] = self._awaited.get(node, 0) + 1
        self._stopped: set[Node] = set()

    @property
    def nodes(self) -> list[Node]:
        """The nodes that the pass holds, from which all others can be reached."""
        return [*self._stops.values(), *self._counts, *self._task.pending, *(node for _, node in self._ready)]

    def begin(self, roots: Sequence[Value], gradients: Sequence[Value | None]) -> None:
        """Start at ``roots`` and go on to the first stops."""
        with context.grad_mode(self.create_graph):
            starts: list[Node] = []
            for root, gradient in zip(roots, gradients, strict=True):
                edge = _edge_to(root)
                self._task.receive(edge, initial_gradient(root, gradient))
                starts.append(edge[0])
            self._wanted, self._counts = count_dependencies(starts, self._task.capture, self._task.create_graph)
            known = {*starts, *self._counts}
            self.reached = [number for number, node in self._stops.items() if node in known]
            for node in set(starts):
                if node not in self._counts:
                    heappush(self._ready, (-node.sequence, node))
            self._go_on()

    def take(self, stop: Stop) -> Sequence[Value | None]:
        """Return the gradients that have reached a stop; zeros where none has, but None at the node of an operation."""
        if isinstance(stop, Hooked):
            return self._take_hooked(stop)
        node, outputs = (stop, range(len(stop.metas))) if isinstance(stop, Node) else (stop[0], (stop[1],))
        if node in self._counts:
            raise AutogradError("backward: the client's program went on before all gradients had reached a function")
        slots = self._task.pending.get(node) or [None] * len(node.metas)
        with context.grad_mode(False):
            return [self._arrived(slots[output], node.metas[output]) for output in outputs]

    def _take_hooked(self, stop: Hooked) -> list[Value | None]:
        node = stop.node
        if stop.is_behind:
            if node not in self._computed:
                raise ProtocolError("backward: the client's program asked for gradients that are not computed yet")
            computed = self._computed[node]
            arrived = [None if computed is None else computed[place] for place in stop.places]
            metas = self._metas_behind(stop)
        else:
            if node in self._counts:
                raise AutogradError("backward: the client's program went on before all gradients had reached a node")
            arrived, metas = list(self._task.pending.get(node) or [None] * len(node.metas)), list(node.metas)
        with context.grad_mode(False):
            return [
                None if gradient is None or meta is None else self._arrived(gradient, meta)
                for gradient, meta in zip(arrived, metas, strict=True)
            ]

    def _metas_behind(self, stop: Hooked) -> list[Meta | None]:
        """Return the metas of what a node computes; None where the pass needs no gradient, or there is none."""
        edges = [stop.node.edges[place] for place in stop.places]
        return [edge[0].metas[edge[1]] if edge is not None and self._is_wanted(edge) else None for edge in edges]

    def _is_wanted(self, edge: Edge) -> bool:
        return self._wanted is None or edge[0] in self._wanted or edge in self._task.capture

    def _give_hooked(self, stop: Hooked, gradients: Sequence[Value | None] | None) -> None:
        """Go on from before a node to behind it, or from there to what its gradients flow to."""
        node = stop.node
        if not stop.is_behind:
            slots = self._task.pending.get(node)
            if gradients is not None and slots is not None:
                self._task.deliver(node, slots)
                self._task.delivered.add(node)
                slots[:] = _matching(gradients, node.metas, len(slots))
                if all(gradient is None for gradient in slots):
                    del self._task.pending[node]
            self._pass_stop(node)
            return
        computed = self._computed.pop(node)
        if gradients is not None and computed is not None:
            metas = self._metas_behind(stop)
            for place, gradient in zip(stop.places, _matching(gradients, metas, len(metas)), strict=True):
                computed[place] = gradient
        self._stopped.remove(node)
        self._spread(node, computed)
        self._go_on()

    def _pass_stop(self, node: Node) -> None:
        """Compute the gradients of a node once all stops before it are passed."""
        if self._awaited[node]:
            return
        results = self._task.visit(node, self._wanted)
        if node in self._behind:
            self._computed[node] = None if results is None else list(results)
            return
        self._stopped.remove(node)
        self._spread(node, results)
        self._go_on()

    def _arrived(self, gradient: Value | None, meta: Meta) -> Value:
        if gradient is None:
            return zeros(meta)
        return gradient if self.create_graph else in_layout_of(meta, gradient)  # the client assumes its layout

    def give(self, stop: Stop, gradients: Sequence[Value | None] | None) -> None:
        """Go on behind a stop; a client's node gives gradients for its edges, a watched edge one gradient or None."""
        node = node_at(stop)
        if isinstance(stop, Hooked) and stop.is_behind:
            if node in self._computed:
                with context.grad_mode(self.create_graph):
                    self._give_hooked(stop, gradients)
            return
        if self._awaited.get(node, 0) <= 0:
            raise ProtocolError("backward: a pass was given gradients for a stop that it has not")
        if node not in self._stopped:
            return
        self._awaited[node] -= 1
        with context.grad_mode(self.create_graph):
            if isinstance(stop, Hooked):
                self._give_hooked(stop, gradients)
                return
            if isinstance(stop, Node):
                self._leave(stop, gradients or ())
                return
            slots = self._task.pending.get(node)
            if gradients is not None and slots is not None:
                (slots[stop[1]],) = _matching(gradients, (node.metas[stop[1]],), 1)
            slots = gradients = None
            self._pass_stop(node)

    def end(self) -> list[Value | None]:
        """Return the gradients of the inputs, once all nodes were visited."""
        if self._counts or self._stopped:
            raise AutogradError("backward: the client's program ended a pass before all gradients had been computed")
        if self._task.zero_edges:
            with context.grad_mode(self.create_graph):
                self._task.give_zeros()
        return [self._task.captured.get(edge) for edge in self._targets]

    def _leave(self, node: Node, gradients: Sequence[Value | None]) -> None:
        """Spread the gradients that the client has computed for the edges of its node."""
        if self._awaited[node]:
            raise ProtocolError("backward: a client's node was computed before the places that it is watched at")
        if len(gradients) != len(node.edges):
            raise ProtocolError(f"{len(gradients)} gradients for {len(node.edges)} inputs of a client's node")
        self._stopped.remove(node)
        arrived = self._task.pending.pop(node, None)
        if arrived is not None:
            self._task.deliver(node, arrived)
        metas = [edge and edge[0].metas[edge[1]] for edge in node.edges]
        wanted = self._wanted is None or node in self._wanted
        self._spread(node, _matching(gradients, metas, len(metas)) if wanted else None)
        if not self._retain_graph:
            node.release()
        self._go_on()

    def _go_on(self) -> None:
        """Visit nodes, the one made last first, until all that are left are stopped at or lie behind stops."""
        try:
            while self._ready:
                node = heappop(self._ready)[1]
                if self._awaited.get(node) or node in self._behind:
                    self._stopped.add(node)
                    if not self._awaited.get(node):
                        self._pass_stop(node)
                else:
                    self._spread(node, self._task.visit(node, self._wanted))
        finally:
            self._task.end_step()

    def _spread(self, node: Node, results: Sequence[Value | None] | None) -> None:
        for number, edge in enumerate(node.edges):
            if edge is None:
                continue
            following = edge[0]
            if results is not None and (gradient := results[number]) is not None:
                self._task.receive(edge, gradient)
            left = self._counts[following] = self._counts[following] - 1
            if not left:
                del self._counts[following]
                heappush(self._ready, (-following.sequence, following))


def _edge_to(value: Value) -> Edge:
    edge = edge_of(value)
    if edge is None:
        raise AutogradError(f"backward: {value.meta} does not require grad")
    return edge


def _matching(gradients: Sequence[Value | None], metas: Sequence[Meta | None], count: int) -> list[Value | None]:
    """Return gradients in the shapes and types of what they are the gradients of; refuse those that do not fit."""
    if len(gradients) != count:
        raise ProtocolError(f"{len(gradients)} gradients for {count} places")
    return [
        None if gradient is None or meta is None else _fitted(gradient, meta)
        for gradient, meta in zip(gradients, metas, strict=True)
    ]


def _fitted(gradient: Value, meta: Meta) -> Value:
    if not _expands(meta.shape, gradient.meta.shape):
        raise AutogradError(
            f"backward: a function returned an invalid gradient - got {list(gradient.meta.shape)} but expected shape "
            f"compatible with {list(meta.shape)}"
        )
    fitted: Value = fit_gradient(gradient, meta)  # type: ignore[assignment]
    return fitted


def _expands(shape: Sequence[int], to: Sequence[int]) -> bool:
    ahead = len(to) - len(shape)
    return ahead >= 0 and all(size in (1, other) for size, other in zip(shape, to[ahead:], strict=True))
