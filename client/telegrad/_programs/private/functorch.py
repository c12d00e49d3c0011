"""``torch._C._functorch`` and ``torch._functorch.vmap``: batches are computed by elements, so none is wrapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._tensor.tensor import Tensor as Tensor
from telegrad.compiler.functorch import config as config
from telegrad.utils._pytree import TreeSpec
from telegrad.utils._pytree import tree_flatten as tree_flatten
from telegrad.utils._pytree import tree_unflatten as tree_unflatten


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor stands for those of a whole batch: none does."""
    return False


is_gradtrackingtensor = is_functorch_wrapped_tensor = is_functionaltensor = is_legacy_batchedtensor = is_batchedtensor


def get_unwrapped(tensor: Tensor) -> Tensor:
    """Return the tensor, which is not wrapped."""
    return tensor


def maybe_get_bdim(tensor: Any) -> int:
    """Return the batch's dimension in a tensor: -1, since there is none."""
    return -1


def maybe_current_level() -> None:
    """Return the level of transforms: None, since there is none."""


def maybe_get_level(tensor: Any) -> int:
    """Return the level at which a tensor is wrapped: -1, since it is not."""
    return -1


def _add_batch_dim(tensor: Tensor, batch_dim: int, level: int) -> Tensor:
    """Return the tensor with the batch's dimension first."""
    return tensor.movedim(batch_dim, 0)


def _remove_batch_dim(tensor: Tensor, level: int, batch_size: int, out_dim: int) -> Tensor:
    """Return the tensor with its first dimension, the batch's, moved where results have it."""
    return tensor.movedim(0, out_dim)


def _maybe_remove_batch_dim(name: str, batched_output: Any, level: int, batch_size: int, out_dim: Any) -> Any:
    return batched_output if out_dim is None else _remove_batch_dim(batched_output, level, batch_size, out_dim)


def _get_name(func: Callable[..., Any]) -> str:
    """Return how errors call a function."""
    return getattr(func, "__name__", None) or repr(func)


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: Any = None) -> list[Any] | None:
    """Return the leaves of a tree as another one has them, a leaf for all that is below it; None if they differ."""
    if tree is None or isinstance(tree, int) or not isinstance(tree, (tuple, list, dict)):
        return [tree] * treespec.num_leaves
    children = list(tree.values()) if isinstance(tree, dict) else list(tree)
    if len(children) != len(treespec.children_specs):
        return None
    flat: list[Any] = []
    for child, spec in zip(children, treespec.children_specs, strict=True):
        inner = _broadcast_to_and_flatten(child, spec)
        if inner is None:
            return None
        flat.extend(inner)
    return flat
