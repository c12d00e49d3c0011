"""Sums scattered within rows that fit into a block's shared memory: no atomics on device memory, no copy beforehand.

Takes new results only; in place, and for everything else, ``scatter`` does the work.
"""

from __future__ import annotations

import math
from typing import Any

from server.engine import context, keys
from server.engine.checks import Check
from server.engine.cuda.rows.rowwise import ROWS, byte_offset, fits_grid, vector_width
from server.engine.cuda.runtime.faults import FAULTS, expect, record_of
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import scattering as ops

from .indexing import places
from .scatter import generic_kernel

_LARGEST_ROW = 96 << 10
"""Bytes of shared memory, so that two blocks share a multiprocessor."""
_FEWEST_ROWS = 64
_THREADS = 512

_TEXT = r"""
template <class T, class S, class I, int VEC>
__device__ __forceinline__ void add_within_rows(
    T* out, const T* in, const I* index, const T* source, fault_record* record, u64 tag, i64 size, i64 length
) {
    extern __shared__ double memory[];
    S* row = (S*)memory;
    i64 start = (i64)blockIdx.x * size;
    for (i64 k = (i64)threadIdx.x * VEC; k < size; k += (i64)blockDim.x * VEC) {
        vec<T, VEC> v = read<VEC>(in + start + k);
        #pragma unroll
        for (int j = 0; j < VEC; ++j) row[k + j] = (S)widen(v.at[j]);
    }
    __syncthreads();
    index += (i64)blockIdx.x * length; source += (i64)blockIdx.x * length;
    #pragma unroll 4
    for (i64 k = threadIdx.x; k < length; k += blockDim.x) {
        i64 target = (i64)index[k];
        S value = (S)widen(source[k]);
        if ((u64)target < (u64)size) atomicAdd(row + target, value);
        else report(record, tag, target, 0);
    }
    __syncthreads();
    for (i64 k = (i64)threadIdx.x * VEC; k < size; k += (i64)blockDim.x * VEC) {
        vec<T, VEC> v;
        #pragma unroll
        for (int j = 0; j < VEC; ++j) v.at[j] = cast<T>(row[k + j]);
        write<VEC>(out + start + k, v);
    }
}
"""


def _fits(input: Meta, dim: int, index: Meta, source: Meta, out: Meta) -> bool:
    """Whether all rows are whole, row-major, and short enough."""
    if not input.ndim or dim % input.ndim != input.ndim - 1 or not out.numel or not input.dtype.is_floating_point:
        return False
    rows, size = math.prod(input.shape[:-1]), input.shape[-1]
    wide = 8 if input.dtype is dtypes.float64 else 4
    return (
        index.shape[:-1] == input.shape[:-1]
        and source.shape == index.shape
        and all(meta.is_contiguous for meta in (input, index, source, out))
        and rows >= _FEWEST_ROWS
        and fits_grid(rows)
        and size * wide <= _LARGEST_ROW
        and index.shape[-1] * 8 >= size
    )


def _prepare(request: Request, name: str) -> Launch | None:
    input, dim, index, source = request.args[:4]
    (out,) = request.outs
    if not _fits(input, dim, index, source, out):
        return None
    size, length = input.shape[-1], index.shape[-1]
    wide = dtypes.float64 if input.dtype is dtypes.float64 else dtypes.float32
    element, sum_type, kind = CTYPES[input.dtype], CTYPES[wide], CTYPES[index.dtype]
    width = vector_width(size, (input, out))
    body = (
        f'extern "C" __global__ void __launch_bounds__({_THREADS}) run({element}* out, const {element}* in, '
        f"const {kind}* index, const {element}* source, fault_record* record, u64 tag, i64 size, i64 length) "
        f"{{ add_within_rows<{element}, {sum_type}, {kind}, {width}>"
        "(out, in, index, source, record, tag, size, length); }"
    )
    kernel = load(assembled(PRELUDE, ROWS, FAULTS, _TEXT, body), "run")
    numbers = [("i64", size), ("i64", length)]
    fire = kernel.prepare(out.numel // size, _THREADS, "PPPPPQ", numbers, shared=size * wide.itemsize)
    backend, check, generic = request.backend, Check(name, places(input, [dim])), generic_kernel(request)
    x, i, s, o = (byte_offset(meta) for meta in (input, index, source, out))

    def launch(args: Any, outs: Any) -> None:
        if context.current.switches.deterministic_algorithms:
            generic(args, outs)
            return
        record, tag = record_of(backend), expect(check)
        fire(
            backend.stream, outs[0].storage.block.pointer + o, args[0].storage.block.pointer + x,
            args[2].storage.block.pointer + i, args[3].storage.block.pointer + s, record.pointer, tag,
        )  # fmt: skip
        if tag:
            record.mark()

    return launch


@prepares(ops.scatter_add, keys.CUDA)
def scatter_add(request: Request) -> Launch | None:
    return _prepare(request, "scatter_add")


@prepares(ops.scatter_reduce, keys.CUDA)
def scatter_reduce(request: Request) -> Launch | None:
    reduce, include_self = request.args[4:]
    return _prepare(request, "scatter_reduce") if reduce == "sum" and include_self else None
