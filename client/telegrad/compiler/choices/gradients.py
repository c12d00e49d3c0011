"""Gradients of what ``cond`` returns: zeros for what the function that was chosen does not depend on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._functions.creation import where
from telegrad._ops.functions import function
from telegrad._session.grad_mode import is_grad_enabled
from telegrad._tensor.tensor import Tensor
from telegrad.utils._pytree import tree_flatten, tree_unflatten

from .captured_tensors import tensors_named_by


def with_all_gradients(
    made: Any, pred: Tensor, is_true: bool, functions: Sequence[Callable[..., Any]], operands: Any
) -> Any:  # fmt: skip
    """Return what one of two functions has returned, such that gradients of all tensors that both name are defined.

    As in PyTorch, results in floating point depend on each operand and each tensor in the closures of both functions:
    where the function has not used a tensor, its gradient is zero.
    """
    if not is_grad_enabled():
        return made
    given = [leaf for leaf in tree_flatten(operands)[0] if leaf.requires_grad]
    sources = list({id(one): one for one in (*given, *tensors_named_by(functions))}.values())
    if not sources:
        return made
    leaves, structure = tree_flatten(made)
    return tree_unflatten([_with_gradients(leaf, pred, is_true, sources) for leaf in leaves], structure)


def _with_gradients(result: Any, pred: Tensor, is_true: bool, sources: Sequence[Tensor]) -> Any:
    if not isinstance(result, Tensor) or not (result.is_floating_point() or result.is_complex()):
        return result
    reached = _reached(result, sources)
    others = [one for one in sources if one._gradient_edge() not in reached]
    if not others:
        return result
    nothing = function("cat")([_no_elements(one, result) for one in others]).sum()
    both = (result, nothing) if is_true else (nothing, result)
    return where(pred.reshape(()).bool().to(result.device), *both)


def _no_elements(tensor: Tensor, like: Tensor) -> Tensor:
    """Return none of a tensor's elements, of the type of another one: no gradient makes anything but zeros of them."""
    first = tensor[:0] if tensor.ndim else tensor.unsqueeze(0)[:0]
    kept = first.real if first.is_complex() and not like.is_complex() else first
    return kept.reshape(-1).to(like.device, like.dtype)


def _reached(result: Tensor, sources: Sequence[Tensor]) -> set[Any]:
    """Return the sources that a result depends on, as nodes; the walk ends at each of them."""
    ends = {one._gradient_edge() for one in sources}
    seen = {result._gradient_edge()} if result.requires_grad else set()
    stack = list(seen)
    while stack:
        node = stack.pop()
        fresh = [parent for parent in node.parents if parent not in seen] if node not in ends else []
        seen.update(fresh)
        stack.extend(fresh)
    return seen & ends
