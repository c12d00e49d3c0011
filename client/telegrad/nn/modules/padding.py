"""Layers that surround sequences, images and volumes: with a value, or with elements mirrored, repeated or wrapped."""

from __future__ import annotations

from collections.abc import Sequence

from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad.nn._functional.windows import spread
from telegrad_protocol.errors import ArgumentError

from .module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Module):
    """``padding`` has the amounts before and after each dimension, the last dimension first; one number is for all."""

    _dims: int
    _mode: str

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding = spread("padding", padding, 2 * self._dims)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """``value`` around sequences."""

    _dims = 1


class ConstantPad2d(_ConstantPadNd):
    """``value`` around images."""

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """``value`` around volumes."""

    _dims = 3


class _ReflectionPadNd(_Pad):
    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Mirrored elements around sequences."""

    _dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Mirrored elements around images."""

    _dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Mirrored elements around volumes."""

    _dims = 3


class _ReplicationPadNd(_Pad):
    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Repeated elements around sequences."""

    _dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Repeated elements around images."""

    _dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Repeated elements around volumes."""

    _dims = 3


class _CircularPadNd(_Pad):
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (self._dims + 1, self._dims + 2):
            raise ArgumentError(f"expected {self._dims + 1}D or {self._dims + 2}D input (got {input.ndim}D input)")
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """Elements of the other end around sequences."""

    _dims = 1


class CircularPad2d(_CircularPadNd):
    """Elements of the other end around images."""

    _dims = 2


class CircularPad3d(_CircularPadNd):
    """Elements of the other end around volumes."""

    _dims = 3


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
