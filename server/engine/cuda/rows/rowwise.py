"""Rows of operands: how many threads work on one row and how wide they read, and the CUDA text that row kernels share.

A row is what lies along the last dimensions of a row-major operand. Short rows are held by a part of a warp, longer
ones by a block, both in registers; what does not fit there is read again, mostly from the L2 cache, by ``stream``.
Knows no operation.
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
"""The widest access of a thread."""
_THREADS = 128
"""Of a block whose rows take fewer."""
_HELD = 16
"""Elements of a row that a thread holds, if it can be chosen, shared among operands; at most twice as many."""
_LARGEST_GRID = (1 << 31) - 1

ROWS = r"""
#define INFINITE __int_as_float(0x7f800000)

struct Sum { template <class A> static __device__ __forceinline__ A of(A a, A b) { return a + b; } };
struct Max {
    static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
    static __device__ __forceinline__ double of(double a, double b) { return fmax(a, b); }
};

// The reduction of a value over the N threads of a row, for each of them. Rows of more than a warp are whole blocks;
// ``scratch`` has a place per warp and must not be used twice without a barrier between.
template <class How, int N, class A> __device__ __forceinline__ A over_row(A value, A* scratch) {
    #pragma unroll
    for (int step = (N < 32 ? N : 32) / 2; step; step /= 2)
        value = How::of(value, (A)__shfl_xor_sync(0xffffffffu, value, step));
    if (N > 32) {
        if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
        __syncthreads();
        value = scratch[threadIdx.x % (N / 32)];
        #pragma unroll
        for (int step = N / 64; step; step /= 2)
            value = How::of(value, (A)__shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

// exp and log as exact as the result's type needs
template <class T> __device__ __forceinline__ float row_exp(float x) { return sizeof(T) == 2 ? __expf(x) : expf(x); }
template <class T> __device__ __forceinline__ double row_exp(double x) { return exp(x); }
__device__ __forceinline__ float row_log(float x) { return logf(x); }
__device__ __forceinline__ double row_log(double x) { return log(x); }
__device__ __forceinline__ float row_rsqrt(float x) { return 1.0f / sqrtf(x); }
__device__ __forceinline__ double row_rsqrt(double x) { return 1.0 / sqrt(x); }

// A maximum and the sum of exponentials below it, of elements met one after another
template <class T, class A> struct Online {
    A top, sum;
    __device__ __forceinline__ Online() : top(-INFINITE), sum(0) {}
    __device__ __forceinline__ static A base(A top) { return top == -INFINITE ? (A)0 : top; }
    __device__ __forceinline__ void raise(A found) {
        A next = Max::of(top, found);
        if (next != top) { sum *= row_exp<T>(top - base(next)); top = next; }
    }
    __device__ __forceinline__ void add(A x) { sum += row_exp<T>(x - base(top)); }
    __device__ __forceinline__ void take(A x) { raise(x); add(x); }
    __device__ __forceinline__ void merge(A top_of_all) {
        sum *= row_exp<T>(base(top) - base(top_of_all));
        top = top_of_all;
    }
};

// Goes over a row of any alignment: whole vectors where its memory is aligned, single elements before and behind.
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
// Where thread ``lane`` of a row finds its i-th vector; rows that are not aligned begin within their first one.
template <int N, int VEC, bool SHIFTED> struct Place {
    int lane, length, before;
    template <class T> __device__ __forceinline__ Place(const T* row, int lane, int length)
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
    """How rows are spread over threads; each holds ``items`` vectors of ``width`` elements."""

    threads: int
    """Of one row."""
    width: int
    items: int
    per_block: int
    shifted: bool
    """Whether vectors begin before rows that are not aligned."""

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.threads * self.per_block

    def grid(self, rows: int) -> int:
        """Blocks for so many rows."""
        return -(-rows // self.per_block)


def vector_width(length: int, metas: Sequence[Meta], also: Sequence[Meta | None] = ()) -> int:
    """Elements of one access, where every row of ``length`` elements of every operand is to be aligned.

    Those in ``also`` are read along with them, in more accesses where their elements are larger.
    """
    width = ACCESS_BYTES // max(meta.dtype.itemsize for meta in metas)
    aligned = [meta for meta in (*metas, *also) if meta is not None]
    while width > 1 and (length % width or any(meta.offset % width for meta in aligned)):
        width //= 2
    return max(width, 1)


def widest(*metas: Meta) -> int:
    """Elements of a 16-byte access, for rows that are streamed."""
    return max(ACCESS_BYTES // max(meta.dtype.itemsize for meta in metas), 1)


def held_rows(
    length: int, metas: Sequence[Meta], held: Sequence[Meta], also: Sequence[Meta | None] = (), shifts: bool = False
) -> Rows | None:
    """Rows of the ``held`` operands in registers; None where they are too long for that.

    Where ``shifts``, rows that are not aligned, but all alike, are read in vectors that reach beyond them.
    """
    width = vector_width(length, metas, also)
    full = widest(*metas)
    is_shifted = shifts and width < full and length >= 4 * full and len({meta.offset % full for meta in metas}) == 1
    if is_shifted:
        width, length = full, length + full - 1
    each = _HELD // len(held) // (2 if held[0].dtype.itemsize == 8 else 1)
    threads = min(power_of_two(-(-length // each)), 1024)
    threads = 32 if 32 < threads < 128 and length <= 32 * 2 * each else threads
    items = -(-length // (threads * width))
    if items * width > 2 * each:
        return None
    return Rows(threads, width, items, max(_THREADS // threads, 1), is_shifted)


def power_of_two(number: int) -> int:
    """The next power of two."""
    return 1 << max(number - 1, 0).bit_length()


def streamed_threads(length: int, width: int) -> int:
    """Threads for a row that is read by ``stream``: about four vectors each."""
    threads = min(power_of_two(-(-length // (width * 4))), 1024)
    return 32 if 32 < threads < 128 else threads


def fits_grid(blocks: int) -> bool:
    """Whether one launch can have so many blocks."""
    return blocks <= _LARGEST_GRID


def split(meta: Meta, dim: int) -> tuple[int, int, int]:
    """(outer, length, inner) of a row-major operand around one dimension."""
    if not meta.ndim:
        return 1, 1, 1
    dim %= meta.ndim
    return math.prod(meta.shape[:dim]), meta.shape[dim], math.prod(meta.shape[dim + 1 :])


def row_major(factory: Factory) -> Factory:
    """Let a factory see row-major operands only: others are copied before each launch. Results must be row-major."""

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
    """Bytes from the storage's beginning to the first element."""
    return meta.offset * meta.dtype.itemsize


def offset_of(arg: Any) -> int:
    """``byte_offset``; 0 for an argument that is no tensor."""
    return byte_offset(arg) if isinstance(arg, Meta) else 0


def address(value: Value | None, offset: int) -> int:
    """Where an operand begins; 0 for one that is not there."""
    return 0 if value is None else value.storage.block.pointer + offset
