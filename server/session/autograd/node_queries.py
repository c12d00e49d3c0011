"""What the session answers about nodes of the backward graph: where they are, and what they have saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.engine.autograd.client_pass import Hooked
from server.engine.autograd.graph import Edge, Node
from server.engine.autograd.inplace import edge_of, requires_grad
from server.engine.autograd.packed import Packed, give, pack, pack_one
from server.engine.autograd.shown_nodes import (
    follow,
    place_of,
    read_saved,
    saved_names,
    shown_edges,
    shown_outputs,
)
from server.session.requests import answers
from server.session.state import SessionState
from telegrad_protocol import pass_messages
from telegrad_protocol.errors import AutogradError, UnknownIdError
from telegrad_protocol.meta import Meta

from .derivations import wire_meta


@answers(pass_messages.FindNode)
def _find_node(state: SessionState, query: pass_messages.FindNode) -> list[Any]:
    node = follow(_start(state, query.source, query.edge), query.steps, query.name)
    _make_stops(state, node, query.before, query.after)
    return _shown(node)


@answers(pass_messages.PackSaved)
def _pack_saved(state: SessionState, query: pass_messages.PackSaved) -> list[Any] | None:
    node = _start(state, query.source, None)
    taken = pack(node, query.name, query.has_one_result, len(query.outs))
    if not taken:
        return None
    shown = _shown(node)
    if query.before not in state.stops:
        _make_stops(state, node, query.before, query.after)
    return [*shown, _keep(state, query.before, taken, query.outs)]


@answers(pass_messages.PackOne)
def _pack_one(state: SessionState, query: pass_messages.PackOne) -> list[Any] | None:
    taken = pack_one(_hooked(state, query.stop).node, query.name, query.place)
    return None if taken is None else _keep(state, query.stop, [taken], [query.out])[0]


@answers(pass_messages.GiveSaved)
def _give_saved(state: SessionState, query: pass_messages.GiveSaved) -> None:
    give(_hooked(state, query.stop).packed, state.values_of(query.ids))


@answers(pass_messages.SavedTensor)
def _saved_tensor(state: SessionState, query: pass_messages.SavedTensor) -> list[Any] | None:
    node = _hooked(state, query.stop).node
    value = read_saved(node, query.name, query.place)
    if value is None:
        return None
    is_leaf = value.autograd is not None and value.autograd.grad_fn is None
    id = next((id for id, known in state.values.items() if known is value), 0) if is_leaf else 0
    state.values[query.out] = value
    return [wire_meta(value.meta), requires_grad(value), id, place_of(node, value)]


def _make_stops(state: SessionState, node: Node, before: int, after: int) -> None:
    state.stops[before] = Hooked(node, False)
    state.stops[after] = Hooked(node, True, shown_edges(node))


def _shown(node: Node) -> list[Any]:
    edges = [node.edges[place] for place in shown_edges(node)]
    outputs = [wire_meta(meta) if number in shown_outputs(node) else None for number, meta in enumerate(node.metas)]
    return [outputs, [edge and wire_meta(_meta_at(edge)) for edge in edges], saved_names(node)]


def _keep(state: SessionState, stop: int, taken: list[Packed], outs: Sequence[int]) -> list[Any]:
    """Name tensors that have left their nodes, and note at the stop that the program keeps them."""
    described = []
    for item, id in zip(taken, outs, strict=False):
        state.values[id] = item.value
        _hooked(state, stop).packed.append(item.stand_in)
        described.append([wire_meta(item.value.meta), item.history, item.name, item.place])
    return described


def _hooked(state: SessionState, id: int) -> Hooked:
    stop = state.stops.get(id)
    if not isinstance(stop, Hooked):
        raise UnknownIdError(f"the session has no node number {id}")
    return stop


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
