"""``torch.cond`` and ``torch.while_loop``: the program's Python decides, so a tensor that decides is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """Return ``true_fn(*operands)`` or ``false_fn(*operands)``, as the predicate says: a bool, or a tensor of one.

    Only the one that is chosen is called. A tensor is read for it, which waits for the server and is a graph break in a
    compiled function; ``torch.where`` waits for nothing. Raises ArgumentError for a predicate of several elements.
    """
    if not callable(true_fn) or not callable(false_fn):
        raise ArgumentTypeError("cond: expected two functions")
    if not isinstance(operands, (tuple, list)):
        raise ArgumentTypeError(f"cond: expected a tuple or list of operands, not {type(operands).__name__}")
    return (true_fn if is_true("cond", pred) else false_fn)(*operands)


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
        if pred.numel() != 1:
            raise ArgumentError(f"{name}: expected a predicate of one element, got one of shape {tuple(pred.shape)}")
        return bool(pred)
    if not isinstance(pred, (bool, int, float)):
        raise ArgumentTypeError(f"{name}: expected a bool or a tensor as predicate, not {type(pred).__name__}")
    return bool(pred)
