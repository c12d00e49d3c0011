"""Sparse tensors among the roots and the sources of passes: their values are differentiated in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.layouts import strided
from telegrad._tensor.tensor import Tensor


def _is_sparse(tensor: Any) -> bool:
    layout: Any = tensor.layout if isinstance(tensor, Tensor) else strided
    return layout is not strided


def has_sparse(tensors: Any) -> bool:
    """Tell whether a tensor, or one of several, is sparse."""
    return any(map(_is_sparse, [tensors] if isinstance(tensors, Tensor) else list(tensors)))


def values_of(tensors: Any) -> Any:
    """Return a tensor, several, or None, with the values of sparse ones in their place."""
    if tensors is None or isinstance(tensors, Tensor):
        return tensors.stored if _is_sparse(tensors) else tensors  # type: ignore[union-attr]
    return [tensor.stored if _is_sparse(tensor) else tensor for tensor in tensors]


def with_indices_of(sources: Any, gradients: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """Return gradients of values as gradients of the sparse tensors that these belong to."""
    listed: list[Any] = [sources] if isinstance(sources, Tensor) else list(sources)
    return tuple(
        [
            source.like(gradient) if _is_sparse(source) and gradient is not None else gradient
            for source, gradient in zip(listed, gradients, strict=True)
        ]
    )
