"""Whole rows of half precision added to others by index: sorted and added up in float32 instead of by atomics.

Atomics would need the whole target in float32 meanwhile. Takes new results only, and sources that are large enough for
more launches to pay; in place, and for everything else, ``scatter`` does the work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from server.engine import context, keys
from server.engine.array_library.dtypes import HALVES
from server.engine.checks import Check
from server.engine.cuda.rows.rowwise import byte_offset
from server.engine.cuda.runtime.faults import expect, record_of
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.device.cupy_module import cp
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import indexing as ops

from .indexing import places
from .row_sums import RowSums
from .scatter import DEVICE_TO_DEVICE, generic_kernel

_LEAST_SOURCE = 1 << 18
"""Elements."""
_LEAST_WIDTH = 128
"""Elements of a row, so that sorting the indices costs little beside them."""
_THREADS = 256

_KEYS = r"""
// Indices from the front: those that count from the end of ``size`` rows are turned round, as far as there are rows.
template <class I> __device__ __forceinline__ void number_rows(
    i64* keys, const I* index, i64 count, i64 step, i64 size, int wraps
) {
    i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= count) return;
    i64 given = (i64)index[k * step];
    keys[k] = wraps && given < 0 && given >= -size ? given + size : given;
}
"""


def _fits(input: Meta, index: Meta, source: Any, out: Meta) -> bool:
    """Whether whole rows are added to rows, all row-major, and enough of them."""
    return (
        isinstance(source, Meta)
        and out.dtype in HALVES
        and input.dtype is source.dtype is out.dtype
        and input.ndim > 0
        and (index.ndim <= 1 or index.is_contiguous)
        and source.shape == (*(index.shape or (1,)), *input.shape[1:])
        and all(meta.is_contiguous for meta in (input, source, out))
        and source.numel >= _LEAST_SOURCE
        and math.prod(input.shape[1:]) >= _LEAST_WIDTH
    )


def _prepare(
    request: Request, name: str, places_of: tuple[Any, int], index: Meta, alpha: float, wraps: bool
) -> Launch | None:  # fmt: skip
    """The launch; ``places_of`` are the positions of the index and of the source among the arguments."""
    input, (out,), (at, source_at) = request.args[0], request.outs, places_of
    source = request.args[source_at]
    if not _fits(input, index, source, out):
        return None
    backend, count, width = request.backend, index.numel, math.prod(input.shape[1:])
    sums = RowSums(backend, source, out, dtypes.int64, count, width, adds=True, alpha=alpha)
    if not sums.is_possible:
        return None
    number = _numbering(index, input.shape[0], wraps)
    keys_meta = Meta.of((count,), dtypes.int64, backend.device)
    check, generic = Check(name, places(input, [0])), generic_kernel(request)
    x, i, s, o = (byte_offset(meta) for meta in (input, index, source, out))
    nbytes = out.nbytes

    def launch(args: Any, outs: Any) -> None:
        if context.current.switches.deterministic_algorithms:
            generic(args, outs)
            return
        given = args[at[0]][at[1]] if at.__class__ is tuple else args[at]
        rows = backend.empty(keys_meta)
        number(backend.stream, keys_at := rows.storage.block.pointer, given.storage.block.pointer + i)
        target = outs[0].storage.block.pointer + o
        cp.cuda.runtime.memcpyAsync(target, args[0].storage.block.pointer + x, nbytes, DEVICE_TO_DEVICE, backend.stream)
        sums.run(target, args[source_at].storage.block.pointer + s, keys_at, record_of(backend), expect(check))

    return launch


def _numbering(index: Meta, size: int, wraps: bool) -> Any:
    """The launch that writes the row that each index means."""
    kind = CTYPES[index.dtype]
    body = (
        f'extern "C" __global__ void __launch_bounds__({_THREADS}) run(i64* keys, const {kind}* index, i64 count, '
        "i64 step, i64 size, int wraps) { number_rows(keys, index, count, step, size, wraps); }\n"
    )
    step = index.strides[0] if index.ndim == 1 else 1
    numbers = [("i64", index.numel), ("i64", step), ("i64", size), ("int", int(wraps))]
    return load(f"{PRELUDE}{_KEYS}{body}", "run").prepare(-(-index.numel // _THREADS), _THREADS, "PP", numbers)


@prepares(ops.index_add, keys.CUDA)
def index_add(request: Request) -> Launch | None:
    input, dim, index, _, alpha = request.args
    if not input.ndim or dim % input.ndim:
        return None
    return _prepare(request, "index_add", (2, 3), index, float(alpha), False)


@prepares(ops.index_put, keys.CUDA)
def index_put(request: Request) -> Launch | None:
    _, indices, _, accumulate = request.args
    if not accumulate or ops.has_masks(indices) or not _is_first_alone(indices):
        return None
    return _prepare(request, "index_put", ((1, 0), 2), indices[0], 1.0, True)


def _is_first_alone(indices: Sequence[Meta | None]) -> bool:
    """Whether the first dimension has an index, and no other."""
    return bool(indices) and indices[0] is not None and all(index is None for index in indices[1:])
