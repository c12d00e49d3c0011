"""What ``autograd.functional`` and ``func`` have in common: products with the Jacobian of computed results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from telegrad._batching.tensor import BatchedTensor, levels_of, plain, wrapped
from telegrad._ops.duals import DualTensor
from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.autograd_graph import GradientEdge, LeafNode, ReceiverNode, SourceNode, reachable
from telegrad._tensor.tensor import Tensor

from ._batched_passes import in_level
from ._passes import grad


def zeros_like(tensor: Tensor) -> Tensor:
    """Return zeros of the tensor's shape, dtype and device, without history."""
    zeros: Tensor = function("zeros_like")(tensor)
    return zeros


def depends_on_others(outputs: Sequence[Tensor], own: Sequence[Tensor]) -> bool:
    """Return whether results were computed from leaves that require a gradient other than ``own``."""
    edges = [output._gradient_edge() for output in outputs if output._is_tracked()]
    leaves = {tensor._gradient_edge() for tensor in own}
    return any(_receives(node) and node not in leaves for node in reachable(edges))


def _receives(node: GradientEdge) -> bool:
    """Return whether a node is a leaf that exists, or where the graph of a dual number begins."""
    if isinstance(node, (LeafNode, ReceiverNode)):
        return node.tensor() is not None
    return isinstance(node, SourceNode) and node.is_active


def released(tensor: Tensor, own: Collection[GradientEdge]) -> Tensor:
    """Return a result of a function that differentiates by ``own``, with the history that leads to other tensors."""
    if isinstance(tensor, BatchedTensor):
        return wrapped(released(plain(tensor), own), levels_of(tensor))
    if not tensor._is_tracked():
        return tensor
    others = [node for node in reachable([tensor._gradient_edge()]) if _receives(node) and node not in own]
    if not others:
        with no_grad():
            return tensor.detach()
    if isinstance(tensor, DualTensor):
        tensor._shows_grad = any([isinstance(node, (LeafNode, ReceiverNode)) for node in others])
    return tensor


def vector_jacobian(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Any], create_graph: bool
) -> list[Tensor]:
    """Return the products of ``vectors`` with the Jacobian; zeros for inputs that the results do not depend on."""
    pairs = [(output, v) for output, v in zip(outputs, vectors, strict=True) if output.requires_grad]
    if not pairs:
        return [zeros_like(tensor) for tensor in inputs]
    results = grad(
        [output for output, _ in pairs], inputs, [vector for _, vector in pairs], retain_graph=True,
        create_graph=create_graph, allow_unused=True,
    )  # fmt: skip
    return [zeros_like(tensor) if result is None else result for result, tensor in zip(results, inputs, strict=True)]


def jacobian_vector(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Tensor], create_graph: bool
) -> list[Tensor]:
    """Return the products of the Jacobian with ``vectors``, by a derivative of the derivative."""
    tangents = [zeros_like(output) for output in outputs]
    dummies = [zeros_like(output).requires_grad_() for output in outputs]
    pairs = [(output, dummy) for output, dummy in zip(outputs, dummies, strict=True) if output.requires_grad]
    if not pairs:
        return tangents
    gradients = grad(
        [output for output, _ in pairs], inputs, [dummy for _, dummy in pairs], create_graph=True, allow_unused=True
    )
    linear = [(g, v) for g, v in zip(gradients, vectors, strict=True) if g is not None and g.requires_grad]
    if not linear:
        return tangents
    found = grad(
        [g for g, _ in linear], dummies, [v for _, v in linear], retain_graph=True, create_graph=create_graph,
        allow_unused=True,
    )  # fmt: skip
    return [zero if tangent is None else tangent for tangent, zero in zip(found, tangents, strict=True)]


def rows(output: Tensor, inputs: Sequence[Tensor], create_graph: bool, chunk_size: int | None = None) -> list[Tensor]:
    """Return the Jacobian of one result: for each input a tensor of the shapes of both, one after the other.

    With ``chunk_size`` so many of its rows are computed at a time.
    """
    count = output.numel()
    if not count:
        return [tensor.new_zeros((*output.shape, *tensor.shape)) for tensor in inputs]
    basis = function("eye")(count, dtype=output.dtype, device=output.device).reshape(count, *output.shape)
    step = chunk_size or count
    chunks = [_rows_of(output, inputs, basis[start : start + step], create_graph) for start in range(0, count, step)]
    columns = [column[0] if len(column) == 1 else function("cat")(list(column)) for column in zip(*chunks, strict=True)]
    return [column.reshape(*output.shape, *tensor.shape) for column, tensor in zip(columns, inputs, strict=True)]


def _rows_of(output: Tensor, inputs: Sequence[Tensor], vectors: Tensor, create_graph: bool) -> list[Tensor]:
    return in_level(vectors.shape[0], [vectors], lambda given: vector_jacobian([output], inputs, given, create_graph))
