"""Convolution and pooling functions, which ``nn.functional`` re-exports: windows that slide over an input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.number_checks import is_number
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

Numbers = int | Sequence[int]

conv1d, conv2d, conv3d = (function(f"conv{d}d") for d in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (function(f"conv_transpose{d}d") for d in (1, 2, 3))
max_pool1d, max_pool2d, max_pool3d = (function(f"max_pool{d}d") for d in (1, 2, 3))
avg_pool1d = function("avg_pool1d")
adaptive_avg_pool1d = function("adaptive_avg_pool1d")
unfold = function("im2col")


def max_pool1d_with_indices(
    input: Tensor, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0, dilation: Numbers = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``max_pool1d`` with the positions of the maxima."""
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)  # type: ignore[no-any-return]


def max_pool2d_with_indices(
    input: Tensor, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0, dilation: Numbers = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``max_pool2d`` with the positions of the maxima."""
    return max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)  # type: ignore[no-any-return]


def max_pool3d_with_indices(
    input: Tensor, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0, dilation: Numbers = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``max_pool3d`` with the positions of the maxima."""
    return max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, True)  # type: ignore[no-any-return]


def adaptive_max_pool1d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """``adaptive_max_pool1d`` with the positions of the maxima."""
    return function("adaptive_max_pool1d")(input, output_size, return_indices=True)


def adaptive_max_pool2d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """``adaptive_max_pool2d`` with the positions of the maxima."""
    return function("adaptive_max_pool2d")(input, output_size, return_indices=True)


def adaptive_max_pool3d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """``adaptive_max_pool3d`` with the positions of the maxima."""
    return function("adaptive_max_pool3d")(input, output_size, return_indices=True)


def spread(what: str, numbers: Numbers, dims: int) -> tuple[int, ...]:
    """Return one integer per dimension; a single one is repeated. ``what`` names the argument in errors."""
    try:
        sizes = tuple(map(index, numbers)) if isinstance(numbers, Iterable) else (index(numbers),) * dims
    except TypeError:
        raise ArgumentTypeError(f"{what} must be one integer or {dims}, got {numbers!r}") from None
    if len(sizes) == 1:
        return sizes * dims
    if len(sizes) != dims:
        raise ArgumentError(f"{what} must be one number or {dims}, got {list(sizes)}")
    return sizes


def _lp_pool(
    dims: int, input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers | None, ceil_mode: bool
) -> Tensor:
    """Return the norm of each window: the sum is mean times size; below zero, by rounding, it counts as zero."""
    if not is_number(norm_type) or not norm_type:
        raise ArgumentError(f"lp_pool{dims}d: norm_type must be a number other than 0, got {norm_type!r}")
    kernel = spread("kernel_size", kernel_size, dims)
    mean = function(f"avg_pool{dims}d")(input.pow(norm_type), kernel, stride or kernel, 0, ceil_mode)
    total: Tensor = mean.sign().mul(mean.abs().relu()).mul(math.prod(kernel))
    return total.pow(1.0 / norm_type)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None, ceil_mode: bool = False
) -> Tensor:
    """The norm of each window of sequences, without absolute values: sum(x ** p) ** (1 / p)"""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None, ceil_mode: bool = False
) -> Tensor:
    """The norm of each window of images, without absolute values: sum(x ** p) ** (1 / p)"""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None, ceil_mode: bool = False
) -> Tensor:
    """The norm of each window of volumes, without absolute values: sum(x ** p) ** (1 / p)"""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)
