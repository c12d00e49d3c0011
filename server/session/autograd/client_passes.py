"""Instructions about backward passes that stop where the client computes."""

from __future__ import annotations

from server.engine import context
from server.engine.autograd.client_pass import ClientNode, ClientPass, Stop, node_at
from server.engine.autograd.forward_products import forward_products
from server.engine.autograd.gradients import accumulate, in_layout_of
from server.engine.autograd.graph import with_history
from server.engine.autograd.inplace import check_writable, edge_of, rebase
from server.engine.autograd.saved_copies import keep_saved
from server.engine.value import Value
from server.session.requests import answers
from server.session.state import Absent, SessionState
from telegrad_protocol import messages, pass_messages, queries
from telegrad_protocol.errors import AutogradError, ProtocolError, UnknownIdError

from .gradients import name_gradients, seeds


def add_node(state: SessionState, message: messages.ClientNode) -> None:
    """Make a node of the client the history of its outputs."""
    outputs = [state.optional(id) for id in message.outputs]
    node = state.stops.get(message.id)
    if isinstance(node, tuple):  # an edge
        for output in outputs:
            if output is not None:
                with_history(output, *node)
        return
    if node is None:
        inputs = [state.optional(id) for id in message.inputs]
        known = [output.meta for output in outputs if output is not None]
        if not known:
            raise ProtocolError("a client's node has no output")
        for number in message.modified:
            if not 0 <= number < len(outputs) or (target := outputs[number]) is None:
                raise ProtocolError(f"a client's node has no output number {number}")
            check_writable("mark_dirty", target)
        edges = [edge_of(value) if value is not None else None for value in inputs]
        node = ClientNode(edges, tuple([known[0] if output is None else output.meta for output in outputs]))
        node.saved = [(value.storage, value.storage.version, value.meta) for value in state.values_of(message.saved)]
        state.stops[message.id] = node
    if not isinstance(node, ClientNode) or len(node.metas) != len(outputs):
        raise ProtocolError(f"number {message.id} is no client's node of {len(outputs)} outputs")
    for number, output in enumerate(outputs):
        if output is None:
            continue
        if number in message.modified:
            rebase(output, node)
            output.autograd.output = number  # type: ignore[union-attr]
        else:
            with_history(output, node, number)


def watch(state: SessionState, message: messages.Watch) -> None:
    """Give the place in the graph that a tensor has a number."""
    value = state.value(message.tensor)
    edge = edge_of(value)
    if edge is None:
        raise AutogradError(f"register_hook: {value.meta} does not require grad")
    state.stops[message.id] = edge


def begin(state: SessionState, message: messages.BeginPass) -> None:
    """Begin a pass."""
    roots, gradients = seeds(state, message.roots, message.gradients)
    inputs = None if message.inputs is None else state.values_of(message.inputs)
    stops = [_stop(state, id) for id in message.stops]
    made = ClientPass(dict(zip(message.stops, stops, strict=True)), inputs, message.retain_graph, message.create_graph)
    made.begin(roots, gradients)
    state.passes[message.id] = made


@answers(queries.Computed)
def _computed(state: SessionState, query: queries.Computed) -> list[bool]:
    return [isinstance(state.values.get(id), Value) for id in query.ids]


@answers(queries.Version)
def _version(state: SessionState, query: queries.Version) -> int:
    return state.value(query.id).storage.version


@answers(pass_messages.KeepSaved)
def _keep_saved(state: SessionState, query: pass_messages.KeepSaved) -> None:
    keep_saved(state.value(query.id))


@answers(queries.StopsReached)
def _stops_reached(state: SessionState, query: queries.StopsReached) -> list[int]:
    return _pass(state, query.id).reached


def take(state: SessionState, message: messages.TakeGradients) -> None:
    """Give the gradients that have reached a stop the client's ids."""
    stop = _stop(state, message.stop)
    if isinstance(stop, ClientNode):
        stop.check_saved()
    taken = _pass(state, message.id).take(stop)
    if len(taken) != len(message.outs):
        raise ProtocolError(f"{len(message.outs)} ids for {len(taken)} gradients")
    for id, gradient in zip(message.outs, taken, strict=True):
        if id is not None:
            state.values[id] = Absent("no gradient reached it") if gradient is None else gradient


def give(state: SessionState, message: messages.GiveGradients) -> None:
    """Go on behind a stop."""
    gradients = None if message.gradients is None else [state.optional(id) for id in message.gradients]
    _pass(state, message.id).give(_stop(state, message.stop), gradients)
    _name(state, message.leaves)


def end(state: SessionState, message: messages.EndPass) -> None:
    """End a pass, and give the gradients that it has computed the client's ids."""
    ended = _pass(state, message.id)
    results = ended.end()
    del state.passes[message.id]
    if message.adds:
        for leaf, gradient in zip(ended.inputs or (), results, strict=True):
            if gradient is not None:
                with context.grad_mode(ended.create_graph):
                    accumulate(leaf, gradient, ended.create_graph)
    else:
        for id, source, result in zip(message.outs, ended.inputs or (), results, strict=True):
            if result is not None and not ended.create_graph:
                result = in_layout_of(source.meta, result)
            if id is not None:
                state.values[id] = result if result is not None else Absent("no gradient reached it")
    _name(state, message.leaves)


def forward_gradient(state: SessionState, message: messages.ForwardGradient) -> None:
    """Make the products of a Jacobian with tangents."""
    if not len(message.roots) == len(message.outs) or not len(message.sources) == len(message.tangents):
        raise ProtocolError("forward gradients: the numbers of roots and results, or of sources and tangents, differ")
    roots = state.values_of(message.roots)
    stops = [_stop(state, id) for id in message.sources]
    sources = [stop if isinstance(stop, tuple) else (node_at(stop), 0) for stop in stops]
    results = forward_products(roots, sources, state.values_of(message.tangents), message.create_graph)
    for id, root, result in zip(message.outs, roots, results, strict=True):
        state.values[id] = result if message.create_graph else in_layout_of(root.meta, result)


def _name(state: SessionState, named: list[tuple[int, int]] | tuple[tuple[int, int], ...]) -> None:
    leaves = state.values_of([leaf for leaf, _ in named])
    for id in name_gradients(state, leaves, named):
        state.values.setdefault(id, Absent("no gradient reached it"))


def _stop(state: SessionState, id: int) -> Stop:
    stop = state.stops.get(id)
    if stop is None:
        raise UnknownIdError(f"the session has no client's node and no watched place number {id}")
    return stop


def _pass(state: SessionState, id: int) -> ClientPass:
    known = state.passes.get(id)
    if known is None:
        raise UnknownIdError(f"the session has no backward pass number {id}")
    return known
