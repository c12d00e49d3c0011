"""Calls that programs make now and then, for one element after the other: rarer functions, and gradients that repeat.

The gradient of a mean or a sum repeats one number, without memory of its own for each element, so that what comes first
in a backward pass reads it so. See ``usual_classes``.
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
from .texts import tensor as _of

_OF_ONE: Final = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cosh", "erf", "erfc", "erfinv", "exp2", "frac",
    "hardsigmoid", "hardswish", "lgamma", "digamma", "log10", "log2", "logsigmoid", "mish", "relu6", "round", "sign",
    "sinh", "tan", "trunc", "nan_to_num", "isinf", "selu", "rad2deg", "deg2rad", "logical_not",
)  # fmt: skip
_OF_TWO: Final = ("atan2", "copysign", "fmod", "remainder", "floor_divide", "hypot", "isclose", "logaddexp", "xlogy",
                  "logical_and", "logical_or")  # fmt: skip
_WITH_NUMBERS: Final = (
    ("fmod", 2.0), ("remainder", 2.0), ("floor_divide", 2.0), ("pow", 3), ("pow", 0.5), ("pow", -0.5), ("pow", -1),
    ("pow", 4), ("celu", 1.0), ("softshrink", 0.5), ("hardshrink", 0.5), ("softplus", 1.0, 20.0), ("rsub", 1.0),
    ("threshold", 0.0, 0.0), ("leaky_relu", 0.01), ("clamp", None, 1.0), ("clamp_min", 0.0), ("clamp_max", 1.0),
    ("logit", 1e-6), ("polar",), ("complex",),
)  # fmt: skip
_BACKWARD: Final = ("_relu_backward", "_gelu_backward", "_silu_backward", "_tanh_backward", "_sigmoid_backward")


def element_calls(dtype: DType) -> Iterator[Call]:
    """Those of one type of floating point."""
    yield from image_calls(dtype)
    for x in (_of(dtype, 64, 64), _of(dtype, 63, 33), _of(dtype, 64), _of(dtype)):
        yield from _functions(x)
    yield from _steps(dtype)
    for shape in ((64, 64), (63, 33), (64,), (8, 16, 14, 14)):
        yield from _of_repeated(dtype, shape)
    for end in (16, 22, 17):
        yield from _of_columns(dtype, end)
    yield from _between_types(dtype)
    yield from _losses(dtype)
    yield from _placed(dtype)


def _placed(dtype: DType) -> Iterator[Call]:
    """Gradients of views: zeros, or another gradient, with one in a part of them."""
    one = _of(dtype)
    zeros = (_of(dtype, 64, strides=(0,)), _of(dtype, 64, 32, strides=(0, 0)), _of(dtype, 63, 33, strides=(0, 0)),
             _of(dtype, 4, 16, 32, strides=(0, 0, 0)), _of(dtype, 4, 2, 16, 32, strides=(0, 0, 0, 0)))  # fmt: skip
    for repeated in zeros:
        x = _of(dtype, *repeated.shape)
        for input, dim in itertools.product((repeated, x), range(x.ndim)):
            rest, length = (*x.shape[:dim], *x.shape[dim + 1 :]), x.shape[dim]
            for src in (_of(dtype, *rest), one.view(rest, (0,) * len(rest))):
                yield call("select_scatter", input, src, dim, 1)
            for start, end in ((0, length // 2), (1, length)):
                shape = (*x.shape[:dim], end - start, *x.shape[dim + 1 :])
                for src in (_of(dtype, *shape), one.view(shape, (0,) * len(shape))):
                    yield call("slice_scatter", input, src, dim, start, end)
        if x.ndim == 2:
            for src in (_of(dtype, min(x.shape)), one.view(x.shape[1:], (0,))):
                yield call("diagonal_scatter", repeated, src)
        for dim in range(x.ndim):
            yield call("repeat_interleave", x, 2, dim)
    for length in (1, 16, 17):
        yield call("repeat_interleave", _of(dtype, 4, 2, length, 16, strides=(64 * length, 16, 64, 1)), 2, 1)
    yield call("diag_embed", _of(dtype, 64))


def _losses(dtype: DType) -> Iterator[Call]:
    """Losses of each element, whose targets may be parts of others, or fewer."""
    for shape in ((64, 64), (63, 33), (64,), ()):
        x = _of(dtype, *shape)
        others = [x, _of(dtype), _of(dtype, *shape[-1:])]
        if len(shape) > 1:
            others += [_of(dtype, *shape, strides=(2 * shape[1], 1)), _of(dtype, shape[0], 1)]
        for first, second in [(x, other) for other in others] + [(other, x) for other in others]:
            yield call("_squared_error", first, second)
            yield call("_huber_error", first, second, 1.0)
            yield call("_bce_with_logits", first, second)


def _functions(x: Meta) -> Iterator[Call]:
    for name in _OF_ONE:
        yield call(name, x)
    for name in _OF_TWO:
        yield call(name, x, x)
    for name, *given in _WITH_NUMBERS:
        if given:
            yield call(name, x, *given)
        elif x.dtype is dtypes.float32:
            yield call(name, x, x)


def _steps(dtype: DType) -> Iterator[Call]:
    """What averages of weights and optimizers that a program has written itself do."""
    for shape in ((64, 64), (63, 33), (64,), ()):
        x = _of(dtype, *shape)
        for ending in ("", "_"):
            yield call(f"lerp{ending}", x, x, 0.1)
            yield call(f"addcmul{ending}", x, x, x, value=0.5)
            yield call(f"addcdiv{ending}", x, x, x, value=-0.5)
        for weight in (_of(dtype), _of(dtype, *shape[-1:])):
            yield call("addcmul", x, x, weight)
            yield call("lerp", x, x, weight)
        for number in (_of(dtype), _of(dtype, 1))[: 1 + len(shape)]:
            for name in ("mul_", "div_", "add_", "sub_"):
                yield call(name, x, number)


def _of_repeated(dtype: DType, shape: Size) -> Iterator[Call]:
    """What is computed of a gradient that repeats one number, or a row, or a column of them."""
    x, mask = _of(dtype, *shape), _of(dtypes.bool_, *shape)
    for strides in _repeating(shape):
        one = _of(dtype, *shape, strides=strides)
        for name, second in itertools.product(
            ("add", "sub", "mul", "div"), (x, one, _of(dtype), _of(dtype, *shape[-1:]))
        ):
            yield call(name, one, second)
            yield call(name, second, one)
        yield call("mul", one, mask)
        yield call("mul", x, mask)
        yield call("masked_fill", one, mask, 0.0)
        yield call("native_dropout_backward", one, mask, 1.25)
        yield call("where", mask, one, one)
        yield call("where", mask, one, x)
        yield call("eq", one, 0)
        for name in ("reciprocal", "neg", "exp", "sgn", "clone"):
            yield call(name, one)
        for name in _BACKWARD:
            yield call(name, one, x)
        for dim in range(len(shape)):
            yield call("sum", one, (dim,))
        yield call("sum", one, None)
        if len(shape) == 2:
            for column in (_of(dtype, shape[0], 1), _of(dtype, 1, shape[1])):
                yield call("mul", one, column)
                yield call("div", one, column)
            for name in ("triu", "tril"):
                yield call(name, one, 0)


def _of_columns(dtype: DType, end: int) -> Iterator[Call]:
    """What is computed of rows that each have a number or a mark of their own, as norms and masks of attention are."""
    x, repeated, mark = _of(dtype, 12, end), _of(dtype, 12, end, strides=(1, 0)), _of(dtypes.bool_, 12, 1)
    for name in ("reciprocal", "sgn", "clone", "neg"):
        yield call(name, repeated)
    yield call("eq", repeated, 0)
    for name in ("mul", "div"):
        yield call(name, repeated, x)
        yield call(name, x, repeated)
    for mask in (mark, _of(dtypes.bool_, 12, end, strides=(1, 0))):
        yield call("masked_fill", x, mask, 0.0)
        yield call("where", mask, x, 0.0)
        yield call("where", mask, 0.0, x)
        yield call("where", mask, x, x)
    yield call("_in_layout", repeated, (end, 1))
    for shape in ((64,), (64, 1)):
        yield call("_in_layout", _of(dtype, *shape, strides=(0,) * len(shape)), Meta.of(shape, dtype).strides)


def _repeating(shape: Size) -> Iterator[Size]:
    yield (0,) * len(shape)
    if len(shape) == 2:
        yield from ((1, 0), (0, 1))


def _between_types(dtype: DType) -> Iterator[Call]:
    """Conversions of gradients that repeat, and counts beside sums."""
    for shape, other in itertools.product(
        ((64, 64), (63, 33), (64,)), (dtypes.float32, dtypes.float16, dtypes.bfloat16)
    ):
        if other is not dtype:
            yield call("_to_copy", _of(dtype, *shape, strides=(0,) * len(shape)), dtype=other)
    for count in (_of(dtypes.int64), _of(dtypes.float32)):
        yield call("div", _of(dtype), count)
        yield call("mul", _of(dtype), count)
    yield call("sub", _of(dtype, 1), _of(dtypes.int64, 1))


def other_calls() -> Iterator[Call]:
    """Those of complex numbers, which spectra are, and of doubles; drawn numbers, and places in sorted ones."""
    for dtype in (dtypes.complex64, dtypes.float64):
        for shape in ((64, 64), (64, 33), (64,)):
            yield from _of_any_type(_of(dtype, *shape))
    for shape in ((64, 64), (64, 33), (64,)):
        x, real = _of(dtypes.complex64, *shape), _of(dtypes.float32, *shape)
        for name in ("abs", "angle", "sgn", "conj_physical"):
            yield call(name, x)
        for name, factor in itertools.product(
            ("mul", "div"), (real, _of(dtypes.float32, *shape[-1:]), x, _of(x.dtype))
        ):
            yield call(name, x, factor)
            yield call(name, factor, x)
        part = _of(dtypes.float32, *shape, strides=tuple(2 * stride for stride in x.strides))  # real or imaginary
        for name in ("abs", "square", "neg", "clone", "sgn"):
            yield call(name, part)
        for name in ("add", "sub", "mul"):
            yield call(name, part, part)
            yield call(name, part, real)
            yield call(name, part, 2.0)
        for name in ("sum", "mean"):
            yield call(name, part, None)
            for dim in range(len(shape)):
                yield call(name, x, (dim,))
        yield call("mul", x, 1j)
        for name in ("bernoulli_", "exponential_"):
            yield call(name, real, 0.5)
        yield call("sum", _of(dtypes.float64, *shape), None)
        yield call("_to_copy", _of(dtypes.float64, *shape, strides=(0,) * len(shape)), dtype=dtypes.float32)
    for steps in (2, 50, 1000):
        yield call("linspace", 0, 1, steps, device=DEVICE)
    for dtype, is_right in itertools.product((dtypes.float32, dtypes.int64), (False, True)):
        yield call("searchsorted", _of(dtype, 128), _of(dtype, 64), right=is_right)
    for length in (5, 33, 64, 100, 200, 400, 1001, 2000, 4096, 20000):
        yield call("median.dim", _of(dtypes.float32, length), 0)
        yield call("median.dim", _of(dtypes.float32, 64, length), 1)


def _of_any_type(x: Meta) -> Iterator[Call]:
    for name in ("add", "sub", "mul", "div"):
        yield call(name, x, x)
        yield call(name, x, 2.0)
        yield call(name, x, _of(x.dtype))
    for name in ("neg", "exp", "reciprocal", "square", "clone", "sqrt"):
        yield call(name, x)
    for other in (dtypes.float32, dtypes.int64):
        if not x.dtype.is_complex:
            yield call("_to_copy", x, dtype=other)
        yield call("_to_copy", _of(other, *x.shape), dtype=x.dtype)
    yield call(
        "_in_layout",
        _of(x.dtype, *x.shape[::-1], strides=Meta.of(x.shape, x.dtype).strides[::-1]),
        Meta.of(x.shape[::-1], x.dtype).strides,
    )


def image_calls(dtype: DType) -> Iterator[Call]:
    """Borders that repeat what is within, sizes between whole ones, and channels that become pixels."""
    for side in (16, 15, 32):
        picture = _of(dtype, 8, 16, side, side)
        for mode, dim in itertools.product(("reflect", "replicate", "circular"), (2, 3)):
            yield call("_pad_border", picture, dim, 1, 1, mode)
        for weight in (_of(dtype, side, 1), _of(dtype, side)):
            yield call("addcmul", picture, picture, weight)
            yield call("mul", picture, weight)
        yield call("_adaptive_max_pool", picture, (2, 2))
        yield call(
            "_in_layout",
            _of(
                dtype,
                8,
                4,
                side,
                2,
                side,
                2,
                strides=(16 * side * side, 4 * side * side, side, 2 * side * side, 1, side * side),
            ),
            Meta.of((8, 4, side, 2, side, 2), dtype).strides,
        )
