"""``torch.cond`` and ``torch.while_loop``: the program's Python decides, so a tensor that decides is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._functions.creation import where
from telegrad._tensor.tensor import Tensor
from telegrad.utils._pytree import tree_flatten, tree_unflatten
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from . import exporting


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """Return ``true_fn(*operands)`` or ``false_fn(*operands)``, as the predicate says: a bool, or a tensor of one.

    Only the one that is chosen is called. A tensor is read for it, which waits for the server and is a graph break in a
    compiled function; ``torch.where`` waits for nothing. In a module that is exported, where a tensor decides when the
    program runs, both are computed, and what they return is selected. Raises ArgumentError for a predicate of several
    elements, and there for functions that return what cannot be selected of: other shapes, types or structures.
    """
    if not callable(true_fn) or not callable(false_fn):
        raise ArgumentTypeError("cond: expected two functions")
    if not isinstance(operands, (tuple, list)):
        raise ArgumentTypeError(f"cond: expected a tuple or list of operands, not {type(operands).__name__}")
    if exporting.state.is_active and isinstance(pred, Tensor):
        _require_one("cond", pred)
        return _selected(pred.reshape(()).bool(), true_fn(*operands), false_fn(*operands))
    return (true_fn if is_true("cond", pred) else false_fn)(*operands)


def _selected(pred: Tensor, chosen: Any, other: Any) -> Any:
    """Return what two functions have returned, each tensor selected as the program will find the predicate to be."""
    mine, structure = tree_flatten(chosen)
    theirs, other_structure = tree_flatten(other)
    if structure != other_structure:
        raise ArgumentError(f"cond: true_fn returns {structure} and false_fn {other_structure}")
    return tree_unflatten([_selected_of(pred, a, b) for a, b in zip(mine, theirs, strict=True)], structure)


def _selected_of(pred: Tensor, chosen: Any, other: Any) -> Any:
    if isinstance(chosen, Tensor) and isinstance(other, Tensor):
        if (chosen.shape, chosen.dtype) != (other.shape, other.dtype):
            raise ArgumentError(
                f"cond: true_fn returns {chosen._meta} and false_fn {other._meta}; a program selects one of both, so "
                "their shapes and types must be the same"
            )
        return where(pred, chosen, other)
    if type(chosen) is type(other) and chosen == other:
        return chosen
    raise ArgumentError(f"cond: true_fn returns {chosen!r} and false_fn {other!r}, which a program cannot select of")


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]) -> Any:
    """Call ``body_fn`` on what it returned, at first on ``carried_inputs``, while ``cond_fn`` of the same says so.

    Returns what ``body_fn`` returned last, or the inputs, as a tuple. Each iteration reads what ``cond_fn`` returns if
    that is a tensor. Raises ArgumentError where ``body_fn`` returns another number of values than it takes.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise ArgumentTypeError("while_loop: expected two functions")
    if not isinstance(carried_inputs, (tuple, list)):
        raise ArgumentTypeError(f"while_loop: expected a tuple of carried inputs, not {type(carried_inputs).__name__}")
    carried = tuple(carried_inputs)
    while is_true("while_loop", cond_fn(*carried)):
        made = body_fn(*carried)
        returned = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        if len(returned) != len(carried):
            raise ArgumentError(f"while_loop: body_fn takes {len(carried)} values and has returned {len(returned)}")
        carried = returned
    return carried


def is_true(name: str, pred: Any) -> bool:
    """Return what the predicate of the function ``name`` says, whose element is read if it is a tensor."""
    if isinstance(pred, Tensor):
        _require_one(name, pred)
        return bool(pred)
    if not isinstance(pred, (bool, int, float)):
        raise ArgumentTypeError(f"{name}: expected a bool or a tensor as predicate, not {type(pred).__name__}")
    return bool(pred)


def _require_one(name: str, pred: Tensor) -> None:
    if pred.numel() != 1:
        raise ArgumentError(f"{name}: expected a predicate of one element, got one of shape {tuple(pred.shape)}")
