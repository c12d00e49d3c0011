"""Estimates of floating-point operations, for the operations that PyTorch's profiler estimates."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

Shapes = list[Any]


def flops_of(name: str, shapes: Shapes, concrete: list[str]) -> int | None:
    """Return the floating-point operations of a call by the shapes of its operands; None for other operations."""
    estimate = _ESTIMATES.get(name)
    try:
        return None if estimate is None else estimate(shapes, concrete)
    except (IndexError, TypeError, ValueError):  # operands of other forms than the operation usually has
        return None


def _matrix_product(shapes: Shapes, first: int = 0) -> int:
    left, right = shapes[first], shapes[first + 1]
    columns = right[-1] if len(right) > 1 else 1
    batch = prod(max(left[:-1], right[:-2] and [*right[:-2], left[-2] if len(left) > 1 else 1], key=prod))
    return int(2 * batch * left[-1] * columns)


def _linear(shapes: Shapes, concrete: list[str]) -> int:
    return int(2 * prod(shapes[0]) * shapes[1][0])


def _convolution(shapes: Shapes, concrete: list[str]) -> int:
    source, weight = shapes[0], shapes[1]
    dims = len(weight) - 2
    stride, padding, dilation = (_numbers(concrete[place], dims) for place in (3, 4, 5))
    out = [
        (source[2 + d] + 2 * padding[d] - dilation[d] * (weight[2 + d] - 1) - 1) // stride[d] + 1 for d in range(dims)
    ]
    return int(2 * source[0] * prod(out) * prod(weight))


def _numbers(text: str, count: int) -> list[int]:
    numbers = [int(part) for part in text.strip("[]").split(",")]
    return numbers * count if len(numbers) == 1 else numbers


def _elementwise(shapes: Shapes, concrete: list[str]) -> int:
    return int(prod(shapes[0]))


_ESTIMATES: Final[dict[str, Callable[[Shapes, list[str]], int]]] = {
    "aten::mm": lambda shapes, _: _matrix_product(shapes),
    "aten::bmm": lambda shapes, _: _matrix_product(shapes),
    "aten::addmm": lambda shapes, _: _matrix_product(shapes, 1),
    "aten::baddbmm": lambda shapes, _: _matrix_product(shapes, 1),
    "aten::linear": _linear,
    "aten::conv1d": _convolution,
    "aten::conv2d": _convolution,
    "aten::conv3d": _convolution,
    "aten::mul": _elementwise,
    "aten::add": _elementwise,
}
"""``matmul`` has none of its own: its time and operations are those of what it calls."""
