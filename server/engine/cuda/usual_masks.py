"""Calls that masks and draws by weights are made of, and losses of probabilities: see ``usual_classes``.

How many elements a mask selects only data can tell, so that numbers here stand for classes of lengths.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

from .texts import DEVICE, Call, call
from .texts import tensor as _of
from .usual_lines import TYPES, reduced_lengths

_LINES: Final = (
    1,
    3,
    10,
    33,
    64,
    100,
    128,
    200,
    256,
    500,
    784,
    1000,
    1024,
    2048,
    4096,
    5000,
    1 << 14,
    1 << 17,
    1 << 20,
)
"""How many elements masks have."""


def selection_calls() -> Iterator[Call]:
    """Those of all types."""
    yield from _places()
    for dtype in (*TYPES, dtypes.int64, dtypes.bool_):
        yield from _selected(dtype)
    for dtype in TYPES:
        yield from _weighed(dtype)


def _places() -> Iterator[Call]:
    """The places of what is set: running sums, searches in them, and coordinates."""
    for length in _LINES:
        for dtype in (dtypes.bool_, dtypes.int64):
            yield call("cumsum", _of(dtype, length), 0)
        yield call("aminmax", _of(dtypes.int64, length))
    line = _of(dtypes.int64, 64)
    for right in (False, True):
        yield call("searchsorted", line, line, right=right)
    for number in (5, 8):
        yield call("floor_divide", line, number)
        yield call("remainder", line, number)
    yield call("stack", (line, line), 0)
    yield call("stack", (line,), 0)
    yield call("zeros", (64,), dtype=dtypes.int64, device=DEVICE)
    yield call("ones_like", line)
    yield call("scatter_add_", line, 0, line, line)
    for dtype in (dtypes.uint8, dtypes.int32, dtypes.int64):
        yield call("ne", _of(dtype, 64), 0)
        yield call("_to_copy", _of(dtype, 64), dtype=dtypes.int64)


def _selected(dtype: DType) -> Iterator[Call]:
    """What is read and written at the places of what is set."""
    places = _of(dtypes.int64, 9)
    yield call("ne", _of(dtype, 64), 0)
    for width in (None, 1, 3, 4, 8, 10, 16, 33, 64):
        x = _of(dtype, 64) if width is None else _of(dtype, 64, width)
        rows = _of(dtype, 9) if width is None else _of(dtype, 9, width)
        yield call("index", x, (places,))
        for values in (rows, _of(dtype)):
            yield call("index_put_", x, (places,), values, False)
    for shape in ((8, 8), (63, 33), (4, 3, 5)):
        x = _of(dtype, *shape)
        yield call("take", x, places)
        yield call("index", x, (places, places))
        yield call("index_put_", x, (places, places), _of(dtype, 9, *shape[2:]), False)
        for mask in (_of(dtypes.bool_, *shape), _of(dtypes.bool_, shape[0], *(1,) * (len(shape) - 1))):
            yield call("masked_fill_", x, mask, 0)
            yield call("masked_fill_.Tensor", x, mask, _of(dtype))
        yield call("put_", x, places, _of(dtype, 9))


def _weighed(dtype: DType) -> Iterator[Call]:
    """Draws by weights, normal numbers of other scales, and losses of probabilities."""
    double = dtypes.float64
    for shape in ((64,), (8, 10), (8, 64), (63, 33)):
        x = _of(dtype, *shape)
        yield call("multinomial", x, 1)
        yield call("_to_copy", x, dtype=double)
        yield call("_bce", x, x)
        for name in ("normal_", "mul_", "add_"):
            yield call(name, x, *((x,) if name != "normal_" else ()))
    yield call("exponential_", _of(double, 8, 64))
    yield call("div", _of(double, 8, 64), _of(double, 8, 64))
    for length, count in itertools.product(reduced_lengths(), (1, 8)):
        line = _of(double, count, length)
        yield call("argmin", line, -1, True)
        yield call("cumsum", line, -1)
        yield call("topk", line, 1, -1, False)
    rows, drawn = _of(double, 8, 64), _of(double, 8, 5)
    yield call("searchsorted", rows, drawn, right=True)
    yield call("searchsorted", _of(double, 64), _of(double, 5), right=True)
    yield call("rand", (8, 5), dtype=double, device=DEVICE)
    yield call("mul", drawn, _of(double, 8, 1, strides=(64, 1)))
