"""Instructions about gradients: the client's numbers for roots, leaves and results, handed to the autograd engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.engine import backward as backward_pass
from server.engine.autograd import gradients as leaf_gradients
from server.engine.autograd import inplace
from server.engine.value import Value
from telegrad_protocol import messages
from telegrad_protocol.errors import ProtocolError

from .failures import Absent

if TYPE_CHECKING:
    from .session import Session

_UNREACHED = "no gradient reached it"


def backward(session: Session, message: messages.Backward) -> None:
    """Accumulate into leaves, and give their gradients the client's numbers, also where it fails half-way."""
    roots, gradients = _seeds(session, message)
    leaves = session.values_of([leaf for leaf, _ in message.leaves])
    try:
        backward_pass.backward(
            roots, gradients, retain_graph=message.retain_graph, create_graph=message.create_graph,
            inputs=leaves if message.restricted else None,
        )  # fmt: skip
    finally:
        without = _name(session, leaves, message.leaves)
    for id in without:
        session.values.setdefault(id, Absent(_UNREACHED))


def _seeds(session: Session, message: messages.Backward | messages.Gradient) -> tuple[list[Value], list[Value | None]]:
    if len(message.roots) != len(message.gradients):
        raise ProtocolError(f"{len(message.gradients)} gradients for {len(message.roots)} roots")
    return [session.value(id) for id in message.roots], [session.optional(id) for id in message.gradients]


def _name(session: Session, leaves: list[Value], named: list[tuple[int, int]]) -> list[int]:
    """Give the leaves' gradients their numbers; returns the numbers of those that are not there."""
    values, without = session.values, []
    for leaf, (_, id) in zip(leaves, named):
        meta = leaf.autograd
        if meta is not None and meta.grad is not None:
            values[id] = meta.grad
        else:
            without.append(id)
    return without


def grad(session: Session, message: messages.Gradient) -> None:
    """Make gradients with respect to inputs; those that are not wanted have no number."""
    if len(message.inputs) != len(message.outs):
        raise ProtocolError(f"{len(message.outs)} ids for the gradients of {len(message.inputs)} inputs")
    roots, gradients = _seeds(session, message)
    inputs = [session.value(id) for id in message.inputs]
    found = backward_pass.grad(
        roots, gradients, inputs, retain_graph=message.retain_graph,
        create_graph=message.create_graph, allow_unused=message.allow_unused,
    )  # fmt: skip
    for id, source, result in zip(message.outs, inputs, found, strict=True):
        if result is not None and not message.create_graph:
            result = leaf_gradients.in_layout_of(source, result)  # which the client counts on
        if id is not None:
            session.values[id] = result if result is not None else Absent(_UNREACHED)


def set_requires_grad(session: Session, message: messages.SetRequiresGrad) -> None:
    """``tensor.requires_grad_(value)``"""
    inplace.set_requires_grad(session.value(message.id), message.value)


def retain_grad(session: Session, message: messages.RetainGrad) -> None:
    """``tensor.retain_grad()``"""
    leaf_gradients.retain_grad(session.value(message.id))


def set_grad(session: Session, message: messages.SetGrad) -> None:
    """``tensor.grad = other``"""
    leaf_gradients.set_grad(session.value(message.id), session.optional(message.grad))


def drop_grads(session: Session, message: messages.DropGrads) -> None:
    """``tensor.grad = None`` of all that are there; raises what is the matter with one that is not."""
    values, missing = session.values, []
    for id in message.ids:
        value = values.get(id)
        if value.__class__ is not Value:
            missing.append(id)
        elif value.autograd is not None:
            value.autograd.grad = None
    session.values_of(missing)
