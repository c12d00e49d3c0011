"""What remains of a session when its client leaves it, and what the next client is told.

Names keep values; everything else that the client numbered is freed. Generators, memory pools and settings of the
allocator go on; modes are the new client's to set. Knows no connection.
"""

from __future__ import annotations

import msgspec

from server.engine.autograd import changes
from server.engine.autograd.inplace import requires_grad, set_requires_grad
from server.engine.value import Value
from telegrad_protocol import messages, queries
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.messages import Kept, KeptTensor

from .modes import reset_modes
from .replies import PendingAnswer
from .requests import answers
from .state import SessionState

MAX_NAMES = 1 << 12
"""A session may keep this many names."""


@answers(queries.Keep)
def _keep(state: SessionState, query: queries.Keep) -> None:
    if len(state.kept) >= MAX_NAMES and query.name not in state.kept:
        raise ArgumentError(f"kept: a session keeps at most {MAX_NAMES} names")
    state.kept[query.name] = (query.structure, state.values_of(query.ids))


@answers(queries.StopKeeping)
def _stop_keeping(state: SessionState, query: queries.StopKeeping) -> None:
    state.kept.pop(query.name, None)


def detach(state: SessionState, message: messages.Detach | messages.Attach) -> None:
    """Free all that the client named, but what is kept, forget its failure and its interrupts, and reset its modes."""
    kept = {id(value): value for _, values in state.kept.values() for value in values}
    settled = {number: _without_history(value) for number, value in kept.items()}
    for name, (structure, values) in state.kept.items():
        state.kept[name] = (structure, [settled[id(value)] for value in values])
    state.upload = None
    state.drop_graphs()
    for holder in (
        state.values,
        state.events,
        state.handles,
        state.sites,
        state.programs,
        state.context.programs,
        state.passes,
        state.stops,
    ):
        holder.clear()
    reset_modes(state)
    state.forget_failures()
    for backend in state.backends.values():
        with backend.exclusive_allocator() as allocator:
            allocator.end_allocate_to_pool(state.number)


def attach(state: SessionState, message: messages.Attach) -> None:
    """Free what the last client named, and tell the new one what is kept once all devices have done their work."""
    detach(state, message)
    kept = msgspec.to_builtins(_list(state))
    marks = [mark for backend in state.backends.values() for mark in backend.marks(state.context)]
    state.replies.add_pending(PendingAnswer(messages.ATTACHED, marks, lambda: kept))


def _without_history(value: Value) -> Value:
    """Return a value as the next client can know it: a leaf, and a view of nothing, with its gradient."""
    history = value.autograd
    if value.base is None and (history is None or history.grad_fn is None):
        settled = value
    else:
        settled = value.alias()
        set_requires_grad(settled, requires_grad(value))
    grad = None if history is None else history.grad
    if grad is not None and settled.autograd is not None:
        changes.note()
        settled.autograd.grad = _without_history(grad)
    return settled


def _list(state: SessionState) -> Kept:
    """Number the kept tensors and their gradients from 1, and describe them."""
    tensors: list[KeptTensor] = []
    places: dict[int, int] = {}

    def place(value: Value) -> int:
        if id(value) not in places:
            history = value.autograd
            grad = None if history is None or history.grad is None else place(history.grad)
            places[id(value)] = len(tensors)
            tensors.append(_describe(len(tensors) + 1, value, grad))
            state.values[len(tensors)] = value
        return places[id(value)]

    return Kept(tensors, {name: (text, [place(v) for v in values]) for name, (text, values) in state.kept.items()})


def _describe(id: int, value: Value, grad: int | None) -> KeptTensor:
    meta = value.meta
    return KeptTensor(
        id, meta.dtype.code, meta.shape, meta.strides, meta.offset, meta.device.name, requires_grad(value), grad
    )
