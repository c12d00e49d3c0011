"""Products of a Jacobian with tangents, by a derivative of the derivative: no operation has a forward formula.

The gradients of the roots are linear in the gradients that a pass starts with, and their derivative by these, applied
to the tangents, is the product.
"""

from __future__ import annotations

from collections.abc import Sequence

from server.engine import context
from server.engine.value import Value
from telegrad_protocol.errors import AutogradError, ShapeError

from .graph import Edge, make_leaf
from .graph_task import GraphTask
from .inplace import edge_of
from .node import zeros
from .stream_graph_task import StreamGraphTask


def forward_products(
    roots: Sequence[Value], sources: Sequence[Edge], tangents: Sequence[Value], create_graph: bool
) -> list[Value]:
    """Return for each root the product of its Jacobian by ``sources`` with ``tangents``; the graph is retained."""
    for (node, output), tangent in zip(sources, tangents, strict=True):
        if node.metas[output].shape != tangent.meta.shape:
            raise ShapeError(f"a tangent {tangent.meta} does not have the shape of {node.metas[output]}")
    starts = [zeros(root.meta) for root in roots]
    for start in starts:
        make_leaf(start, True)
    recorded = [(root, start) for root, start in zip(roots, starts, strict=True) if edge_of(root) is not None]
    linear = _gradients([root for root, _ in recorded], [start for _, start in recorded], list(sources), True)
    pairs = [
        (gradient, tangent)
        for gradient, tangent in zip(linear, tangents, strict=True)
        if gradient is not None and edge_of(gradient) is not None
    ]
    if not pairs:
        return [zeros(root.meta) for root in roots]
    products = _gradients(
        [gradient for gradient, _ in pairs], [tangent for _, tangent in pairs], [_edge(start) for start in starts],
        create_graph,
    )  # fmt: skip
    return [zeros(root.meta) if result is None else result for root, result in zip(roots, products, strict=True)]


def _gradients(
    roots: Sequence[Value], gradients: Sequence[Value], capture: list[Edge], create_graph: bool
) -> list[Value | None]:
    task = StreamGraphTask if context.current.own_streams.left_default else GraphTask
    made = task(True, create_graph, capture)
    made.execute(roots, gradients)
    return [made.captured.get(edge) for edge in capture]


def _edge(value: Value) -> Edge:
    edge = edge_of(value)
    if edge is None:
        raise AutogradError(f"{value.meta} does not require grad")
    return edge
