"""Instructions about gradients: ids become values, and the autograd engine does the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.engine import backward as backward_pass
from server.engine.autograd import changes, inplace
from server.engine.autograd import gradients as leaf_gradients
from server.engine.autograd.graph import next_sequence
from server.engine.value import Value
from server.session.state import Absent, SessionState
from telegrad_protocol import messages
from telegrad_protocol.errors import ProtocolError

_UNREACHED = "no gradient reached it"
_ONLY_VALUES = frozenset((Value,))


def backward(state: SessionState, message: messages.Backward) -> None:
    """Accumulate into leaves, and give their gradients the client's ids, also where the pass fails half-way.

    No index is checked meanwhile: all that a pass meets were checked by the operations that it follows from.
    """
    roots, gradients = seeds(state, message.roots, message.gradients)
    if message.roots:
        state.beat(message.roots[0])
    values = state.values  # lookups of what exists are inlined: every training step comes here
    leaves: list[Any] = [values.get(leaf) for leaf, _ in message.leaves]
    if not _ONLY_VALUES.issuperset(map(type, leaves)):
        leaves = state.values_of([leaf for leaf, _ in message.leaves])
    checks = state.context.checks
    checks.covered = True
    try:
        backward_pass.backward(
            roots, gradients, retain_graph=message.retain_graph, create_graph=message.create_graph,
            inputs=leaves if message.restricted else None,
        )  # fmt: skip
    finally:
        checks.covered = False
        without = name_gradients(state, leaves, message.leaves)
    for id in without:
        state.values.setdefault(id, Absent(_UNREACHED))


def seeds(
    state: SessionState, roots: Sequence[int], gradients: Sequence[int | None]
) -> tuple[list[Value], list[Value | None]]:
    """Return the values that a backward pass starts from and their gradients; None stands for that of a scalar."""
    if len(roots) != len(gradients):
        raise ProtocolError(f"{len(gradients)} gradients for {len(roots)} roots")
    values = state.values
    starts: list[Any] = [values.get(id) for id in roots]
    if not _ONLY_VALUES.issuperset(map(type, starts)):
        starts = [state.value(id) for id in roots]
    return starts, [None if id is None else state.value(id) for id in gradients]


def name_gradients(state: SessionState, leaves: list[Value], named: Sequence[tuple[int, int]]) -> list[int]:
    """Give the leaves' gradients their ids; return the ids of gradients that do not exist."""
    values, without = state.values, []
    for leaf, (_, id) in zip(leaves, named):
        meta = leaf.autograd
        if meta is not None and meta.grad is not None:
            values[id] = meta.grad
        else:
            without.append(id)
    return without


def grad(state: SessionState, message: messages.Gradient) -> None:
    """Make gradients with respect to inputs; an id of None drops one that is not wanted."""
    if len(message.inputs) != len(message.outs):
        raise ProtocolError(f"{len(message.outs)} ids for the gradients of {len(message.inputs)} inputs")
    roots, gradients = seeds(state, message.roots, message.gradients)
    inputs = state.values_of(message.inputs)
    checks = state.context.checks
    checks.covered = True
    try:
        results = backward_pass.grad(
            roots, gradients, inputs, retain_graph=message.retain_graph,
            create_graph=message.create_graph, allow_unused=message.allow_unused,
        )  # fmt: skip
        _bind(state, message, inputs, results)
    finally:
        checks.covered = False


def _bind(
    state: SessionState, message: messages.Gradient, inputs: list[Value], results: Sequence[Value | None]
) -> None:
    for id, source, result in zip(message.outs, inputs, results, strict=True):
        if result is not None and not message.create_graph:
            result = leaf_gradients.in_layout_of(source.meta, result)  # the client assumes its layout
        if id is not None:
            state.values[id] = result if result is not None else Absent(_UNREACHED)


def set_requires_grad(state: SessionState, message: messages.SetRequiresGrad) -> None:
    """Do ``tensor.requires_grad_(value)``."""
    inplace.set_requires_grad(state.value(message.id), message.value)


def retain_grad(state: SessionState, message: messages.RetainGrad) -> None:
    """Do ``tensor.retain_grad()``."""
    leaf_gradients.retain_grad(state.value(message.id))


def set_grad(state: SessionState, message: messages.SetGrad) -> None:
    """Do ``tensor.grad = other``."""
    leaf_gradients.set_grad(state.value(message.id), state.optional(message.grad))


def drop_grads(state: SessionState, message: messages.DropGrads) -> None:
    """Do ``tensor.grad = None`` for all tensors that exist; then raise what is wrong with one that does not."""
    values, missing, dropped = state.values, [], state.context.dropped
    is_new, notes = dropped.begin(message.ids, values)
    if is_new:
        state.begin_training()
    for id in message.ids:
        value = values.get(id)
        if value.__class__ is not Value:
            missing.append(id)
        elif value.autograd is not None:
            changes.note()
            if notes and value.autograd.grad is not None:
                dropped.note(value.autograd.grad)
            value.autograd.grad = None
    dropped.last = next_sequence()
    state.drawn += 1
    state.values_of(missing)
