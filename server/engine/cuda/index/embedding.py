"""The gradient of an embedding table: rows added up by index, see ``row_sums``."""

from __future__ import annotations

from typing import Any

from server.engine import keys
from server.engine.checks import Check
from server.engine.cuda.rows.rowwise import byte_offset, dense, row_major
from server.engine.cuda.runtime.faults import expect, record_of
from server.engine.device.cupy_module import cp
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.ops import indexing as ops

from .row_sums import RowSums


@prepares(ops.embedding_dense_backward, keys.CUDA)
@row_major
def embedding_backward(request: Request) -> Launch | None:
    grad, index, rows, padding, by_count = request.args
    (out,) = request.outs
    if grad.dtype.is_complex or not grad.dtype.is_floating_point:
        return None
    if not grad.numel:
        return _zeros(request)
    count = index.numel
    sums = RowSums(
        request.backend, grad, out, index.dtype, count, grad.shape[-1], padding=padding, by_count=by_count
    )  # fmt: skip
    if not sums.is_possible:
        return None
    check = Check("embedding_dense_backward", (f"a table of {rows} rows",))
    backend, o, g, nbytes = request.backend, byte_offset(out), byte_offset(grad), out.nbytes

    def launch(args: Any, outs: Any) -> None:
        at = dense(args[1])
        target = outs[0].storage.block.pointer + o
        _clear(backend, target, nbytes)
        places = at.storage.block.pointer + byte_offset(at.meta)
        sums.run(target, args[0].storage.block.pointer + g, places, record_of(backend), expect(check))

    return launch


def _clear(backend: Any, address: int, nbytes: int) -> None:
    if nbytes:
        cp.cuda.runtime.memsetAsync(address, 0, nbytes, backend.stream)


def _zeros(request: Request) -> Launch:
    backend, o, nbytes = request.backend, byte_offset(request.outs[0]), request.outs[0].nbytes
    return lambda args, outs: _clear(backend, outs[0].storage.block.pointer + o, nbytes)
