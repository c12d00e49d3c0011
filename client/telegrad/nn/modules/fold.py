"""Sliding windows as columns, and columns added up to images."""

from __future__ import annotations

from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad.nn._functional.windows import Numbers

from .module import Module

__all__ = ["Fold", "Unfold"]


class Unfold(Module):
    """What a sliding kernel sees, one column per position."""

    def __init__(self, kernel_size: Numbers, dilation: Numbers = 1, padding: Numbers = 0, stride: Numbers = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """Columns added up at where ``Unfold`` found them."""

    def __init__(
        self, output_size: Numbers, kernel_size: Numbers, dilation: Numbers = 1, padding: Numbers = 0,
        stride: Numbers = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.output_size = output_size
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )
