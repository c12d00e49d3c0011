"""Calls that between them need every text of this family; ``make check-kernels`` compiles the texts."""

from __future__ import annotations

from collections.abc import Iterator

from server.engine.cuda.texts import Call, call, tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType


def check_calls(dtype: DType) -> Iterator[Call]:
    for kind in (dtypes.int64, dtypes.int32):
        yield from _reads(dtype, kind)
    yield from _writes(dtype)
    mask = tensor(dtypes.bool_, 40, 64)
    yield call("index_put", tensor(dtype, 40, 64), (mask,), tensor(dtype, 1), False)
    yield call("index_put", tensor(dtype, 40, 64), (mask,), 1, False)
    yield call("masked_scatter", tensor(dtype, 40, 64), mask, tensor(dtype, 2560))
    yield from _rows(dtype)


def _reads(dtype: DType, kind: DType) -> Iterator[Call]:
    x, vector = tensor(dtype, 40, 64), tensor(kind, 9)
    yield call("gather", x, 1, tensor(dtypes.int64, 40, 9))
    yield call("index_select", x, 0, vector)
    yield call("index_select", x, 1, vector)
    yield call("index", x, (vector, vector))
    yield call("index", x, (None, vector))
    yield call("take", x, vector)
    yield call("_embedding", vector, x, -1, False)
    yield call("embedding_dense_backward", tensor(dtype, 9, 64), vector, 40, 2, False)
    yield call("embedding_dense_backward", tensor(dtype, 9, 64), vector, 40, -1, True)
    yield call("embedding_dense_backward", tensor(dtype, 4096, 1024), tensor(kind, 4096), 40, -1, False)
    yield call("one_hot", vector, 10)


def _writes(dtype: DType) -> Iterator[Call]:
    x, index, vector = tensor(dtype, 40, 64), tensor(dtypes.int64, 40, 9), tensor(dtypes.int64, 9)
    source = tensor(dtype, 40, 9)
    for reduce in (None, "add", "multiply"):
        yield call("scatter", x, 1, index, source, reduce=reduce)
        yield call("scatter.value", x, 1, index, 2, reduce=reduce)
    yield call("scatter_add", x, 1, index, source)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        yield call("scatter_reduce", x, 1, index, source, reduce)
        yield call("scatter_reduce", x, 1, index, source, reduce, include_self=False)
    for alpha in (1, 2):
        yield call("index_add", x, 1, vector, source, alpha=alpha)
    yield call("index_copy", x, 1, vector, source)
    yield call("index_fill", x, 1, vector, 3)
    for accumulate in (False, True):
        yield call("index_put", x, (None, vector), source, accumulate)
        yield call("put", x, vector, tensor(dtype, 9), accumulate)


def _rows(dtype: DType) -> Iterator[Call]:
    """What has kernels of its own: sums within rows in shared memory, and sums of whole rows of halves."""
    rows, index = tensor(dtype, 128, 512), tensor(dtypes.int64, 128, 512)
    yield call("scatter_add", rows, 1, index, rows)
    yield call("scatter_reduce", rows, 1, index, rows, "sum")
    target, source = tensor(dtype, 100, 256), tensor(dtype, 2048, 256)
    for kind in (dtypes.int64, dtypes.int32):
        for alpha in (1, 2):
            yield call("index_add", target, 0, tensor(kind, 2048), source, alpha=alpha)
        yield call("index_put", target, (tensor(kind, 2048),), source, True)
    yield call("index_add", tensor(dtype, 100, 257), 0, tensor(dtypes.int64, 2048), tensor(dtype, 2048, 257))
