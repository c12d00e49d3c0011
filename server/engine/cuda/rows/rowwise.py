"""The launch geometry of kernels that process rows, and the CUDA text that these kernels share.

A row is the elements along the last dimensions of a row-major operand. Short rows are held in registers of a part of a
warp, longer ones in those of a block. Rows that do not fit into registers are streamed, and read again mostly from
the L2 cache. Knows no operation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import wraps
from typing import Any, NamedTuple

from server.engine import functional as F
from server.engine.operators import Factory, Request
from server.engine.value import Launch, Value
from telegrad_protocol.layout import contiguous_strides
from telegrad_protocol.meta import Meta

ACCESS_BYTES = 16
"""The widest memory access of a thread, in bytes."""
_THREADS = 128
"""Threads of a block if one row takes fewer."""
_HELD = 16
"""The preferred number of a row's elements in a thread's registers, over all operands; at most twice as many."""
_ITEMS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of vectors that a thread may hold: few, so that few kernels serve all lengths; usual widths fill them."""
_LARGEST_GRID = (1 << 31) - 1

ROWS = r"""
#define INFINITE __int_as_float(0x7f800000)

struct Sum { template <class A> static __device__ __forceinline__ A of(A a, A b) { return a + b; } };
struct Max {
    static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
    static __device__ __forceinline__ double of(double a, double b) { return fmax(a, b); }
};

// The reduction of a value over the N threads of a row; every thread gets the result. A row of more than a warp is a
// whole block. ``scratch`` has an element per warp and must not be used again without a barrier in between.
template <class Op, int N, class A> __device__ __forceinline__ A row_reduce(A value, A* scratch) {
    #pragma unroll
    for (int step = (N < 32 ? N : 32) / 2; step; step /= 2)
        value = Op::of(value, (A)__shfl_xor_sync(0xffffffffu, value, step));
    if (N > 32) {
        if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
        __syncthreads();
        value = scratch[threadIdx.x % (N / 32)];
        #pragma unroll
        for (int step = N / 64; step; step /= 2)
            value = Op::of(value, (A)__shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

// exp, log and reciprocal square root, as exact as the result's type needs
template <class T> __device__ __forceinline__ float row_exp(float x) { return sizeof(T) == 2 ? __expf(x) : expf(x); }
template <class T> __device__ __forceinline__ double row_exp(double x) { return exp(x); }
__device__ __forceinline__ float row_log(float x) { return logf(x); }
__device__ __forceinline__ double row_log(double x) { return log(x); }
__device__ __forceinline__ float row_rsqrt(float x) { return 1.0f / sqrtf(x); }
__device__ __forceinline__ double row_rsqrt(double x) { return 1.0 / sqrt(x); }

// Online softmax (M. Milakov, N. Gimelshein, 2018): the maximum ``top`` so far, and the sum of exp(x - top)
template <class T, class A> struct Online {
    A top, sum;
    __device__ __forceinline__ Online() : top(-INFINITE), sum(0) {}
    __device__ __forceinline__ static A base(A top) { return top == -INFINITE ? (A)0 : top; }
    __device__ __forceinline__ void raise(A candidate) {
        A next = Max::of(top, candidate);
        if (next != top) { sum *= row_exp<T>(top - base(next)); top = next; }
    }
    __device__ __forceinline__ void add(A x) { sum += row_exp<T>(x - base(top)); }
    __device__ __forceinline__ void take(A x) { raise(x); add(x); }
    __device__ __forceinline__ void merge(A top_of_all) {
        sum *= row_exp<T>(base(top) - base(top_of_all));
        top = top_of_all;
    }
};

// A strided loop over a row of any alignment: vectors where the memory is aligned, single elements before and after.
template <int VEC, class T, class One, class Many>
__device__ __forceinline__ void stream(const T* row, i64 length, int lane, int threads, One one, Many many) {
    i64 head = (VEC - (int)(((u64)row / sizeof(T)) % VEC)) % VEC;
    if (head > length) head = length;
    i64 body = head + (length - head) / VEC * VEC;
    for (i64 k = lane; k < head; k += threads) one(k);
    #pragma unroll 4
    for (i64 k = head + (i64)lane * VEC; k < body; k += (i64)threads * VEC) many(k);
    for (i64 k = body + lane; k < length; k += threads) one(k);
}
// The position of a thread's i-th vector in its row; a row that is not aligned begins within its first vector.
template <int N, int VEC, bool SHIFTED> struct VectorPositions {
    int lane, length, before;
    template <class T> __device__ __forceinline__ VectorPositions(const T* row, int lane, int length)
        : lane(lane), length(length), before(SHIFTED ? (int)(((u64)row / sizeof(T)) % VEC) : 0) {}
    __device__ __forceinline__ int of(int i) const { return (i * N + lane) * VEC - before; }
    __device__ __forceinline__ bool has(int k) const { return k < length; }
    __device__ __forceinline__ bool owns(int k) const { return !SHIFTED || (k >= 0 && k < length); }
    __device__ __forceinline__ bool is_whole(int k) const { return !SHIFTED || (k >= 0 && k + VEC <= length); }
};
template <int VEC, class T> __device__ __forceinline__ vec<T, VEC> read(const T* at) { return *(const vec<T, VEC>*)at; }
template <int VEC, class T> __device__ __forceinline__ void write(T* at, vec<T, VEC> v) { *(vec<T, VEC>*)at = v; }
"""


class Rows(NamedTuple):
    """How rows are distributed over threads; every thread holds ``items`` vectors of ``width`` elements."""

    threads: int
    """The number of threads of one row."""
    width: int
    items: int
    per_block: int
    shifted: bool
    """Whether the first vector of a row that is not aligned begins before the row."""

    @property
    def block(self) -> int:
        """The number of threads of a block."""
        return self.threads * self.per_block

    def grid(self, rows: int) -> int:
        """The number of blocks for so many rows."""
        return -(-rows // self.per_block)


def vector_width(length: int, metas: Sequence[Meta], also: Sequence[Meta | None] = ()) -> int:
    """The widest vector, in elements, with which every row of ``length`` elements of every operand is aligned.

    Operands in ``also`` are read in vectors of as many elements; larger elements take more than one access.
    """
    width = ACCESS_BYTES // max(meta.dtype.itemsize for meta in metas)
    aligned = [meta for meta in (*metas, *also) if meta is not None]
    while width > 1 and (length % width or any(meta.offset % width for meta in aligned)):
        width //= 2
    return max(width, 1)


def widest(*metas: Meta) -> int:
    """The number of elements of a 16-byte access, for rows that are streamed."""
    return max(ACCESS_BYTES // max(meta.dtype.itemsize for meta in metas), 1)


def held_rows(
    length: int, metas: Sequence[Meta], held: Sequence[Meta], also: Sequence[Meta | None] = (), shifts: bool = False
) -> Rows | None:
    """The geometry that keeps rows of the ``held`` operands in registers; None if rows are too long.

    With ``shifts``, rows that are all misaligned by the same offset are read in vectors that reach beyond the rows.
    """
    width = vector_width(length, metas, also)
    full = widest(*metas)
    is_shifted = shifts and width < full and length >= 4 * full and len({meta.offset % full for meta in metas}) == 1
    if is_shifted:
        width, length = full, length + full - 1
    per_thread = _HELD // len(held) // (2 if held[0].dtype.itemsize == 8 else 1)
    threads = min(power_of_two(-(-length // per_thread)), 1024)
    threads = 32 if 32 < threads < 128 and length <= 32 * 2 * per_thread else threads
    items = -(-length // (threads * width))
    if items * width > 2 * per_thread:
        return None
    items = min(next(count for count in _ITEMS if count >= items), 2 * per_thread // width)
    return Rows(threads, width, items, max(_THREADS // threads, 1), is_shifted)


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least ``number``."""
    return 1 << max(number - 1, 0).bit_length()


def streamed_threads(length: int, width: int) -> int:
    """The number of threads for a row that is streamed: about four vectors per thread."""
    threads = min(power_of_two(-(-length // (width * 4))), 1024)
    return 32 if 32 < threads < 128 else threads


def fits_grid(blocks: int) -> bool:
    """Whether one launch can have so many blocks."""
    return blocks <= _LARGEST_GRID


def split(meta: Meta, dim: int) -> tuple[int, int, int]:
    """The shape of a row-major operand as (outer, length, inner), where ``length`` is the size of dimension ``dim``."""
    if not meta.ndim:
        return 1, 1, 1
    dim %= meta.ndim
    return math.prod(meta.shape[:dim]), meta.shape[dim], math.prod(meta.shape[dim + 1 :])


def row_major(factory: Factory) -> Factory:
    """Wrap a factory of row-major operands: others are copied before a launch. Results must be row-major."""

    @wraps(factory)
    def prepare(request: Request) -> Launch | None:
        if not all(out.is_contiguous for out in request.outs):
            return None
        strided = [p for p, arg in enumerate(request.args) if isinstance(arg, Meta) and not arg.is_contiguous]
        if not strided:
            return factory(request)
        args = list(request.args)
        for position in strided:
            args[position] = args[position].like()
        launch = factory(request._replace(args=tuple(args)))
        return launch and _copying(launch, strided)

    return prepare


def _copying(launch: Launch, strided: list[int]) -> Launch:
    def run(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        given = list(args)
        for position in strided:
            given[position] = dense(args[position])
        launch(tuple(given), outs)

    return run


def dense(value: Value) -> Value:
    """The value, or a row-major copy of it."""
    meta = value.meta
    if meta.is_contiguous:
        return value
    copy: Value = F._in_layout(value.alias(), contiguous_strides(meta.shape))
    return copy


def byte_offset(meta: Meta) -> int:
    """The offset of the first element in the storage, in bytes."""
    return meta.offset * meta.dtype.itemsize


def offset_of(arg: Any) -> int:
    """``byte_offset`` of a tensor; 0 for an argument that is no tensor."""
    return byte_offset(arg) if isinstance(arg, Meta) else 0


def address(value: Value | None, offset: int) -> int:
    """The address of an operand's first element; 0 for an absent operand."""
    return 0 if value is None else value.storage.block.pointer + offset
