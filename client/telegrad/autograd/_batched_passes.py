"""Gradients of what ``vmap`` maps: of batched results, and with batches of gradients to start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from telegrad._batching.tensor import BatchedTensor, batched_at, innermost_of, physical_at, size_at
from telegrad._ops.batching import Level, batching, entered
from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError

Passes = Callable[..., "tuple[Tensor | None, ...]"]
"""Runs ``grad(outputs, inputs, grad_outputs=..., retain_graph=...)`` with all other options fixed."""


def are_batched(*lists: Any) -> bool:
    """Return whether some of these tensors are batched."""
    return any([isinstance(tensor, BatchedTensor) for listed in lists for tensor in listed])


def grad_in_levels(
    passes: Passes, outputs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Tensor | None], retain: bool
) -> tuple[Tensor | None, ...]:
    """Return the gradients where outputs, inputs or the gradients to start from are batched."""
    level = innermost_of([*outputs, *inputs])
    if not level:
        return _with_batched_vectors(passes, outputs, inputs, vectors, retain)
    for tensor in inputs:
        if not isinstance(tensor, BatchedTensor) or tensor._level != level:
            raise AutogradError(
                "grad: the results are one per element of a batch that vmap maps over, and an input is shared by all; "
                "use func.grad or func.vjp inside of the function that is mapped"
            )
    size = size_at(level)
    roots = [physical_at(tensor, level, size) for tensor in outputs]
    given = [
        function("ones_like")(root.detach()) if vector is None else physical_at(vector, level, size)
        for root, vector in zip(roots, vectors, strict=True)
    ]
    results = passes(roots, [tensor._physical for tensor in inputs], grad_outputs=given, retain_graph=retain)  # type: ignore[attr-defined]
    return tuple([None if result is None else batched_at(result, level) for result in results])


def _with_batched_vectors(
    passes: Passes, outputs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Tensor | None], retain: bool
) -> tuple[Tensor | None, ...]:
    """Make a pass for each element of the batch, from results that all elements share."""
    level = innermost_of(vectors)
    size = size_at(level)
    fronts = [None if vector is None else physical_at(vector, level, size) for vector in vectors]
    lines = []
    for number in range(max(size, 1)):
        given = [None if front is None else _row(front, number, size) for front in fronts]
        lines.append(passes(outputs, inputs, grad_outputs=given, retain_graph=retain or number < size - 1))
    stacked = [None if column[0] is None else function("stack")(column) for column in zip(*lines, strict=True)]
    return tuple([None if s is None else batched_at(s if size else s.narrow(0, 0, 0), level) for s in stacked])


def _row(front: Tensor, number: int, size: int) -> Tensor:
    return front.select(0, number) if size else front.new_zeros(front.shape[1:])


def in_level(size: int, vectors: Sequence[Tensor | None], run: Callable[[list[Tensor | None]], Any]) -> list[Any]:
    """Call ``run`` with vectors whose first dimension is the batch of a new level, and return its results with it."""
    import_module("telegrad._batching.handler").enter()
    with entered(Level(size, "error", batching.derivatives)) as number:
        results = run([None if vector is None else batched_at(vector, number) for vector in vectors])
        return [None if result is None else physical_at(result, number, size) for result in results]
