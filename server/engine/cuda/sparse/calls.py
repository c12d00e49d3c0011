"""Calls that between them need every text of this family; ``make check-kernels`` compiles the texts."""

from __future__ import annotations

from collections.abc import Iterator

from server.engine.cuda.texts import Call, call, tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType


def check_calls(dtype: DType) -> Iterator[Call]:
    if dtype is dtypes.bool_:
        return
    for kind in (dtypes.int32, dtypes.int64):
        crow, col = tensor(kind, 41), tensor(kind, 100)
        yield call("_csr_indices", crow, col, 64)
        yield call("_csr_indices", tensor(kind, 3, 41), tensor(kind, 3, 100), 64)
        for width in (1, 8, 64):
            yield call("_csr_sampled_matmul", crow, col, tensor(dtype, 40, width), tensor(dtype, 64, width))
        yield call("_csr_sampled_matmul", crow, tensor(kind, 9000), tensor(dtype, 40, 64), tensor(dtype, 64, 64))
        for width in (1, 8):
            yield call("_csr_matmul", crow, col, tensor(dtype, 100), tensor(dtype, 64, width), 64, False)
