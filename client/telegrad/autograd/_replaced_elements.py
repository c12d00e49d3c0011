"""What ``result.data = tensor`` leaves of the history of a result: gradients go where they went before.

Hooks that the result had before are called after those that it gets later.
"""

from __future__ import annotations

from typing import Any

from telegrad._session.grad_mode import enable_grad
from telegrad._tensor.tensor import Tensor

from .function import Function


class ReplacedElements(Function):
    """Gives a result other elements; the gradient of these is that of the result."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, elements: list[Tensor]) -> Tensor:
        return elements[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def replaced(result: Tensor, elements: Tensor) -> Tensor:
    """Return a tensor without history of its own, with that of ``result``, also where nothing is recorded."""
    with enable_grad():
        made: Tensor = ReplacedElements.apply(result, [elements])
    return made
