"""Calls that between them need every text of this family; ``make check-kernels`` compiles the texts."""

from __future__ import annotations

from collections.abc import Iterator

from server.engine.cuda.texts import Call, call, tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType


def check_calls(dtype: DType) -> Iterator[Call]:
    two, unit = (2, 2), (1, 1)
    yield call("im2col", tensor(dtype, 2, 3, 12, 12), two, unit, unit, unit)
    if dtype.is_floating_point:
        yield call("fold", tensor(dtype, 2, 12, 36), (12, 12), two, unit, (0, 0), two)
    if dtype.is_complex or dtype is dtypes.bool_:
        return
    last = tensor(dtype, 2, 16, 12, 12, strides=(2304, 1, 192, 16))
    for x in (tensor(dtype, 2, 16, 12, 12), last):
        out_strides = None if x.is_contiguous else (576, 1, 96, 16)
        out = tensor(dtype, 2, 16, 6, 6, strides=out_strides)
        places = tensor(dtypes.int64, 2, 16, 6, 6, strides=out_strides)
        pair, unit, zero = (2, 2), (1, 1), (0, 0)
        yield call("_max_pool", x, pair, pair, zero, unit, False)
        yield call("_max_pool_backward", out, places, (12, 12), pair, pair, zero, unit)
        for include, divisor in ((True, None), (False, None), (True, 3)):
            yield call("_avg_pool", x, pair, pair, zero, False, include, divisor)
            yield call("_avg_pool_backward", out, (12, 12), pair, pair, zero, False, include, divisor)
        yield call("_adaptive_avg_pool", x, (5, 5))
        yield call("_adaptive_max_pool", x, (5, 5))
        grad = tensor(dtype, 2, 16, 6, 6, strides=out_strides)
        yield call("_adaptive_avg_pool_backward", grad, (12, 12))
    for shape, size in (((2, 16, 12), (3,)), ((2, 16, 8, 8, 8), (2, 2, 2)), ((2, 16, 4096), (1024,))):
        x, zeros, ones = tensor(dtype, *shape), (0,) * len(size), (1,) * len(size)
        yield call("_max_pool", x, size, size, zeros, ones, False)
        yield call("_avg_pool", x, size, size, zeros, False, True, None)
        yield call("_adaptive_avg_pool", x, ones)
