"""``vmap``: a function of single elements, called once for all elements of a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from telegrad._batching import handler as _handler
from telegrad._ops.batching import Level, batching, entered
from telegrad._ops.functions import function
from telegrad_protocol.errors import ArgumentError

from . import _vmap_steps as _steps


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that computes ``func`` for each element along ``in_dims`` and stacks the results.

    ``func`` is called once, with tensors that have the shape of one element; operations on them are computed for the
    whole batch. With ``chunk_size`` it is called for so many elements at a time. ``randomness`` says whether each
    element draws ``different`` numbers or all draw the ``same``, or that drawing is an ``error``. Arguments by keyword
    are not mapped. Raises ArgumentError where ``in_dims`` and ``out_dims`` do not fit.
    """
    check_randomness(randomness)
    if chunk_size is not None and chunk_size <= 0:
        raise ArgumentError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        count, dims, given, spec = _steps._process_batched_inputs(in_dims, args, func)

        def mapped(parts: list[Any], size: int) -> Any:
            _handler.enter()
            with entered(Level(size, randomness, batching.derivatives)) as number:
                inputs = _steps._create_batched_inputs(dims, parts, number, spec)
                return _steps._unwrap_batched(func(*inputs, **kwargs), out_dims, number, size, func)

        if chunk_size is None or chunk_size >= count:
            return mapped(given, count)
        chunks = []
        for start in range(0, count, chunk_size):
            length = min(chunk_size, count - start)
            parts = [
                leaf if dim is None else leaf.narrow(dim, start, length) for leaf, dim in zip(given, dims, strict=True)
            ]
            chunks.append(mapped(parts, length))
        return _joined(chunks, out_dims)

    return wrapped


def check_randomness(randomness: str) -> None:
    """Raise ArgumentError for what ``vmap`` does not know as ``randomness``."""
    if randomness not in ("error", "different", "same"):
        raise ArgumentError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")


def _joined(chunks: list[Any], out_dims: Any) -> Any:
    """Return the results of several batches as those of one."""
    trees = [_steps.tree_flatten(chunk) for chunk in chunks]
    columns, spec = zip(*[leaves for leaves, _ in trees], strict=True), trees[0][1]
    joined = [
        column[0] if dim is None else function("cat")(list(column), dim)
        for column, dim in zip(columns, _steps._spread(out_dims, chunks[0], spec, "out_dims"), strict=True)
    ]
    return _steps.tree_unflatten(joined, spec)
