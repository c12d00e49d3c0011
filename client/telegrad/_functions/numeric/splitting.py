"""Splitting at rows, columns and layers, with checks that ``tensor_split`` does not make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ShapeError


def hsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Split into columns: a 1-d tensor along its dimension, any other along the second."""
    return _split("hsplit", input, indices_or_sections, 1, 0 if input.ndim == 1 else 1)


def vsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Split into rows, along the first of at least two dimensions."""
    return _split("vsplit", input, indices_or_sections, 2, 0)


def dsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Split into layers, along the third of at least three dimensions."""
    return _split("dsplit", input, indices_or_sections, 3, 2)


def _split(name: str, input: Tensor, parts: Any, least: int, at: int) -> tuple[Tensor, ...]:
    if input.ndim < least:
        raise ShapeError(
            f"{name}: torch.{name} requires a tensor with at least {least} dimension, but got a tensor "
            f"with {input.ndim} dimensions!"
        )
    if isinstance(parts, int) and parts > 0 and input.shape[at] % parts:
        raise ShapeError(f"{name}: dimension {at} of {input._meta} does not split into {parts} equal parts")
    return function("tensor_split")(input, parts, at)  # type: ignore[no-any-return]


METHODS: dict[str, Any] = {"hsplit": hsplit, "vsplit": vsplit, "dsplit": dsplit}
