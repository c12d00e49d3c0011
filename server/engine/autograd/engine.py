"""Running the graph backwards: dependency counts, a ready queue by sequence number, accumulation into leaves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat
from operator import attrgetter

from server.engine import context
from server.engine import functional as F
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.value import AutogradMeta, Value
from telegrad_protocol.errors import AutogradError, ShapeError
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta

from .graph import AccumulateGrad, Edge, Node
from .inplace import edge_of

Pending = dict[Node, list[Value | None]]
_NOTHING = repeat(None)
_by_sequence = attrgetter("sequence")


def backward(
    roots: Sequence[Value],
    gradients: Sequence[Value | None],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    inputs: Sequence[Value] | None = None,
) -> None:
    """Accumulate gradients into the ``.grad`` of leaves: all that the graph reaches, or ``inputs`` alone."""
    if inputs is None:
        _new_run(retain_graph, create_graph, ()).execute(roots, gradients)
        return
    found = grad(roots, gradients, inputs, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True)
    with context.grad_mode(create_graph):
        for leaf, gradient in zip(inputs, found, strict=True):
            if gradient is not None:
                accumulate(leaf, gradient, create_graph)


def grad(
    roots: Sequence[Value],
    gradients: Sequence[Value | None],
    inputs: Sequence[Value],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> list[Value | None]:
    """Gradients of ``roots`` with respect to ``inputs``; nothing is accumulated."""
    edges = [_edge_for(value) for value in inputs]
    run = _new_run(retain_graph, create_graph, edges)
    run.execute(roots, gradients)
    found = [run.captured.get(edge) for edge in edges]
    if not allow_unused and any(f is None for f in found):
        raise AutogradError(
            "grad: one of the inputs is not part of the graph; pass allow_unused=True to get None for it"
        )
    return found


def _edge_for(value: Value) -> Edge:
    edge = edge_of(value)
    if edge is None:
        raise AutogradError(f"grad: {value.meta} does not require grad")
    return edge


def _new_run(retain_graph: bool, create_graph: bool, capture: Sequence[Edge]) -> _Run:
    if not context.current.own_streams.are_many:
        from server.engine.replay.backward_replay import ReplayingRun

        return (_Run if create_graph or capture else ReplayingRun)(retain_graph, create_graph, capture)
    from .streams import StreamedRun

    return StreamedRun(retain_graph, create_graph, capture)


class _Run:
    """One pass over the graph."""

    __slots__ = ("capture", "captured", "create_graph", "pending", "retain_graph")

    receives = False
    """Whether each gradient must go through ``_receive``, also where nothing is to be added."""

    def __init__(self, retain_graph: bool, create_graph: bool, capture: Sequence[Edge]) -> None:
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.capture = frozenset(capture)
        self.captured: dict[Edge, Value | None] = {}
        self.pending: Pending = {}

    def execute(self, roots: Sequence[Value], gradients: Sequence[Value | None]) -> None:
        with context.grad_mode(self.create_graph):
            starts = []
            for root, gradient in zip(roots, gradients, strict=True):
                edge = edge_of(root)
                if edge is None:
                    raise AutogradError(
                        f"backward: {root.meta} does not require grad and was not computed from one that does"
                    )
                self._receive(edge, seed(root, gradient))
                starts.append(edge[0])
            self._drain(starts)

    def _drain(self, starts: list[Node]) -> None:
        wanted, counts = _survey(starts, self.capture)
        ready = [(-node.sequence, node) for node in set(starts) if node not in counts]
        heapify(ready)
        pending, receives = self.pending, self.receives
        leaves: list[Node] = []
        while ready:
            node = heappop(ready)[1]
            results = self._visit(node, wanted)
            for edge, gradient in zip(node.edges, _NOTHING if results is None else results):
                if edge is None:
                    continue
                following = edge[0]
                if gradient is not None:
                    if following in pending or receives or len(following.metas) != 1:
                        self._receive(edge, gradient)
                    else:
                        pending[following] = [gradient]
                left = counts[following] - 1
                if left:
                    counts[following] = left
                elif following.__class__ is AccumulateGrad:
                    leaves.append(following)
                else:
                    heappush(ready, (-following.sequence, following))
            results = gradient = None  # a gradient that only the graph holds may be stolen
            if leaves:
                self._finish(leaves, wanted)

    def _finish(self, leaves: list[Node], wanted: set[Node] | None) -> None:
        """Accumulate, in the order of the queue: leaves come before all other nodes."""
        if len(leaves) > 1:
            leaves.sort(key=_by_sequence, reverse=True)
        for leaf in leaves:
            self._visit(leaf, wanted)
        leaves.clear()

    def _visit(self, node: Node, wanted: set[Node] | None) -> Sequence[Value | None] | None:
        """Gradients for the node's edges; None where no gradient reached it or none is to pass."""
        grads = self.pending.pop(node, None)
        if grads is None:
            return None
        if node.retained or self.capture:
            self._observe(node, grads)
        if wanted is not None and node not in wanted:
            return None
        if node.__class__ is AccumulateGrad:
            if wanted is None and grads[0] is not None:
                # a local variable would count as one more that holds the gradient, and nothing be stolen
                accumulate(node.leaf, grads.pop(), self.create_graph)  # type: ignore[arg-type]
            return None
        results = node.apply(grads)
        if not self.retain_graph:
            node.release()
        return results

    def _receive(self, edge: Edge, gradient: Value) -> None:
        node, output = edge
        slots = self.pending.get(node)
        if slots is None:
            slots = self.pending[node] = [None] * len(node.metas)
        present = slots[output]
        slots[output] = gradient if present is None else F.add(present, gradient)

    def _observe(self, node: Node, grads: list[Value | None]) -> None:
        """Hand complete gradients to those that asked for them: captures, and results with ``retain_grad``."""
        for output, gradient in enumerate(grads):
            edge = (node, output)
            if edge in self.capture:
                self.captured[edge] = gradient
            holder = node.retained.get(output) if node.retained else None
            result = holder() if holder else None
            if result is not None and gradient is not None and not self.capture:
                accumulate(result, gradient, self.create_graph)


def _survey(starts: Sequence[Node], capture: frozenset[Edge]) -> tuple[set[Node] | None, dict[Node, int]]:
    """Count how many gradients each reachable node waits for; with captures, also which nodes lead to one."""
    counts: dict[Node, int] = {}
    seen = set(starts)
    stack = list(seen)
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
    return (_leading_to(capture, seen.union(counts)) if capture else None), counts


def _leading_to(capture: frozenset[Edge], reachable: set[Node]) -> set[Node]:
    targets = {edge[0] for edge in capture}
    leading: set[Node] = set()
    for node in sorted(reachable, key=_by_sequence):
        if any(e is not None and (e[0] in targets or e[0] in leading) for e in node.edges):
            leading.add(node)
    return leading


def seed(root: Value, gradient: Value | None) -> Value:
    """The gradient to start from: one for a scalar, else what the caller gave."""
    if gradient is not None:
        if gradient.meta.shape != root.meta.shape:
            raise ShapeError(f"backward: gradient {gradient.meta} does not have the shape of {root.meta}")
        return gradient
    if root.meta.numel != 1:
        raise AutogradError(
            f"backward: gradient can be implicitly created only for scalar outputs, not for {root.meta}"
        )
    meta = root.meta
    one: Value = dispatch(_ONES, (meta.shape, meta.dtype, meta.device))
    return one


_ONES = OPERATORS["ones"]


def accumulate(leaf: Value, gradient: Value, create_graph: bool) -> None:
    """Add ``gradient`` to ``leaf.grad``, in place where no graph of it is wanted."""
    meta = leaf.autograd
    assert meta is not None
    if meta.grad is None:
        meta.grad = gradient if create_graph else _own(leaf.meta, gradient)
    elif create_graph:
        meta.grad = F.add(meta.grad, gradient)
    else:
        F.add_(meta.grad, gradient)


_ALONE = 2
"""References to a storage that belongs to one value: the value's own, and the argument of ``getrefcount``."""


def _own(leaf: Meta, gradient: Value) -> Value:
    """A gradient that shares memory with nothing, in the leaf's layout; stolen where nobody else holds it."""
    is_usual = gradient.meta is leaf and leaf.is_contiguous and leaf.offset == 0
    is_in_layout = is_usual or _is_in_layout(gradient.meta, leaf)
    if is_in_layout and sys.getrefcount(gradient) <= _HELD_BY_ENGINE and _owns_memory(gradient):
        return gradient if gradient.base is None else gradient.alias()
    moved: Value = F._in_layout(gradient.alias(), _layout_of(leaf))
    return moved


def _layout_of(leaf: Meta) -> Size:
    """The strides of a leaf's gradient."""
    return leaf.strides if leaf.is_dense else Meta.of(leaf.shape, leaf.dtype).strides


def _is_in_layout(gradient: Meta, leaf: Meta) -> bool:
    return gradient.offset == 0 and gradient.strides == _layout_of(leaf)


def _owns_memory(value: Value) -> bool:
    """Whether nobody else sees the value's memory; a view may be the last that holds its root."""
    if value.base is None:
        return sys.getrefcount(value.storage) <= _ALONE
    return sys.getrefcount(value.base) <= _ALONE and sys.getrefcount(value.storage) <= _ALONE + 1


def in_layout_of(source: Value, gradient: Value) -> Value:
    """A gradient in the layout that ``accumulate`` would give it; itself where it has that."""
    if _is_in_layout(gradient.meta, source.meta):
        return gradient
    with context.grad_mode(False):
        moved: Value = F._in_layout(gradient, _layout_of(source.meta))
    return moved


_HELD_BY_ENGINE = 3
"""References to a gradient on its way through ``_visit``, ``accumulate`` and ``_own``, and nowhere else."""


def retain_grad(value: Value) -> None:
    """Keep the gradient of a result in its ``.grad``, as a leaf does."""
    edge = edge_of(value)
    if edge is None:
        raise AutogradError(f"retain_grad: {value.meta} does not require grad")
    if isinstance(edge[0], AccumulateGrad):
        return
    edge[0].retain(edge[1], value)


def set_grad(value: Value, gradient: Value | None) -> None:
    """``value.grad = gradient``; it must be a tensor of the same shape, dtype and device."""
    if value.autograd is None:
        value.autograd = AutogradMeta()
    if gradient is not None and (gradient.meta.shape, gradient.dtype, gradient.device) != (
        value.meta.shape, value.dtype, value.device,
    ):  # fmt: skip
        raise ShapeError(f"grad: {gradient.meta} cannot be the gradient of {value.meta}")
    value.autograd.grad = gradient
