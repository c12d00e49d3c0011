"""Layers that surround sequences, images and volumes: with a value, or with elements mirrored, repeated or wrapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad.nn._windows import spread

from .module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Module):
    """``padding`` has the amounts before and after each dimension, the last dimension first; one number is for all."""

    _dims: ClassVar[int]
    _mode: ClassVar[str]

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding = spread("padding", padding, 2 * self._dims)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """``value`` around sequences."""

    _dims = 1


class ConstantPad2d(_ConstantPad):
    """``value`` around images."""

    _dims = 2


class ConstantPad3d(_ConstantPad):
    """``value`` around volumes."""

    _dims = 3


class ReflectionPad1d(_Pad):
    """Mirrored elements around sequences."""

    _dims, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Mirrored elements around images."""

    _dims, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Mirrored elements around volumes."""

    _dims, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Repeated elements around sequences."""

    _dims, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Repeated elements around images."""

    _dims, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Repeated elements around volumes."""

    _dims, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Elements of the other end around sequences."""

    _dims, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """Elements of the other end around images."""

    _dims, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """Elements of the other end around volumes."""

    _dims, _mode = 3, "circular"


class ZeroPad1d(ConstantPad1d):
    """Zeros around sequences."""

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Zeros around images."""

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Zeros around volumes."""

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"
