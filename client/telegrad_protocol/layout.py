"""Arithmetic on shapes and strides: broadcasting, memory order of results, views.

Pure functions over tuples of ints, strides counted in elements; no types, no devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from .errors import ArgumentError, DimensionError, ShapeError

Size: TypeAlias = tuple[int, ...]


def contiguous_strides(shape: Size) -> Size:
    """Return the strides of a row-major tensor; empty dimensions count as 1, as in PyTorch."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size or 1
    strides.reverse()
    return tuple(strides)


def is_contiguous(shape: Size, strides: Size) -> bool:
    """Tell whether elements lie in row-major order without gaps."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 0:
            return True
        if size != 1:
            if stride != step:
                return _is_empty(shape)
            step *= size
    return True


def _is_empty(shape: Size) -> bool:
    return 0 in shape


def is_dense(shape: Size, strides: Size) -> bool:
    """Tell whether the elements fill one block of memory exactly, in any order of dimensions."""
    if _is_empty(shape):
        return True
    step = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return True


def overlaps_itself(shape: Size, strides: Size) -> bool:
    """Tell whether two indices may name one element: exact for expanded and dense tensors, else True when in doubt."""
    if _is_empty(shape):
        return False
    extent = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1):
        if stride < extent:
            return True
        extent += stride * (size - 1)
    return False


def extent(shape: Size, strides: Size) -> int:
    """Return the length of memory, in elements, from the first to the last element of a view, both included."""
    if _is_empty(shape):
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def broadcast_shapes(op: str, *shapes: Size) -> Size:
    """Return the common shape of ``shapes``, aligned at the last dimension; ``ShapeError`` where there is none."""
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return tuple(shapes[0])
    if len(shapes) == 2:
        longer, shorter = sorted(shapes, key=len, reverse=True)
        if longer[len(longer) - len(shorter) :] == shorter:
            return tuple(longer)
    ndim = max(map(len, shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for position, size in enumerate(shape, ndim - len(shape)):
            if size == 1 or size == result[position]:
                continue
            if result[position] != 1:
                listed = " and ".join(str(list(s)) for s in shapes)
                raise ShapeError(
                    f"{op}: shapes {listed} do not broadcast: sizes {result[position]} and {size} at dimension "
                    f"{position}: The size of tensor a ({result[position]}) must match the size of tensor b ({size}) "
                    f"at non-singleton dimension {position}"
                )
            result[position] = size
    return tuple(result)


def broadcast_strides(shape: Size, strides: Size, target: Size) -> Size:
    """Return the strides that show ``shape`` as ``target``: zero along every dimension that is repeated.

    As in PyTorch, a new dimension of size 1 has the extent of those behind it as its stride.
    """
    if not shape:
        return (0,) * len(target)
    lead = len(target) - len(shape)
    aligned = (
        0 if size == 1 and wanted != 1 else stride
        for size, stride, wanted in zip(shape, strides, target[lead:], strict=True)
    )
    result = tuple(aligned)
    for dim in range(lead - 1, -1, -1):
        result = (target[dim + 1] * result[0] if target[dim] == 1 else 0, *result)
    return result


def result_strides(shape: Size, operands: Sequence[tuple[Size, Size]]) -> Size:
    """Return dense strides of an element-wise result, in its operands' order of dimensions, as TensorIterator does."""
    if all([operand_shape == shape for operand_shape, _ in operands]):
        if all([is_contiguous(*operand) for operand in operands]):
            return contiguous_strides(shape)
        first = operands[0][1]
        if is_dense(shape, first) and all([strides == first for _, strides in operands]):
            return first
    return strides_in_order(shape, _memory_order(shape, operands))


def _memory_order(shape: Size, operands: Sequence[tuple[Size, Size]]) -> list[int]:
    """Return the dimensions from the innermost to the outermost; insertion sort tolerates ambiguous comparisons."""
    steps = [broadcast_strides(s, strides, shape) for s, strides in operands]
    order = list(reversed(range(len(shape))))
    for start in range(1, len(order)):
        right = start
        for left in range(start - 1, -1, -1):
            comparison = _compare(order[left], order[right], shape, steps)
            if comparison < 0:
                break
            if comparison > 0:
                order[left], order[right] = order[right], order[left]
                right = left
    return order


def _compare(left: int, right: int, shape: Size, steps: list[Size]) -> int:
    for strides in steps:
        a, b = strides[left], strides[right]
        if a == 0 or b == 0:
            continue
        if a != b:
            return -1 if a < b else 1
        if shape[left] > shape[right]:
            return 1
    return 0


def strides_in_order(shape: Size, order: Sequence[int]) -> Size:
    """Return dense strides where ``order`` lists the dimensions from the innermost to the outermost."""
    strides = [0] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def wrap_dim(op: str, dim: int, ndim: int) -> int:
    """Return ``dim`` counted from the front; a 0-d tensor has the dimensions 0 and -1."""
    limit = max(ndim, 1)
    if not -limit <= dim < limit:
        allowed = f"[{-limit}, {limit - 1}]"
        raise DimensionError(f"{op}: Dimension out of range (expected to be in range of {allowed}, but got {dim})")
    return dim + limit if dim < 0 else dim


def wrap_dims(op: str, dims: Sequence[int], ndim: int) -> Size:
    """Return ``dims`` counted from the front; ``ArgumentError`` where a dimension is listed twice."""
    wrapped = tuple(wrap_dim(op, dim, ndim) for dim in dims)
    if len(set(wrapped)) != len(wrapped):
        twice = next(dim for dim in wrapped if wrapped.count(dim) > 1)
        raise ArgumentError(f"{op}: dim {twice} appears multiple times in the list of dims {tuple(dims)}")
    return wrapped


def infer_size(op: str, size: Size, numel: int) -> Size:
    """Return ``size`` with its -1, if any, replaced so that the shape holds ``numel`` elements."""
    unknown = [position for position, length in enumerate(size) if length == -1]
    known = math.prod(length for length in size if length != -1)
    if len(unknown) > 1:
        raise ShapeError(f"{op}: only one dimension can be inferred, got {list(size)}")
    if any(length < -1 for length in size):
        raise ShapeError(f"{op}: negative size in {list(size)}")
    if unknown and known == 0:
        wrong = f"shape '{list(size)}' is invalid for input of size {numel}"
        if not numel:
            wrong = f"cannot reshape tensor of 0 elements into shape {list(size)}"
        raise ShapeError(f"{op}: {wrong} because the unspecified dimension size -1 can be any value and is ambiguous")
    if (unknown and numel % known) or (not unknown and known != numel):
        raise ShapeError(
            f"{op}: shape {list(size)} does not hold the {numel} elements of the input: shape '{list(size)}' is "
            f"invalid for input of size {numel}"
        )
    return tuple(numel // known if length == -1 else length for length in size)


@lru_cache(maxsize=4096)
def view_strides(shape: Size, strides: Size, size: Size) -> Size | None:
    """Return the strides of a view of the shape ``size``, or None where only a copy can have it."""
    if _is_empty(shape):
        return strides if size == shape else contiguous_strides(size)
    result: list[int] = []
    remaining = len(size) - 1
    chunk, seen, base = 1, 1, strides[-1] if strides else 1
    for dim in range(len(shape) - 1, -1, -1):
        chunk *= shape[dim]
        if dim and (shape[dim - 1] == 1 or strides[dim - 1] == chunk * base):
            continue
        while remaining >= 0 and (seen < chunk or size[remaining] == 1):
            result.append(seen * base)
            seen *= size[remaining]
            remaining -= 1
        if seen != chunk:
            return None
        if dim:
            chunk, seen, base = 1, 1, strides[dim - 1]
    result.extend(seen * base for _ in range(remaining + 1))
    return tuple(reversed(result))
