"""Samples of operations that PyTorch's operator database lacks: a reference on torch tensors, and inputs.

``test_opinfo`` runs every entry in several dtypes and compares values, dtype, shape, strides and both derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Samples(NamedTuple):
    """How an operation is tested.

    ``reference`` computes it by differentiable functions of torch. ``inputs`` makes the positional arguments of each
    sample for a dtype; floating-point tensors that require a gradient are also compared by their gradients.
    """

    reference: Callable[..., Any]
    inputs: Callable[[torch.dtype], list[tuple[Any, ...]]]
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64)


def numbers(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Normally distributed numbers that require a gradient."""
    return torch.randn(shape, dtype=dtype, requires_grad=True)


SAMPLES: dict[str, Samples] = {
    "_squared_error": Samples(
        lambda input, target: (input - target) ** 2,
        lambda dtype: [
            (numbers(5, 7, dtype=dtype), numbers(5, 7, dtype=dtype)),
            (numbers(5, 7, dtype=dtype), numbers(7, dtype=dtype)),
            (numbers(0, dtype=dtype), numbers(0, dtype=dtype)),
        ],
    ),
}
"""By the operation's public name."""
