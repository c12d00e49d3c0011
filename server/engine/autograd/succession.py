"""Leaves whose elements are replaced: the backward graph goes on to know them, as it does where memory is written to.

What graphs have saved of a leaf is the leaf itself. So it gets the new elements where these lie as its own did. Where
they do not, the value that holds them shares what autograd knows of the leaf, and graphs keep what they have saved.
"""

from __future__ import annotations

from server.engine import keys
from server.engine.value import AutogradMeta, Value
from telegrad_protocol.errors import AutogradError

from . import changes

_ELEMENTS = ("storage", "meta", "backend", "_array", "base", "seen", "origin")
"""What a value has beside its history; those that are no views lack the last two."""


def succeed(value: Value, former: Value) -> tuple[Value, Value]:
    """Return the leaf that ``former`` was with the elements of ``value``, and what has the elements of ``former``.

    Raises AutogradError where one of them was computed with gradients.
    """
    history = former.autograd
    _require_leaves(value, former)
    if history is None or value is former:
        return value, former
    changes.note()
    for leaf in (_accumulated_into(history), former):
        if leaf is not None and leaf.autograd is history and _lie_alike(leaf, value):
            _exchange(leaf, value)
            return leaf, value
    share(value, former)
    return value, former


def share(value: Value, former: Value) -> None:
    """Let a value be the leaf that ``former`` is, too: what autograd knows of one it knows of the other."""
    _require_leaves(value, former)
    history = former.autograd
    if history is None:
        return
    changes.note()
    if history.accumulator is not None and not _are_of_one_kind(value, former):
        history.accumulator = None
    value.autograd = history
    value.keys |= former.keys & keys.AUTOGRAD


def _require_leaves(*values: Value) -> None:
    for value in values:
        if value.autograd is not None and value.autograd.grad_fn is not None:
            raise AutogradError(f"data: {value.meta} is no leaf, so that no leaf can take its place")


def _accumulated_into(history: AutogradMeta) -> Value | None:
    """Return the value that the graph knows as the leaf; None where no graph knows it."""
    accumulator = history.accumulator and history.accumulator()
    return accumulator.leaf if accumulator else None


def _are_of_one_kind(value: Value, former: Value) -> bool:
    return value.dtype is former.dtype and value.device is former.device


def _lie_alike(leaf: Value, value: Value) -> bool:
    ours, given = leaf.meta, value.meta
    return _are_of_one_kind(leaf, value) and ours.shape == given.shape and ours.strides == given.strides


def _exchange(leaf: Value, value: Value) -> None:
    """Let two values have each other's elements; each keeps its history."""
    for name in _ELEMENTS:
        ours, given = getattr(leaf, name, None), getattr(value, name, None)
        setattr(leaf, name, given)
        setattr(value, name, ours)
    leaf.keys, value.keys = value.keys | (leaf.keys & keys.AUTOGRAD), leaf.keys
