"""``vmap``: a function of single elements, called for each element of a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from ._trees import leaves_of, with_leaves


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that calls ``func`` for each element along ``in_dims`` and stacks the results.

    The calls are made one after another and wait for nothing, so each may draw random numbers of its own.
    """
    if randomness not in ("error", "different", "same"):
        raise ArgumentError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")

    @wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        given = leaves_of((args, kwargs))
        dims = [*_spread(in_dims if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(args), args)]
        dims += [0 if isinstance(leaf, Tensor) else None for leaf in leaves_of(kwargs)]
        count = _size(given, dims)
        results = []
        for number in range(count):
            values = [leaf if dim is None else leaf.select(dim, number) for leaf, dim in zip(given, dims, strict=True)]
            positional, named = with_leaves((args, kwargs), values)
            results.append(func(*positional, **named))
        return _stacked(results, out_dims)

    return wrapped


def _spread(dims: Any, tree: Any) -> list[int | None]:
    """Return a dimension for everything in ``tree``; one that stands for a structure goes for all that is in it."""
    if dims is None or isinstance(dims, int):
        return [dims for _ in leaves_of(tree)]
    if isinstance(dims, dict):
        return [dim for key in tree for dim in _spread(dims[key], tree[key])]
    if len(dims) != len(tree):
        raise ArgumentError(f"vmap: in_dims has {len(dims)} entries for {len(tree)} inputs")
    return [dim for part, inner in zip(dims, tree, strict=True) for dim in _spread(part, inner)]


def _size(given: list[Any], dims: list[int | None]) -> int:
    sizes = set()
    for leaf, dim in zip(given, dims, strict=True):
        if dim is None:
            continue
        if not isinstance(leaf, Tensor):
            raise ArgumentTypeError(f"vmap: got in_dim={dim} for an input that is no tensor but {type(leaf).__name__}")
        if not -leaf.dim() <= dim < leaf.dim():
            raise ArgumentError(f"vmap: got in_dim={dim} for some input of {leaf.dim()} dimensions")
        sizes.add(leaf.shape[dim])
    if len(sizes) != 1:
        raise ArgumentError(
            f"vmap: expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)}"
            if sizes
            else "vmap: at least one input must be mapped over"
        )
    size: int = sizes.pop()
    if not size:
        raise ArgumentError("vmap: the mapped dimension has no element")
    return size


def _stacked(results: list[Any], out_dims: Any) -> Any:
    first = results[0]
    lines = [leaves_of(result) for result in results]
    dims = _spread(out_dims, first)
    stacked = []
    for place, dim in enumerate(dims):
        column = [line[place] for line in lines]
        if not isinstance(column[0], Tensor):
            raise ArgumentTypeError(f"vmap: the function must only return tensors, not {type(column[0]).__name__}")
        stacked.append(column[0] if dim is None else function("stack")(column, dim))
    return with_leaves(first, stacked)
