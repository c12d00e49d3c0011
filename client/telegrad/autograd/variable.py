"""``Variable``, which wrapped tensors before they had gradients of their own."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor


class VariableMeta(type):
    """Every tensor is an instance of ``Variable``."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=VariableMeta):
    """``Variable(data)`` is a tensor with the elements and the memory of ``data``, without its history."""

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = False) -> Any:
        """Return the tensor; an empty one without data."""
        return (Tensor() if data is None else data.detach()).requires_grad_(requires_grad)
