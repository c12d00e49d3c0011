"""Products of sparse and dense matrices by SciPy, which takes one matrix at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import keys
from server.engine.array_library.host_libraries import sparse
from server.engine.ops.sparse import check_csr
from server.engine.registry import kernel
from telegrad_protocol.ops import sparse as ops

Array = Any


@kernel(ops._csr_matmul, keys.CPU)
def csr_matmul(
    xp: Any, crow: Array, col: Array, values: Array, other: Array, columns: int, transposed: bool, *, out: Array
) -> None:
    check_csr(xp, crow, col, columns)
    if not out.size or not values.size:
        out[...] = 0
        return
    shape = (columns, crow.shape[-1] - 1) if transposed else (crow.shape[-1] - 1, columns)
    kind = sparse().csc_array if transposed else sparse().csr_array  # a matrix by rows is its transpose by columns
    operands = (crow, col, values, other)
    for number, target in enumerate(out if out.ndim == 3 else (out,)):
        starts, places, elements, dense = (
            operand[number] if operand.ndim > least else operand
            for operand, least in zip(operands, (1, 1, 1, 2), strict=True)
        )
        elements = np.array(elements) if elements.flags.writeable is False else elements
        target[...] = kind((elements, places, starts), shape=shape) @ dense
