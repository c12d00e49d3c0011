"""One pass over a backward graph: dependency counts, a ready queue by sequence number, gradients for leaves.

The engine's general way, for every graph and every option. Knows nothing of passes that came before: ``replay`` is
above it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat
from operator import attrgetter

from server.engine import context
from server.engine.device import cancellation
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.value import Value
from telegrad_protocol.errors import AutogradError, LimitExceededError, ShapeError

from . import node_program
from .gradients import accumulate
from .graph import AccumulateGrad, Edge, Node
from .inplace import edge_of
from .node import OpNode, zeros
from .node_program import Modes, modes_now
from .zero_derivatives import DEPENDING, ZeroDerivative, depending_on_operands, reached_by_zeros, receiver_of

most_nodes = math.inf
"""How many nodes the graph of a pass may have; a server sets it."""
CREATED_GRAPH_COST = 10
"""A node of a pass that makes a graph itself counts as so many: it takes so much longer, and nested ones grow fast."""
_NO_GRADIENTS = repeat(None)
_by_sequence = attrgetter("sequence")
ONES, ADD = OPERATORS["ones"], OPERATORS["add"]


class GraphTask:
    """One pass over the graph from some roots; ``captured`` has the gradients at the edges of ``capture`` after it.

    With edges to capture, nothing is accumulated into leaves.
    """

    __slots__ = ("capture", "captured", "create_graph", "delivered", "pending", "retain_graph", "zero_edges")

    receives_every_gradient = False
    """Whether each gradient must go through ``receive``, even the first that reaches a node of one output."""

    def __init__(self, retain_graph: bool, create_graph: bool, capture: Sequence[Edge]) -> None:
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.capture = frozenset(capture)
        self.captured: dict[Edge, Value | None] = {}
        self.pending: dict[Node, list[Value | None]] = {}
        self.delivered: set[Node] = set()
        """Nodes whose gradients were handed out before they were visited."""
        self.zero_edges: list[Edge] = []
        """The edges that zeros flow to, which are given in the end to what nothing else has reached."""

    def execute(self, roots: Sequence[Value], gradients: Sequence[Value | None]) -> None:
        """Make the pass from ``roots``; a scalar root without a gradient starts with one."""
        with context.grad_mode(self.create_graph):
            starts = []
            for root, gradient in zip(roots, gradients, strict=True):
                edge = edge_of(root)
                if edge is None:
                    raise AutogradError(
                        f"backward: {root.meta} does not require grad and was not computed from one that does"
                    )
                self.receive(edge, initial_gradient(root, gradient))
                starts.append(edge[0])
            self._drain(starts)

    def execute_from(self, edge: Edge, gradients: list[Value]) -> None:
        """Make the pass from one edge; takes the one gradient out of the list, which may be its only holder."""
        self.receive(edge, gradients.pop())
        self._drain([edge[0]])

    def _drain(self, starts: list[Node]) -> None:
        """Visit nodes, the one made last first, each when all gradients that it waits for have arrived."""
        wanted, counts = count_dependencies(starts, self.capture, self.create_graph)
        ready = [node for node in set(starts) if node not in counts]
        is_usual = self.__class__ is GraphTask and not self.create_graph
        modes, drain = modes_now() if is_usual else None, node_program.drain_in_c
        passed = None if wanted is None else wanted.difference([edge[0] for edge in self.capture])
        if is_usual and drain is not None:
            drain(self, ready, counts, modes, not self.retain_graph, wanted, passed)
        else:
            self._visit_all(ready, counts, wanted, modes, passed if is_usual else set())
        if self.zero_edges:
            self.give_zeros()

    def _visit_all(
        self, starts: list[Node], counts: dict[Node, int], wanted: set[Node] | None, modes: Modes | None,
        passed: set[Node] | None,
    ) -> None:  # fmt: skip
        """Visit all nodes, from those that are ready; C makes most passes instead where that is compiled.

        ``passed`` are the nodes which nothing is asked of but gradients for their edges, None for all.
        """
        ready = [(-node.sequence, node) for node in starts]
        heapify(ready)
        pending, receives_every_gradient = self.pending, self.receives_every_gradient
        releases = not self.retain_graph
        leaves: list[Node] = []
        while ready:
            if cancellation.requested:
                cancellation.pause()
            node = heappop(ready)[1]
            if node.__class__ is OpNode and not node.retained and (passed is None or node in passed):  # most nodes
                grads = pending.pop(node, None)
                results = None if grads is None else node_program.apply(node, grads, modes, releases)
                if releases and results is not None and node.saved:
                    node.saved = None
                grads = None  # gradients that nothing else needs are freed before those that follow are added up
            else:
                results = self.visit(node, wanted)
            for edge, gradient in zip(node.edges, _NO_GRADIENTS if results is None else results):
                if edge is None:
                    continue
                following = edge[0]
                if gradient is not None:
                    if following in pending or receives_every_gradient or len(following.metas) != 1:
                        self.receive(edge, gradient)
                    else:
                        pending[following] = [gradient]
                left = counts[following] - 1
                if left:
                    counts[following] = left
                elif following.__class__ is AccumulateGrad:
                    leaves.append(following)
                else:
                    heappush(ready, (-following.sequence, following))
            results = gradient = None  # a leaf may take over a gradient that nothing but the task refers to
            if leaves:
                self._finish(leaves, wanted)

    def _finish(self, leaves: list[Node], wanted: set[Node] | None) -> None:
        """Accumulate into leaves in the order of the ready queue, which they leave before all other nodes."""
        if len(leaves) > 1:
            leaves.sort(key=_by_sequence, reverse=True)
        for leaf in leaves:
            self.visit(leaf, wanted)
        leaves.clear()

    def visit(self, node: Node, wanted: set[Node] | None) -> Sequence[Value | None] | None:
        """Return gradients for the node's edges; None if no gradient reached it, or none needs to flow further."""
        grads = self.pending.pop(node, None)
        if grads is None:
            return None
        if node.retained or self.capture:
            self.deliver(node, grads)
        if wanted is not None and node not in wanted:
            return None
        if node.__class__ is AccumulateGrad:
            if wanted is None and grads[0] is not None:
                # A local variable would be one more reference to the gradient, so that the leaf had to copy it.
                accumulate(node.leaf, grads.pop(), self.create_graph)  # type: ignore[arg-type]
            return None
        results = node.apply(grads)
        if self.create_graph and node.__class__ is OpNode and node.plan.operator.op.base.name in DEPENDING:
            results = depending_on_operands(node, grads, results)
        if node.__class__ is ZeroDerivative:
            self.zero_edges += node.zero_edges
        if not self.retain_graph:
            node.release()
        return results

    def give_zeros(self) -> None:
        """Give zeros to captured edges and leaves that zeros alone have reached."""
        for edge in reached_by_zeros(self.zero_edges):
            if edge in self.capture:
                if self.captured.get(edge) is None:
                    self.captured[edge] = zeros(edge[0].metas[edge[1]])
            elif not self.capture:
                receiver = receiver_of(edge)
                if receiver is not None:
                    accumulate(receiver, zeros(receiver.meta), self.create_graph)
        self.zero_edges.clear()

    def end_step(self) -> None:
        """Note that other instructions may be executed before the pass goes on."""

    def receive(self, edge: Edge, gradient: Value) -> None:
        """Add a gradient to what has reached an output of a node."""
        node, output = edge
        slots = self.pending.get(node)
        if slots is None:
            slots = self.pending[node] = [None] * len(node.metas)
        present = slots[output]
        slots[output] = gradient if present is None else dispatch(ADD, (present, gradient, 1))

    def deliver(self, node: Node, grads: list[Value | None]) -> None:
        """Hand complete gradients to those that asked for them: captures, and results with ``retain_grad``."""
        if node in self.delivered:
            return
        for output, gradient in enumerate(grads):
            edge = (node, output)
            if edge in self.capture:
                self.captured[edge] = gradient
            holder = node.retained.get(output) if node.retained else None
            result = holder() if holder else None
            if result is not None and gradient is not None and not self.capture:
                accumulate(result, gradient, self.create_graph)


def _counted(seen: set[Node], stack: list[Node]) -> dict[Node, int]:
    """Count the gradients that each node waits for which those on the stack lead to; that are all that were seen."""
    counts: dict[Node, int] = {}
    while stack:
        for edge in stack.pop().edges:
            if edge is None:
                continue
            following = edge[0]
            if following in counts:
                counts[following] += 1
                continue
            counts[following] = 1
            if following.edges and following not in seen:
                stack.append(following)
    return counts


count_gradients = _counted
"""Counts what nodes wait for: in Python, or in C where that is compiled."""


def count_dependencies(
    starts: Sequence[Node], capture: frozenset[Edge], creates_graph: bool
) -> tuple[set[Node] | None, dict[Node, int]]:  # fmt: skip
    """Count the gradients that each reachable node waits for; with captures, also find the nodes that lead to one.

    ``creates_graph`` says whether the pass is recorded itself. Raises LimitExceededError for too large a graph.
    """
    seen = set(starts)
    counts = count_gradients(seen, list(seen))
    most = most_nodes / CREATED_GRAPH_COST if creates_graph else most_nodes
    if len(counts) > most:
        raise LimitExceededError(
            f"backward: the graph has {len(counts)} nodes, and this server allows {most:g} "
            f"{'with create_graph=True ' if creates_graph else ''}(TELEGRAD_GRAPH_NODES); "
            "detach() tensors whose history is not needed, and leave out create_graph=True where it is not"
        )
    return (_leading_to(capture, seen.union(counts)) if capture else None), counts


def _leading_to(capture: frozenset[Edge], reachable: set[Node]) -> set[Node]:
    targets, leading = {edge[0] for edge in capture}, set()
    for node in sorted(reachable, key=_by_sequence):
        for edge in node.edges:
            if edge is not None and (edge[0] in targets or edge[0] in leading):
                leading.add(node)
                break
    return leading


def initial_gradient(root: Value, gradient: Value | None) -> Value:
    """Return the gradient to start from: what the caller gave, or a one where the root is a scalar."""
    if gradient is not None:
        if gradient.meta.shape != root.meta.shape:
            raise ShapeError(f"backward: gradient {gradient.meta} does not have the shape of {root.meta}")
        return gradient
    if root.meta.numel != 1:
        raise AutogradError(
            f"backward: gradient can be implicitly created only for scalar outputs, not for {root.meta}"
        )
    meta = root.meta
    one: Value = dispatch(ONES, (meta.shape, meta.dtype, meta.device))
    return one
