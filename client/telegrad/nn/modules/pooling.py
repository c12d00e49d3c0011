"""Pooling layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad.nn._functional.windows import Numbers, spread
from telegrad_protocol.errors import ArgumentError

from .module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]  # fmt: skip


class _MaxPoolNd(Module):
    _dims: int

    def __init__(
        self, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0, dilation: Numbers = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        pool = getattr(F, f"max_pool{self._dims}d")
        numbers = (self.kernel_size, self.stride, self.padding, self.dilation)
        return pool(input, *numbers, self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """The largest element of each window of sequences."""

    _dims = 1


class MaxPool2d(_MaxPoolNd):
    """The largest element of each window of images."""

    _dims = 2


class MaxPool3d(_MaxPoolNd):
    """The largest element of each window of volumes."""

    _dims = 3


class _WindowLayer(Module):
    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _MaxUnpoolNd(_WindowLayer):
    _dims: int

    def __init__(self, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0) -> None:
        super().__init__()
        self.kernel_size = spread("kernel_size", kernel_size, self._dims)
        self.stride = spread("stride", kernel_size if stride is None else stride, self._dims)
        self.padding = spread("padding", padding, self._dims)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        unpool = getattr(F, f"max_unpool{self._dims}d")
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)  # type: ignore[no-any-return]


class MaxUnpool1d(_MaxUnpoolNd):
    """Maxima put back to where ``MaxPool1d`` found them."""

    _dims = 1


class MaxUnpool2d(_MaxUnpoolNd):
    """Maxima put back to where ``MaxPool2d`` found them."""

    _dims = 2


class MaxUnpool3d(_MaxUnpoolNd):
    """Maxima put back to where ``MaxPool3d`` found them."""

    _dims = 3


class AvgPool1d(_WindowLayer):
    """The mean of each window of sequences."""

    def __init__(
        self, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = spread("kernel_size", kernel_size, 1)
        self.stride = spread("stride", kernel_size if stride is None else stride, 1)
        self.padding = spread("padding", padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(  # type: ignore[no-any-return]
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )


class _AvgPoolNd(_WindowLayer):
    _dims: int

    def __init__(
        self, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        pool = getattr(F, f"avg_pool{self._dims}d")
        numbers = (self.kernel_size, self.stride, self.padding)
        return pool(input, *numbers, self.ceil_mode, self.count_include_pad, self.divisor_override)  # type: ignore[no-any-return]


class AvgPool2d(_AvgPoolNd):
    """The mean of each window of images."""

    _dims = 2


class AvgPool3d(_AvgPoolNd):
    """The mean of each window of volumes."""

    _dims = 3


class _LPPoolNd(Module):
    _dims: int

    def __init__(
        self, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        pool = getattr(F, f"lp_pool{self._dims}d")
        return pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """The norm of each window of sequences."""

    _dims = 1


class LPPool2d(_LPPoolNd):
    """The norm of each window of images."""

    _dims = 2


class LPPool3d(_LPPoolNd):
    """The norm of each window of volumes."""

    _dims = 3


class _AdaptivePool(Module):
    _dims: int

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPoolNd(_AdaptivePool):
    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, f"adaptive_avg_pool{self._dims}d")(input, self.output_size)  # type: ignore[no-any-return]


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The mean of each of equal parts of sequences."""

    _dims = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The mean of each of equal parts of images."""

    _dims = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The mean of each of equal parts of volumes."""

    _dims = 3


class _AdaptiveMaxPoolNd(_AdaptivePool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return getattr(F, f"adaptive_max_pool{self._dims}d")(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The largest element of each of equal parts of sequences."""

    _dims = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The largest element of each of equal parts of images."""

    _dims = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The largest element of each of equal parts of volumes."""

    _dims = 3


class _FractionalMaxPool(Module):
    _dims: int

    def __init__(
        self, kernel_size: Numbers, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = spread("kernel_size", kernel_size, self._dims)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else spread("output_size", output_size, self._dims)
        is_one = isinstance(output_ratio, (int, float))
        self.output_ratio = (output_ratio,) * self._dims if is_one else output_ratio
        if output_size is None and output_ratio is None:
            raise ArgumentError(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ArgumentError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ArgumentError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        pool = getattr(F, f"fractional_max_pool{self._dims}d")
        return pool(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest elements of windows of images that begin at random."""

    _dims = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest elements of windows of volumes that begin at random."""

    _dims = 3
