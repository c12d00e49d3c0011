"""Composed tensors, sparse and nested ones, as roots and sources of passes: their elements are differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.composed import ComposedTensor
from telegrad._tensor.tensor import Tensor


def has_composed(tensors: Any) -> bool:
    """Tell whether a tensor, or one of several, is made of others."""
    listed = [tensors] if isinstance(tensors, Tensor) else tensors
    return any([isinstance(tensor, ComposedTensor) for tensor in listed])


def values_of(tensors: Any) -> Any:
    """Return a tensor, several, or None, with the elements of composed ones in their place."""
    if tensors is None or isinstance(tensors, Tensor):
        return tensors.stored if isinstance(tensors, ComposedTensor) else tensors
    return [tensor.stored if isinstance(tensor, ComposedTensor) else tensor for tensor in tensors]


def in_forms_of(sources: Any, gradients: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """Return gradients of elements as gradients of the composed tensors that these belong to."""
    listed: list[Any] = [sources] if isinstance(sources, Tensor) else list(sources)
    return tuple(
        [
            source.like(gradient) if isinstance(source, ComposedTensor) and gradient is not None else gradient
            for source, gradient in zip(listed, gradients, strict=True)
        ]
    )
