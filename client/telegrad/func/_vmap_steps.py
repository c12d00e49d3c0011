"""The steps of ``vmap``, under the names that ``torch._functorch.vmap`` has for them.

``vmap`` asks this module for each step when a mapped function is called: a library whose containers of tensors are
mapped as one puts functions of its own here, which call `_add_batch_dim` and `_remove_batch_dim`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from telegrad._batching.tensor import batched_at, is_batched_at, physical_at
from telegrad._tensor.tensor import Tensor as Tensor
from telegrad_protocol.errors import ArgumentError, DimensionError

_trees: Any = import_module("telegrad.utils._pytree")  # utils is above this package
tree_flatten, tree_unflatten = _trees.tree_flatten, _trees.tree_unflatten
TreeSpec: TypeAlias = Any


def _process_batched_inputs(
    in_dims: Any, args: tuple[Any, ...], func: Callable[..., Any]
) -> tuple[int, list[int | None], list[Any], TreeSpec]:
    """Return the size of the batch, a dimension or None for each argument, the arguments, and their structure.

    Raises ArgumentError where ``in_dims`` does not fit the arguments.
    """
    if not isinstance(in_dims, (int, tuple, list)):
        raise ArgumentError(
            "vmap: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got "
            f"{type(in_dims).__name__}"
        )
    if not args:
        raise ArgumentError("vmap: got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over none")
    flat, spec = tree_flatten(args)
    dims = [_place(leaf, dim) for leaf, dim in zip(flat, _spread(in_dims, args, spec, "in_dims"), strict=True)]
    return _validate_and_get_batch_size(dims, flat), dims, flat, spec


def _place(leaf: Any, dim: Any) -> int | None:
    """Return the mapped dimension of an argument, counted from the first one."""
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise ArgumentError(f"vmap: got in_dim={dim} for an input but in_dim must be an integer dimension or None")
    if not isinstance(leaf, Tensor):
        raise ArgumentError(f"vmap: got in_dim={dim} for an input that is no tensor but {type(leaf).__name__}")
    if not -leaf.dim() <= dim < leaf.dim():
        raise ArgumentError(f"vmap: got in_dim={dim} for some input of {leaf.dim()} dimensions")
    return dim % leaf.dim()


def _validate_and_get_batch_size(flat_in_dims: list[int | None], flat_args: list[Any]) -> int:
    """Return the size that all arguments have in their mapped dimension; ArgumentError where they differ."""
    sizes = {arg.shape[dim] for arg, dim in zip(flat_args, flat_in_dims, strict=True) if dim is not None}
    if len(sizes) != 1:
        raise ArgumentError(
            f"vmap: expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)}"
            if sizes
            else "vmap: at least one input must be mapped over"
        )
    size: int = sizes.pop()
    return size


def _create_batched_inputs(
    flat_in_dims: list[int | None], flat_args: list[Any], vmap_level: int, args_spec: TreeSpec
) -> Any:
    """Return the arguments as the function is given them, in the level of this number."""
    batched = [
        arg if dim is None else _add_batch_dim(arg, dim, vmap_level)
        for arg, dim in zip(flat_args, flat_in_dims, strict=True)
    ]
    return tree_unflatten(batched, args_spec)


def _unwrap_batched(
    batched_outputs: Any, out_dims: Any, vmap_level: int, batch_size: int, func: Callable[..., Any]
) -> Any:
    """Return what the function has returned, with the batch at ``out_dims``."""
    flat, spec = tree_flatten(batched_outputs)
    dims, name = _spread(out_dims, batched_outputs, spec, "out_dims"), _get_name(func)
    outputs = [
        _maybe_remove_batch_dim(name, output, vmap_level, batch_size, dim)
        for output, dim in zip(flat, dims, strict=True)
    ]
    return tree_unflatten(outputs, spec)


def _add_batch_dim(tensor: Tensor, batch_dim: int, level: int) -> Tensor:
    """Return one element of a batch: the tensor in the level, without the batch's dimension."""
    return batched_at(tensor if batch_dim == 0 else tensor.movedim(batch_dim, 0), level)


def _remove_batch_dim(tensor: Tensor, level: int, batch_size: int, out_dim: int) -> Tensor:
    """Return the batch that a tensor is an element of in the level, with its dimension at ``out_dim``."""
    if not -tensor.dim() - 1 <= out_dim <= tensor.dim():
        raise DimensionError(
            f"vmap: Dimension out of range, out_dims={out_dim} for a result of {tensor.dim()} dimensions"
        )
    front = physical_at(tensor, level, batch_size)
    return front if out_dim == 0 else front.movedim(0, out_dim)


def _maybe_remove_batch_dim(name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: Any) -> Any:
    """Return what a result is outside of the level; ArgumentError where it cannot be there."""
    if not isinstance(batched_output, Tensor):
        if out_dim is None:
            return batched_output
        raise ArgumentError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}. Did you mean to "
            "set out_dims= to None for output?"
        )
    if out_dim is not None:
        return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)
    if is_batched_at(batched_output, vmap_level):
        raise ArgumentError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
    return batched_output


def _get_name(func: Callable[..., Any]) -> str:
    """Return how errors call a function."""
    return getattr(func, "__name__", None) or repr(func)


def _spread(dims: Any, tree: Any, spec: TreeSpec, what: str) -> list[Any]:
    """Return a dimension for each leaf of a tree; one that stands for a structure goes for all that is in it."""
    if isinstance(dims, (tuple, list)) and len(dims) == 1 and isinstance(tree, Tensor):
        return [dims[0]]
    flat = _broadcast_to_and_flatten(dims, spec)
    if flat is None:
        raise ArgumentError(f"vmap: {what} does not have the structure of what it is for: {what}={dims!r}")
    return flat


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: Any = None) -> list[Any] | None:
    """Return the leaves of a tree as another one has them, a leaf for all that is below it; None if they differ."""
    if tree is None or isinstance(tree, int) or not isinstance(tree, (tuple, list, dict)):
        return [tree] * treespec.num_leaves
    children = _children(tree, treespec)
    if children is None or len(children) != len(treespec.children_specs):
        return None
    flat: list[Any] = []
    for child, spec in zip(children, treespec.children_specs, strict=True):
        inner = _broadcast_to_and_flatten(child, spec)
        if inner is None:
            return None
        flat.extend(inner)
    return flat


def _children(tree: Any, treespec: TreeSpec) -> list[Any] | None:
    """Return the children of a container of the same kind; those of a dict in the order of the other one's keys."""
    kind = treespec.type
    if isinstance(tree, dict):
        is_same = isinstance(kind, type) and issubclass(kind, dict) and tree.keys() == set(treespec.context)
        return [tree[key] for key in treespec.context] if is_same else None
    return None if isinstance(kind, type) and not issubclass(kind, (tuple, list)) else list(tree)
