"""Gradients of convolutions by their operands, as functions, as in ``torch.nn.grad``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor

from ._functional.windows import Numbers, spread

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _by_input(
    dims: int, input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Numbers, padding: Numbers,
    dilation: Numbers, groups: int,
) -> Tensor:  # fmt: skip
    step, pad, gap = (spread("conv", numbers, dims) for numbers in (stride, padding, dilation))
    sizes = zip(input_size[-dims:], grad_output.shape[-dims:], weight.shape[-dims:], step, pad, gap, strict=True)
    rest = [wanted - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for wanted, n, k, s, p, d in sizes]
    result: Tensor = function("convolution")(grad_output, weight, None, step, pad, gap, True, rest, groups)
    return result


def _by_weight(
    dims: int, input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Numbers, padding: Numbers,
    dilation: Numbers, groups: int,
) -> Tensor:  # fmt: skip
    numbers = [spread("conv", value, dims) for value in (stride, padding, dilation)]
    kernel = tuple(weight_size[-dims:])
    result: Tensor = function("_convolution_weight_backward")(grad_output, input, kernel, *numbers, groups, False)
    return result


def conv1d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of ``conv1d`` by its input, which has ``input_size``."""
    return _by_input(1, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of ``conv1d`` by its weight, which has ``weight_size``."""
    return _by_weight(1, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of ``conv2d`` by its input, which has ``input_size``."""
    return _by_input(2, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of ``conv2d`` by its weight, which has ``weight_size``."""
    return _by_weight(2, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of ``conv3d`` by its input, which has ``input_size``."""
    return _by_input(3, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of ``conv3d`` by its weight, which has ``weight_size``."""
    return _by_weight(3, input, weight_size, grad_output, stride, padding, dilation, groups)
