"""Calls of every class of lengths: reductions, norms, softmax, losses, running sums, sorts and selections.

See ``usual_classes``. How long rows are in steps, and the widest access that lengths and offsets allow, are in a text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta

from .texts import DEVICE, Call, call

TYPES: Final = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
_WIDTHS: Final = (1, 2, 4, 8)
"""Elements of the widest access; a type of four bytes has the last two in one class."""
_REDUCED: Final = ("sum", "mean")
_RARELY_REDUCED: Final = ("amax", "amin", "argmax", "argmin", "max.dim", "min.dim", "logsumexp", "var", "std", "norm")
_BY_DIMENSION: Final = ("argmax", "argmin", "max.dim", "min.dim", "logsumexp")


def _of(dtype: DType, *shape: int, strides: Size | None = None, offset: int = 0) -> Meta:
    return Meta.of(shape, dtype, DEVICE, strides, offset)


def reduced_lengths() -> list[int]:
    """Lengths of lines to reduce: each access width with each number of accesses of a thread, and longer ones."""
    short = {width * units for width in _WIDTHS for units in (3, 45, 101, 201)}
    return sorted(short | {131, 301, 602, 701, 1001, 1204, 1402, 1501, 4001})


def held_lengths(width: int, longest: int = 1 << 15) -> list[int]:
    """Lengths of rows that threads hold, whose widest access is ``width``: three in each octave."""
    wanted = [part << octave >> 3 for octave in range(16) for part in (9, 11, 15)]
    lengths = {(max(length // width, 1) | 1) * width for length in wanted}
    return sorted(length for length in lengths if length <= longest)


def line_calls(dtype: DType) -> Iterator[Call]:
    """Those of one type of floating point."""
    yield from _reductions(dtype)
    for width, longest in ((1, 1 << 15), (2, 64), (4, 64), (8, 1 << 15)):
        for length in held_lengths(width, longest):
            x = _of(dtype, 64, length)
            for name in ("softmax", "log_softmax"):
                yield call(name, x, -1)
                yield call(f"_{name}_backward_data", x, x, -1, dtype)
    for width in (4, 8):
        for length in held_lengths(width, 1 << 13):
            yield from _norms(dtype, length)
    for length in (*held_lengths(1, 1 << 13), *held_lengths(8)):
        yield call("_layer_norm", _of(dtype, 64, length), (length,), None, None, 1e-5)
    for length in (3, 20, 100, 200, 1001, 5000, 20001, 50257):
        yield from _labelled(dtype, length)
    for classes in (3, 20, 40, 100, 200, 1001, 5000):
        yield from _classes_first(dtype, classes)
    for width, units in itertools.product(_WIDTHS, (1, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025, 2049, 8193)):
        for name in ("cumsum", "cumprod"):
            yield call(name, _of(dtype, 64, width * units), 1)
    for length in (3, 33, 64, 80, 100, 130, 200, 400, 1001, 4001, 1 << 20):
        x = _of(dtype, length)
        yield call("dot", x, x)
        for name in ("sum", "mean"):
            yield call(name, _of(dtype, length, strides=(length + 1,)), None)  # of a diagonal
        for name in ("min", "argmin", "aminmax", "count_nonzero", "prod"):
            yield call(name, x)
    for lines, length in ((64, 128), (10, 64), (33, 17), (5, 1000)):
        x, repeated = _of(dtype, lines, length), _of(dtype, lines, length, strides=(0, 0))
        for given in (x, repeated):
            yield call("_softmax_backward_data", given, x, 0, dtype)
            yield call("_log_softmax_backward_data", given, x, 0, dtype)
        for name in ("softmax", "log_softmax"):
            yield call(name, x, 0)
        for exponent in (1, float("inf")):
            yield call("norm", x, exponent, (1,))
            yield call("norm", x, exponent)


def _norms(dtype: DType, length: int) -> Iterator[Call]:
    x, weight, statistic = _of(dtype, 64, length), _of(dtype, length), _of(dtypes.float32, 64, 1)
    yield call("_layer_norm", x, (length,), weight, weight, 1e-5)
    yield call("_layer_norm_gradients", x, x, statistic, statistic, weight, (length,))
    yield call("_layer_norm_backward", x, x, statistic, statistic, weight)
    yield call("_rms_norm", x, (length,), weight, 1e-6)
    yield call("_rms_norm_gradients", x, x, statistic, weight, (length,))


def _labelled(dtype: DType, length: int) -> Iterator[Call]:
    x, labels = _of(dtype, 64, length), _of(dtypes.int64, 64)
    yield from _cross_entropies(x, labels)
    yield call("_nll_loss_forward", x, labels, None, "mean", -100)
    for total in {_of(dtype), _of(dtypes.float32)}:
        yield call("_nll_loss_backward", _of(dtype), labels, None, total, (64, length), "mean", -100)


def _classes_first(dtype: DType, classes: int) -> Iterator[Call]:
    """Cross entropy of scores whose classes come before their places, as sequences and images have them."""
    for places, strides in (((25,), None), ((25,), (25 * classes, 1, classes)), ((7, 9), None)):
        x = _of(dtype, 4, classes, *places, strides=strides)
        yield from _cross_entropies(x, _of(dtypes.int64, 4, *places))


def _cross_entropies(x: Meta, labels: Meta) -> Iterator[Call]:
    """Cross entropy of scores, with and without smoothing, and its gradient."""
    sums, total = _of(dtypes.float32, *labels.shape), _of(dtypes.float32)
    for smoothing in (0.0, 0.1):
        yield call("_cross_entropy", x, labels, None, "mean", -100, smoothing, None)
        for grad in {_of(x.dtype), total}:
            yield call("_cross_entropy_backward", grad, x, labels, None, sums, total, "mean", -100, smoothing)


def _reductions(dtype: DType) -> Iterator[Call]:
    for name in (*_REDUCED, *_RARELY_REDUCED):
        for length in reduced_lengths():
            yield _reduction(name, _of(dtype, 64, length), (1,))
        for width in _WIDTHS:
            yield _reduction(name, _of(dtype, 40, 5 * width), (0,))
            yield _reduction(name, _of(dtype, 3, 40, 5 * width), (1,))
    for name, width in itertools.product(_REDUCED, _WIDTHS):
        for rows in (3, 9, 21, 45, 101):  # a channel of images, whose lines lie apart
            yield _reduction(name, _of(dtype, 2, 5, rows, width), (0, 2, 3))
        yield _reduction(name, _of(dtype, 4, 5, 901, width), (0, 2, 3))
        yield _reduction(name, _of(dtype, 3, 4, 5, 5 * width), (0, 2))
        yield _reduction(name, _of(dtype, 3, 4, 5, 5 * width), (1, 2))
        yield _reduction(name, _of(dtype, 3, 4, 5 * width, strides=(40 * width, 10 * width, 1)), (1,))
        yield _reduction(name, _of(dtype, 3, 4, 7, 5 * width), (1,))


def _reduction(name: str, x: Meta, dims: tuple[int, ...]) -> Call:
    if name == "norm":
        return call(name, x, 2, dims)
    return call(name, x, dims[0] if name in _BY_DIMENSION else dims)


def order_calls() -> Iterator[Call]:
    """Sorts of lines of every class of lengths, which selection and sums of rows by index use too."""
    for dtype in (dtypes.int64, *TYPES):
        for length in (20, 50, 100, 200, 400, 1000, 2000, 4000, 8000, 20000):
            for descending in (False, True):
                yield call("sort", _of(dtype, 4, length), -1, descending)
        for k, (lines, length) in itertools.product((10, 200), ((64, 5000), (1, 1 << 20), (1, 50257), (1, 1 << 16))):
            yield call("topk", _of(dtype, lines, length), k)
