"""The gradient of an embedding table: rows added up by index, in the order in which they are given.

Indices are sorted, and chunks of the sorted ones are added up by a block each. An index whose rows lie in several
chunks leaves partial sums, which a second launch adds up. No atomics, so that results are the same each time.
"""

from __future__ import annotations

from typing import Any

import cupy as cp

from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import indexing as ops

from .. import functional as F
from .. import keys
from ..checks import Check
from ..operators import Launch, Request, prepares
from .faults import FAULTS, expect, record_of
from .launch import load
from .prelude import CTYPES, PRELUDE
from .rowwise import byte_offset, dense, fits_grid, row_major, vector_width

_CHUNK = 32
_THREADS = 256

_TEXT = r"""
#define CHUNK 32
#define AHEAD 4
// The first place in sorted keys that is not below (or, ``after``, that is above) a key
template <class I> __device__ __forceinline__ i64 place_of(const I* sorted, i64 count, i64 key, bool after) {
    i64 low = 0, high = count;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (after ? (i64)sorted[middle] <= key : (i64)sorted[middle] < key) low = middle + 1; else high = middle;
    }
    return low;
}

template <class TO, class T, class S, class I, int VEC>
__device__ __forceinline__ void add_chunks(
    TO* out, S* partial, const T* grad, const I* sorted, const i64* order, fault_record* record, u64 tag, i64 count,
    i64 width, i64 rows, i64 padding, int by_count
) {
    __shared__ i64 keys[CHUNK], from[CHUNK];
    i64 start = (i64)blockIdx.x * CHUNK, left = count - start;
    int size = left < CHUNK ? (int)left : CHUNK;
    if (threadIdx.x < size) {
        i64 key = (i64)sorted[start + threadIdx.x];
        keys[threadIdx.x] = key;
        from[threadIdx.x] = order[start + threadIdx.x];
        if (blockIdx.y == 0 && (u64)key >= (u64)rows) report(record, tag, key, 0);
    }
    bool opens = start > 0 && (i64)sorted[start - 1] == (i64)sorted[start];
    bool goes_on = start + size < count && (i64)sorted[start + size] == (i64)sorted[start + size - 1];
    __syncthreads();
    i64 column = ((i64)blockIdx.y * blockDim.x + threadIdx.x) * VEC;
    if (column >= width) return;
    S sum[VEC] = {};
    int first = 0;
    vec<T, VEC> held[AHEAD];
    for (int k = 0; k < size; k += AHEAD) {
        #pragma unroll
        for (int a = 0; a < AHEAD; ++a)
            if (k + a < size) held[a] = *(const vec<T, VEC>*)(grad + from[k + a] * width + column);
        #pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            int at = k + a;
            if (at >= size) break;
            #pragma unroll
            for (int j = 0; j < VEC; ++j) sum[j] += (S)widen(held[a].at[j]);
            i64 key = keys[at];
            if (at + 1 < size && keys[at + 1] == key) continue;
            bool from_left = opens && first == 0, to_right = goes_on && at + 1 == size;
            if (from_left || to_right) {
                S* into = partial + ((i64)blockIdx.x * 2 + (from_left ? 0 : 1)) * width + column;
                #pragma unroll
                for (int j = 0; j < VEC; ++j) into[j] = sum[j];
            } else if (key != padding && (u64)key < (u64)rows) {
                vec<TO, VEC> result;
                #pragma unroll
                for (int j = 0; j < VEC; ++j) result.at[j] = cast<TO>(by_count ? sum[j] / (S)(at + 1 - first) : sum[j]);
                *(vec<TO, VEC>*)(out + key * width + column) = result;
            }
            #pragma unroll
            for (int j = 0; j < VEC; ++j) sum[j] = 0;
            first = at + 1;
        }
    }
}

// Adds up the partial sums of a key whose rows begin in this block's chunk and go on behind it.
template <class TO, class S, class I>
__device__ __forceinline__ void join_chunks(
    TO* out, const S* partial, const I* sorted, i64 count, i64 width, i64 rows, i64 padding, int by_count
) {
    i64 chunk = blockIdx.x, end = (chunk + 1) * CHUNK;
    if (end >= count) return;
    i64 key = (i64)sorted[end - 1];
    if ((i64)sorted[end] != key || key == padding || (u64)key >= (u64)rows) return;
    if (chunk && (i64)sorted[chunk * CHUNK] == key && (i64)sorted[chunk * CHUNK - 1] == key) return;
    __shared__ i64 shared[2];
    if (threadIdx.x == 0) shared[0] = place_of(sorted, count, key, true);
    if (threadIdx.x == 1) shared[1] = by_count ? place_of(sorted, count, key, false) : 0;
    __syncthreads();
    i64 last = (shared[0] - 1) / CHUNK;
    i64 step = (i64)gridDim.y * blockDim.x;
    for (i64 column = (i64)blockIdx.y * blockDim.x + threadIdx.x; column < width; column += step) {
        S sum = partial[(chunk * 2 + 1) * width + column];
        #pragma unroll 8
        for (i64 c = chunk + 1; c <= last; ++c) sum += partial[c * 2 * width + column];
        out[key * width + column] = cast<TO>(by_count ? sum / (S)(shared[0] - shared[1]) : sum);
    }
}
"""


@prepares(ops.embedding_dense_backward, keys.CUDA)
@row_major
def embedding_backward(request: Request) -> Launch | None:
    grad, index, rows, padding, by_count = request.args
    (out,) = request.outs
    if grad.dtype.is_complex or not grad.dtype.is_floating_point:
        return None
    if not grad.numel:
        return _zeros(request)
    plan = _Plan(grad, index, out)
    if not fits_grid(plan.chunks) or plan.slices > 65535:
        return None
    add, join = plan.launches(rows, padding, by_count)
    return _launch(request, plan, add, join, Check("embedding_dense_backward", (f"a table of {rows} rows",)))


class _Plan:
    """Geometry and types."""

    def __init__(self, grad: Meta, index: Meta, out: Meta) -> None:
        self.count, self.width = index.numel, grad.shape[-1]
        self.vector = vector_width(self.width, (grad, out))
        columns = -(-self.width // self.vector)
        self.block = min(-(-columns // 32) * 32, _THREADS)
        self.slices = -(-columns // self.block)
        self.chunks = -(-self.count // _CHUNK)
        self.wide = dtypes.float64 if grad.dtype is dtypes.float64 else dtypes.float32
        self.types = CTYPES[out.dtype], CTYPES[grad.dtype], CTYPES[self.wide], CTYPES[index.dtype]

    def launches(self, rows: int, padding: int, by_count: bool) -> tuple[Any, Any]:
        """Adding up chunks, and joining what lies in several of them."""
        out, grad, wide, index = self.types
        tail = "i64 count, i64 width, i64 rows, i64 padding, int by_count"
        numbers = [("i64", n) for n in (self.count, self.width, rows, padding)]
        numbers.append(("int", int(by_count)))
        add = _kernel(
            f"{out}* out, {wide}* partial, const {grad}* grad, const {index}* sorted, const i64* order, "
            f"fault_record* record, u64 tag, {tail}",
            f"add_chunks<{out}, {grad}, {wide}, {index}, {self.vector}>"
            "(out, partial, grad, sorted, order, record, tag, count, width, rows, padding, by_count)",
        ).prepare((self.chunks, self.slices), self.block, "PPPPPPQ", numbers)
        join = _kernel(
            f"{out}* out, const {wide}* partial, const {index}* sorted, {tail}",
            f"join_chunks<{out}, {wide}, {index}>(out, partial, sorted, count, width, rows, padding, by_count)",
        ).prepare((self.chunks, self.slices), self.block, "PPP", numbers)
        return add, join


def _kernel(parameters: str, call: str) -> Any:
    body = f'extern "C" __global__ void __launch_bounds__({_THREADS}) run({parameters}) {{ {call}; }}\n'
    return load(f"{PRELUDE}{FAULTS}{_TEXT}\n{body}", "run")


def _clear(backend: Any, address: int, nbytes: int) -> None:
    if nbytes:
        cp.cuda.runtime.memsetAsync(address, 0, nbytes, backend.stream)


def _zeros(request: Request) -> Launch:
    backend, o, nbytes = request.backend, byte_offset(request.outs[0]), request.outs[0].nbytes
    return lambda args, outs: _clear(backend, outs[0].storage.block.pointer + o, nbytes)


def _launch(request: Request, plan: _Plan, add: Any, join: Any, check: Check) -> Launch:
    backend, out = request.backend, request.outs[0]
    o, g, nbytes = byte_offset(out), byte_offset(request.args[0]), out.nbytes
    scratch = Meta.of((2 * plan.chunks * plan.width,), plan.wide, backend.device)

    def launch(args: Any, outs: Any) -> None:
        flat = F.reshape(dense(args[1]).alias(), (plan.count,))
        ordered, order = F.sort(flat, 0, False, stable=True)
        record, tag, partial = record_of(backend), expect(check), backend.empty(scratch)
        target, sums = outs[0].storage.block.pointer + o, partial.storage.block.pointer
        sorted_at, order_at = ordered.storage.block.pointer, order.storage.block.pointer
        _clear(backend, target, nbytes)
        gradient = args[0].storage.block.pointer + g
        add(backend.stream, target, sums, gradient, sorted_at, order_at, record.pointer, tag)
        join(backend.stream, target, sums, sorted_at)
        if tag:
            record.mark()

    return launch
