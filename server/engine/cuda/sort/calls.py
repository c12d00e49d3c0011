"""Calls that between them need every text of this family; ``make check-kernels`` compiles the texts."""

from __future__ import annotations

from collections.abc import Iterator

from server.engine.cuda.texts import Call, call, tensor
from telegrad_protocol.dtypes import DType


def check_calls(dtype: DType) -> Iterator[Call]:
    for length in (20, 100, 3000, 7000, 40000):
        x = tensor(dtype, 64, length)
        yield call("sort", x)
        yield call("median.dim", x, 1)
        yield call("kthvalue", x, 3, 1)
    yield call("sort", tensor(dtype, 64, 64, strides=(1, 64)), 0, True)
    yield call("sort", tensor(dtype, 1 << 20, 1 << 12))
    yield call("argsort", tensor(dtype, 64, 100))
    for lines, length, k in ((64, 5000, 10), (1, 1 << 20, 10), (64, 5000, 1000), (64, 100, 10)):
        yield call("topk", tensor(dtype, lines, length), k)
    yield call("topk", tensor(dtype, 64, 5000), 10, 1, False)
    for right in (False, True):
        yield call("searchsorted", tensor(dtype, 100), tensor(dtype, 64, 64), right=right)
        yield call("bucketize", tensor(dtype, 64, 64), tensor(dtype, 100), right=right, out_int32=True)
    yield call("searchsorted", tensor(dtype, 64, 100), tensor(dtype, 64, 7))
