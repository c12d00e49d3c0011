"""Calls that between them need every text of this family; ``make check-kernels`` compiles the texts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from server.engine.cuda.texts import Call, call, tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

from .hopper_kernel_text import BLOCKS, CAPACITIES, TILINGS

HEADS = BLOCKS, BLOCKS * (CAPACITIES[0] // BLOCKS + 1)
"""Heads of 128 rows for which the kernel of Hopper has each of its capacities for the order of tiles."""


def check_calls(dtype: DType) -> Iterator[Call]:
    if dtype.is_floating_point:
        yield from _tiled(dtype)
        yield from few_rows(dtype, (32, 33, 256))
    if dtype in (dtypes.float16, dtypes.bfloat16):
        yield from _hopper(dtype)


def _tiled(dtype: DType) -> Iterator[Call]:
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    for width, width_out in ((24, 24), (40, 24), (64, 64), (128, 128)):
        query, key = tensor(dtype, 2, 4, 70, width), tensor(dtype, 2, 2, 150, width)
        value, out = tensor(dtype, 2, 2, 150, width_out), tensor(dtype, 2, 4, 70, width_out)
        for mask in (None, tensor(dtypes.bool_, 70, 150), tensor(dtype, 70, 150)):
            yield call("_attention", query, key, value, mask, False, 1.0, True)
            logsum = tensor(wide, 2, 4, 70)
            yield call("_attention_backward", out, query, key, value, mask, out, logsum, False, 1.0)


def _hopper(dtype: DType) -> Iterator[Call]:
    """Every width of heads, and every capacity for the order of tiles."""
    for width in TILINGS:
        for heads in HEADS:
            operand = tensor(dtype, heads, 1, 128, width)
            yield call("_attention", operand, operand, operand, None, True, 1.0, False)


def few_rows(dtype: DType, widths: Iterable[int]) -> Iterator[Call]:
    """Attention of few rows for heads of these widths, with and without masks, by one block and by several."""
    for width, rows in itertools.product(widths, (1, 2, 4, 8)):
        query, key = tensor(dtype, 1, 2, rows, width), tensor(dtype, 1, 2, 1024, width)
        for mask in (None, tensor(dtypes.bool_, rows, 1024), tensor(dtype, rows, 1024)):
            yield call("_attention", query, key, key, mask, False, 0.125, False)
