"""Calls of every class of layouts: operands that broadcast, parts of tensors, heads, transposes and masks.

How many dimensions are left of a layout, and the widest access that its sizes and strides allow, are in a text. See
``usual_classes``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from server.engine.array_library.dtypes import HALVES
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta

from .texts import DEVICE, Call, call
from .usual_lines import TYPES

_SLICED: Final = (
    "sigmoid", "tanh", "relu", "gelu", "silu", "exp", "neg", "square", "sin", "cos", "sqrt", "reciprocal", "abs", "log",
    "clone",
)  # fmt: skip
_BACKWARD: Final = ("_relu_backward", "_gelu_backward", "_silu_backward", "_tanh_backward", "_sigmoid_backward")
_SIDES: Final = (64, 36, 34, 33)
"""Sides of matrices that are transposed by tiles, one for each width of access."""


def layout_calls(dtype: DType) -> Iterator[Call]:
    """Those of one type of floating point."""
    yield from _layouts(dtype)
    yield from _copies(dtype)
    yield from _transposes(dtype)


def _of(dtype: DType, *shape: int, strides: Size | None = None, offset: int = 0) -> Meta:
    return Meta.of(shape, dtype, DEVICE, strides, offset)


def _ends(dtype: DType) -> tuple[int, ...]:
    """Sizes of the last dimension, one for each width of access."""
    return (16, 20, 22, 17) if dtype in HALVES else (16, 22, 17)


def _layouts(dtype: DType) -> Iterator[Call]:
    """Element-wise operations whose operands do not lie alike."""
    for end in _ends(dtype):
        whole, part = _of(dtype, 12, end), _of(dtype, 12, end, strides=(2 * end, 1))
        for name in _SLICED:
            yield call(name, part)
        for name in _BACKWARD:
            yield call(name, whole, part)
            yield call(name, part, whole)
        for name, number in itertools.product(("add", "mul", "div", "sub", "pow"), (0.5, 2)):
            yield call(name, part, number)
            if name in ("add", "mul", "sub"):
                yield call(name, number, part)
        for first, second in _pairs(dtype, end):
            for name in ("add", "mul", "sub", "div"):
                yield call(name, first, second)
                yield call(name, second, first)
            yield call("add_", first, second)
        for name in ("lt", "gt", "eq", "ge"):
            yield call(name, whole, _of(dtype, 12, 1))
        for mask in _masks_of(end):
            grid = _of(dtype, 3, 4, end, end)
            yield call("masked_fill", grid, mask, float("-inf"))
            yield call("where", mask, grid, 0.0)
            yield call("where", mask, 0.0, grid)
    flat = _of(dtype, 64)
    for offset in (1, 2, 4):
        moved = _of(dtype, 64, offset=offset)  # a row of a matrix, which begins anywhere
        for name in ("add", "sub", "mul"):
            yield call(name, flat, moved)
            yield call(name, moved, flat)
            yield call(name, moved, moved)
        for name in (*_SLICED, "logical_not", "isnan"):
            yield call(name, moved)
        for name, number in itertools.product(("add", "mul", "div", "sub", "pow", "lt", "gt", "eq"), (0.5, 2)):
            yield call(name, moved, number)
        for other in (*TYPES, dtypes.int64, dtypes.bool_):
            yield call("_to_copy", moved, dtype=other)
            yield call("copy_", _of(other, 64), moved)
            yield call("copy_", moved, _of(other, 64))
        yield call("masked_fill", moved, _of(dtypes.bool_, 64), 0.0)
    if dtype in HALVES:
        wide = _of(dtypes.float32, 4, 64)
        for name in ("add", "mul", "sub"):
            yield call(name, wide, _of(dtype, 4, 64))
            yield call(name, _of(dtype, 4, 64), wide)
    for end in _ends(dtype):  # the gradient of a mean over each channel's plane, which repeats it
        plane = _of(dtype, 4, end, 5, 8, strides=(40 * end, 1, 8 * end, end))
        one = _of(dtype, 4, end, 5, 8, strides=(end, 1, 0, 0))
        for name in (*_BACKWARD, "mul", "add"):
            yield call(name, one, plane)
            yield call(name, one, _of(dtype, 4, end, 5, 8))
            yield call(name, _of(dtype, 4, 5, end, strides=(5, 1, 0)), _of(dtype, 4, 5, end))
    for name in ("xlogy", "remainder", "floor_divide", "atan2"):
        yield call(name, _of(dtype, 64), _of(dtype, 64))


def _pairs(dtype: DType, end: int) -> Iterator[tuple[Meta, Meta]]:
    whole, part = _of(dtype, 12, end), _of(dtype, 12, end, strides=(2 * end, 1))
    heads = _of(dtype, 3, 4, 5, end, strides=(20 * end, end, 4 * end, 1))
    yield from ((whole, _of(dtype, end)), (whole, _of(dtype, 12, 1)), (whole, part), (part, whole), (part, part))
    yield from ((part, _of(dtype, end)), (part, _of(dtype, 12, 1)))
    for second in (_of(dtype, 3, 1, end), _of(dtype, 1, 4, 1), _of(dtype, 1, 4, end), _of(dtype, 3, 1, 1)):
        yield _of(dtype, 3, 4, end), second
    yield from ((heads, heads), (heads, _of(dtype, 5, end)), (heads, _of(dtype, 3, 4, 5, end)))
    yield _of(dtype, 3, 4, 5, end), _of(dtype, 5, end)
    yield _of(dtype, 3, 4, 5, end), heads


def _masks_of(end: int) -> Iterator[Meta]:
    for shape in ((end, end), (3, 1, 1, end), (3, 1, end, end), (3, 4, end, end)):
        yield _of(dtypes.bool_, *shape)


def _copies(dtype: DType) -> Iterator[Call]:
    """Parts of tensors, heads, transposes, and what is put together."""
    for end in (*_ends(dtype), 64):
        layouts: Sequence[tuple[Size, Size]] = (
            ((12, end), (2 * end, 1)), ((12, end), (end + 1, 1)), ((3, 5, end), (7 * end, end, 1)),
            ((3, 4, 5, end), (20 * end, end, 4 * end, 1)), ((3, 4, 5, end), (60 * end, end, 12 * end, 1)),
            ((3, 4, 5, end), (5 * end, 0, end, 1)), ((3, 4, end, 5), (20 * end, end, 1, 4 * end)),
            ((3, end, 40), (40 * end, 1, end)), ((end, 40), (1, end)), ((3, 5, end), (end, 3 * end, 1)),
            ((3, 4, 40, end), (160 * end, 40 * end, 1, 40)), ((3, 2, 2, 5, end), (10 * end, 5 * end, 0, end, 1)),
            ((12, end), (1, 0)), ((12, end), (0, 1)), ((12, end), (0, 0)),
        )  # fmt: skip
        for shape, strides in layouts:
            x = _of(dtype, *shape, strides=strides)
            yield call("_in_layout", x, Meta.of(shape, dtype).strides)
            yield call("copy_", _of(dtype, *shape), x)
            if 0 not in strides:
                yield call("copy_", x, _of(dtype, *shape))
        for shape, dim in (((12, end), 1), ((3, 5, end), 1), ((3, 4, 5, end), 2), ((3, 4, 5, end), 3), ((12, end), 0)):
            for count in (2, 3, 4):
                yield call("cat", (_of(dtype, *shape),) * count, dim)
        for other in (*TYPES, dtypes.int64, dtypes.bool_, dtypes.uint8):
            part = _of(other, 12, end, strides=(2 * end, 1))
            if other is not dtype:
                yield call("_to_copy", part, dtype=dtype)
                yield call("_to_copy", _of(dtype, 12, end, strides=(2 * end, 1)), dtype=other)


def _transposes(dtype: DType) -> Iterator[Call]:
    for rows, columns in itertools.product(_SIDES, _SIDES):
        for shape, strides in (
            ((rows, columns), (1, rows)), ((3, rows, columns), (rows * columns, 1, rows)),
            ((3, 4, rows, columns), (8 * rows * columns, rows * columns, 1, rows)),
            ((3, rows, columns), (3 * rows * columns, 1, 3 * rows)),
        ):  # fmt: skip
            x = _of(dtype, *shape, strides=strides)
            yield call("_in_layout", x, Meta.of(shape, dtype).strides)
            yield call("copy_", x, _of(dtype, *shape))
        beside = _of(dtype, 3, rows, columns)
        yield call("cat", (beside, _of(dtype, 3, rows, columns, strides=(rows * columns, 1, rows)), beside), -1)


def mask_calls() -> Iterator[Call]:
    truth = dtypes.bool_
    for end in (16, 24, 20, 22, 17):
        for name in ("logical_and", "logical_or", "bitwise_and", "bitwise_or"):
            for mask in _masks_of(end):
                yield call(name, _of(truth, end, end), mask)
                yield call(name, mask, _of(truth, end, end))
        yield call("bitwise_not", _of(truth, end, end))
        yield call("logical_not", _of(truth, end, end))
        yield call("any", _of(truth, 12, end), 1)
        yield call("all", _of(truth, 12, end), 1)
