"""Products of sparse matrices with dense ones by cuSPARSE, and with vectors by a kernel of ours.

Matrices of a batch are multiplied one by one; the client makes one matrix of them, with the others on its diagonal.
"""

from __future__ import annotations

from typing import Any

from server.engine import keys
from server.engine.cuda.rows.rowwise import byte_offset, row_major
from server.engine.device.cupy_module import cp
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import sparse as ops

from . import cusparse
from .checks import CheckedIndices, takes
from .cusparse import Addresses, Product, Sizes
from .vectors import MOST_BATCHES, times_vector


@prepares(ops._csr_matmul, keys.CUDA)
@row_major
def csr_matmul(request: Request) -> Launch | None:
    crow, col, values, other, columns, is_transposed = request.args
    (out,) = request.outs
    if out.dtype not in cusparse.DATA_TYPES or not takes(crow, col, columns):
        return None
    backend = request.backend
    if not out.numel or not col.shape[-1]:
        return _zeros(backend, out)
    batch = out.shape[0] if out.ndim == 3 else 1
    if out.shape[-1] == 1 and not is_transposed and batch <= MOST_BATCHES:
        return times_vector(backend, (crow, col, values, other), out, columns)
    if not cusparse.IS_AVAILABLE:
        return None
    steps = [meta.shape[-1] if meta.ndim == 2 else 0 for meta in (crow, values)]
    other_step = other.shape[-1] * other.shape[-2] if other.ndim == 3 else 0
    indices = CheckedIndices(backend, crow, col, columns)
    sizes = Sizes(
        out.dtype, indices.dtype, crow.shape[-1] - 1, columns, col.shape[-1], out.shape[-1], is_transposed
    )  # fmt: skip
    product = Product(backend, sizes)
    offsets = [byte_offset(meta) for meta in (values, other)]
    width, item = indices.dtype.itemsize, out.dtype.itemsize
    moves = Addresses(
        steps[0] * width, (col.shape[-1] if col.ndim == 2 else 0) * width, steps[1] * item, other_step * item,
        out.numel // batch * item,
    )  # fmt: skip

    def launch(args: Any, outs: Any) -> None:
        starts, places, _kept = indices.of(args[0], args[1])
        first = Addresses(
            starts, places, args[2].storage.block.pointer + offsets[0], args[3].storage.block.pointer + offsets[1],
            outs[0].storage.block.pointer + byte_offset(out),
        )  # fmt: skip
        product.run(first)
        for number in range(1, batch):
            product.run(Addresses(*[at + number * move for at, move in zip(first, moves, strict=True)]))

    return launch


def _zeros(backend: Any, out: Meta) -> Launch:
    offset, nbytes = byte_offset(out), out.nbytes

    def launch(args: Any, outs: Any) -> None:
        if nbytes:
            cp.cuda.runtime.memsetAsync(outs[0].storage.block.pointer + offset, 0, nbytes, backend.stream)

    return launch
