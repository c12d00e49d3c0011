"""Gradients of what ``vmap`` maps: of batched results, and with batches of gradients to start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final

from telegrad._batching.tensor import BatchedTensor, batched_at, innermost_of, physical_at, size_at
from telegrad._ops.batching import Level, batching, entered
from telegrad._ops.functions import function
from telegrad._session.grad_mode import enable_grad, no_grad
from telegrad._tensor.autograd_graph import GradientNode, has_client_parts, reachable
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError, NotSupportedError

from ._gradients import UNUSED

_FEWEST_AT_ONCE: Final = 5
"""Batches of fewer gradients are as many passes of the server: each costs less than to ask for its operations."""
Passes = partial["tuple[Tensor | None, ...]"]
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
    """Return the gradients of results that all elements of the batch share."""
    level = innermost_of(vectors)
    size = size_at(level)
    keywords = passes.keywords
    if size >= _FEWEST_AT_ONCE and not has_client_parts(reachable([tensor._gradient_edge() for tensor in outputs])):
        found = _at_once(outputs, inputs, vectors, keywords["create_graph"])
        if found is not None:
            return _completed(found, inputs, keywords)
    return _one_by_one(passes, outputs, inputs, vectors, retain)


def _at_once(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Tensor | None], create_graph: bool
) -> list[Tensor | None] | None:
    """Run the operations of the pass on the batch; None where elements decide what these are.

    The server is asked for the operations: one round trip.
    """
    programs = import_module("telegrad._dispatch.programs")
    try:
        program, values, tracked = programs.backward_pass(outputs, inputs, create_graph)
    except NotSupportedError:
        return None
    parents = tuple([tensor._gradient_edge() for tensor in outputs])
    for tensor in tracked:
        tensor._requires_grad, tensor._node = True, GradientNode(parents, "AddBackward0")
    for number, (output, vector) in enumerate(zip(outputs, vectors, strict=True)):
        values[number] = function("ones_like")(output.detach()) if vector is None else vector
    with enable_grad() if create_graph else no_grad():
        return programs.run(program, values)  # type: ignore[no-any-return]


def _completed(
    found: list[Tensor | None], inputs: Sequence[Tensor], keywords: dict[str, Any]
) -> tuple[Tensor | None, ...]:
    """Return gradients with zeros for those that do not exist, or raise the error of them, as ``grad`` does."""
    if keywords["materialize_grads"]:
        return tuple([t.new_zeros(t.shape) if g is None else g for g, t in zip(found, inputs, strict=True)])
    if not keywords["allow_unused"] and any([gradient is None for gradient in found]):
        raise AutogradError(UNUSED)
    return tuple(found)


def _one_by_one(
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
