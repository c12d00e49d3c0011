"""What the session answers about nodes of the backward graph: where they are, and what they have saved."""

from __future__ import annotations

from typing import Any

from server.engine.autograd.client_pass import Hooked
from server.engine.autograd.graph import Edge, Node
from server.engine.autograd.inplace import edge_of, requires_grad
from server.engine.autograd.shown_nodes import follow, read_saved, saved_names, shown_edges, shown_outputs
from server.session.requests import answers
from server.session.state import SessionState
from telegrad_protocol import pass_messages
from telegrad_protocol.errors import AutogradError, UnknownIdError
from telegrad_protocol.meta import Meta

from .derivations import wire_meta


@answers(pass_messages.FindNode)
def _find_node(state: SessionState, query: pass_messages.FindNode) -> list[Any]:
    node = follow(_start(state, query.source, query.edge), query.steps, query.name)
    state.stops[query.before] = Hooked(node, False)
    places = shown_edges(node)
    state.stops[query.after] = Hooked(node, True, places)
    edges = [node.edges[place] for place in places]
    outputs = [wire_meta(meta) if number in shown_outputs(node) else None for number, meta in enumerate(node.metas)]
    return [outputs, [edge and wire_meta(_meta_at(edge)) for edge in edges], saved_names(node)]


@answers(pass_messages.SavedTensor)
def _saved_tensor(state: SessionState, query: pass_messages.SavedTensor) -> list[Any] | None:
    stop = state.stops.get(query.stop)
    if not isinstance(stop, Hooked):
        raise UnknownIdError(f"the session has no node number {query.stop}")
    value = read_saved(stop.node, query.name, query.place)
    if value is None:
        return None
    is_leaf = value.autograd is not None and value.autograd.grad_fn is None
    id = next((id for id, known in state.values.items() if known is value), 0) if is_leaf else 0
    state.values[query.out] = value
    return [wire_meta(value.meta), requires_grad(value), id]


def _start(state: SessionState, source: int, edge: int | None) -> Node:
    """Return the node that a search begins at."""
    known = edge_of(state.value(source)) if edge is None else None
    if edge is not None:
        node = state.stops.get(source)
        if not isinstance(node, Node) or not 0 <= edge < len(node.edges):
            raise UnknownIdError(f"the session has no client's node number {source} with an edge {edge}")
        known = node.edges[edge]
    if known is None:
        raise AutogradError("grad_fn: the tensor does not require grad")
    return known[0]


def _meta_at(edge: Edge) -> Meta:
    return edge[0].metas[edge[1]]
