"""Calls that between them need every text of this family; ``make check-kernels`` compiles the texts."""

from __future__ import annotations

from collections.abc import Iterator

from server.engine.cuda.texts import Call, call, tensor
from telegrad_protocol.dtypes import DType

from . import few_rows
from .layout import matrices
from .padding import copying
from .tiles import takes, tiles


def check_calls(dtype: DType) -> Iterator[Call]:
    for vector in (tensor(dtype, 100), tensor(dtype, 100, strides=(3,)), tensor(dtype, 1 << 22)):
        yield call("dot", vector, vector)
        yield call("vdot", vector, vector)


def check_loads(dtype: DType) -> None:
    """Load what only runs beside cuBLASLt: products that it does not take, and copies to sizes that it prefers."""
    few_rows.check_loads(dtype)
    matrix = matrices(tensor(dtype, 64, 64))
    if takes(dtype):
        tiles(matrix, matrix, matrix, matrix, 1, 0)
    if dtype.is_floating_point and dtype.itemsize <= 4:
        copying(matrices(tensor(dtype, 61, 61)), matrix)
