"""Calls that between them need every text of this family; ``make check-kernels`` compiles the texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from server.engine.cuda.texts import Call, call, tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta

_WITH_DIM = ("sum", "mean", "nansum", "prod", "any", "all", "count_nonzero", "amax", "amin", "logsumexp", "var", "std")
_PAIRS = ("max.dim", "min.dim", "argmax", "argmin")
_SCANS = ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")


def check_calls(dtype: DType) -> Iterator[Call]:
    yield from _states(dtype)
    yield from _walks(dtype)
    yield from _scans(dtype)


def _states(dtype: DType) -> Iterator[Call]:
    """Every state that a reduction keeps, over short rows and over columns."""
    x = tensor(dtype, 64, 96)
    for name in _WITH_DIM:
        yield call(name, x, dim=1)
    for name in _PAIRS:
        yield call(name, x, dim=1)
    yield call("max", x)
    yield call("min", x)
    yield call("aminmax", x, dim=1)
    for p in (0, 1, 2, 3, float("inf"), -float("inf")):
        yield call("norm", x, p, dim=1)
    yield call("norm", x, 2, dim=1, dtype=dtypes.float64)
    yield call("sum", x, dim=1, dtype=dtypes.float64)
    yield call("any", x, dim=0)
    yield call("trace", x)


def _walks(dtype: DType) -> Iterator[Call]:
    """Every kernel: parts of a warp, rows of odd lengths, blocks, several blocks per result, columns, wide indices."""
    shapes: tuple[tuple[Meta, Any], ...] = (
        (tensor(dtype, 300, 7), 1),
        (tensor(dtype, 300, 1001), 1),
        (tensor(dtype, 300, 4001), 1),
        (tensor(dtype, 300, 65536), 1),
        (tensor(dtype, 3000000), None),
        (tensor(dtype, 5000, 700), 0),
        (tensor(dtype, 9, 5, 33), (0, 2)),
        (tensor(dtype, 64, 64, strides=(1, 64)), 1),
        (tensor(dtype, 9, 4096, strides=(8192, 2)), 1),
        (tensor(dtype, 1 << 16, 1 << 16), 1),
        (tensor(dtype, 1 << 16, 1 << 16), 0),
    )
    for x, dim in shapes:
        yield call("sum", x, dim=dim)
        if not isinstance(dim, tuple):
            yield call("argmax", x, dim=dim)


def _scans(dtype: DType) -> Iterator[Call]:
    for shape, dim in (((64, 96), 1), ((300, 4000), 1), ((1 << 20,), 0), ((96, 64), 0), ((1 << 16, 40), 0)):
        x = tensor(dtype, *shape)
        for name in _SCANS if shape == (64, 96) else ("cumsum", "cummax"):
            yield call(name, x, dim)
        yield call("_linear_recurrence", x, x, dim)
    yield call("cumsum", tensor(dtype, 1 << 16, 1 << 16), 1)
