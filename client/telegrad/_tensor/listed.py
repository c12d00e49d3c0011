"""Tensors among the arguments or the results of a call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .tensor import Tensor


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """Iterate over the tensors among values, and in lists among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value)
