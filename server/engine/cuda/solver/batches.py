"""Batches of matrices in memory, and the kernel that lays one out for a library: columns contiguous, nothing between.

With the copy, the kernel writes what batched functions want beside it: the matrices' addresses, and an ``info`` of 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.cuda.runtime.faults import FAULTS, expect, record_of
from server.engine.cuda.runtime.geometry import blocks
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.device.cupy_module import cp
from server.engine.ops.linear_algebra.matrices import failure
from telegrad_protocol.dtypes import DType, float32
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra.matrices import column_major

from .arithmetic import ARITHMETIC

ALL, ONLY_LOWER, ONLY_UPPER, IDENTITY = range(4)
"""Which elements are copied, the others being 0; ``IDENTITY`` writes the identity and reads nothing."""
_THREADS = 256
_MOST_BLOCKS = 4096
_KEPT_SCRATCH = 32 << 20
"""Scratch memory up to so many bytes is the stream's own; more is allocated for the call."""
_ALIGNMENT = 256

GATHER = r"""
template <class T, int KEEP, bool CONJUGATE> __device__ __forceinline__ void gather(
    T* out, const T* in, u64* addresses, u64 beside, int* info, i64 count, i64 rows, i64 columns, i64 step,
    i64 row_step, i64 column_step, i64 beside_step
) {
    const i64 size = rows * columns, threads = (i64)gridDim.x * blockDim.x;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    for (i64 i = first; i < count; i += threads) {
        if (addresses) {
            addresses[i] = (u64)(out + i * size);
            if (beside) addresses[count + i] = beside + i * beside_step;
        }
        if (info) info[i] = 0;
    }
    for (i64 i = first; i < count * size; i += threads) {
        const i64 matrix = i / size, rest = i - matrix * size, column = rest / rows, row = rest - column * rows;
        T value = cast<T>(0);
        if (KEEP == 3) {
            if (row == column) value = cast<T>(1);
        } else if (KEEP == 0 || (KEEP == 1 ? row >= column : row <= column)) {
            value = in[matrix * step + row * row_step + column * column_step];
            if (CONJUGATE) value = conjugate(value);
        }
        out[i] = value;
    }
}
"""


FLAG = r"""
// One block looks for the first matrix whose info is not 0, or among whose values is a NaN.
template <class T> __device__ __forceinline__ void flag_failures(
    const int* info, const T* values, fault_record* record, u64 tag, i64 count, i64 per
) {
    __shared__ u64 first;
    if (threadIdx.x == 0) first = count;
    __syncthreads();
    i64 mine = count;
    for (i64 i = threadIdx.x; i < count; i += blockDim.x) if (info[i]) mine = min(mine, i);
    for (i64 k = threadIdx.x; k < count * per; k += blockDim.x) if (values[k] != values[k]) mine = min(mine, k / per);
    if (mine < count) atomicMin(&first, (u64)mine);
    __syncthreads();
    if (threadIdx.x == 0 && first < (u64)count) report(record, tag, info[first] ? info[first] : 1, (int)first);
}
"""
_LOOKING_THREADS = 1024


class Batch(NamedTuple):
    """Where the elements of a batch of matrices lie, in elements from the first."""

    number: int
    rows: int
    columns: int
    step: int
    row_step: int
    column_step: int

    @property
    def size(self) -> int:
        """The elements of one matrix."""
        return self.rows * self.columns

    def cut(self, rows: int, columns: int) -> Batch:
        """The first rows and columns."""
        return self._replace(rows=rows, columns=columns)

    @property
    def transposed(self) -> Batch:
        """The transposes."""
        return Batch(self.number, self.columns, self.rows, self.step, self.column_step, self.row_step)


def packed(count: int, rows: int, columns: int) -> Batch:
    """Matrices one after the other, whose columns are contiguous."""
    return Batch(count, rows, columns, rows * columns, 1, rows)


def batch_of(meta: Meta, batch: Size | None = None) -> Batch | None:
    """Where the matrices of a tensor lie, broadcast to ``batch``; None where their distances differ."""
    wanted = meta.shape[:-2] if batch is None else batch
    missing = len(wanted) - (meta.ndim - 2)
    sizes, strides = (1,) * missing + meta.shape[:-2], (0,) * missing + meta.strides[:-2]
    steps = [0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True)]
    step, after = None, 1
    for size, stride in reversed(list(zip(wanted, steps, strict=True))):
        if size != 1:
            step = stride if step is None else step
            if stride != step * after:
                return None
        after *= size
    rows, columns = meta.shape[-2:]
    row_step, column_step = meta.strides[-2:]
    return Batch(after, rows, columns, step or 0, row_step, column_step)


def is_packed(meta: Meta) -> bool:
    """Whether a result's columns are contiguous, and nothing lies between its matrices."""
    return meta.numel > 0 and meta.strides == column_major(meta).strides


def are_packed(outs: Sequence[Meta]) -> bool:
    """Whether the first result is packed, and the others are row-major."""
    return is_packed(outs[0]) and all([out.is_contiguous for out in outs[1:]])


def gatherer(
    dtype: DType, source: Batch, keep: int = ALL, conjugate: bool = False, beside_step: int = 0
) -> Callable[..., None]:
    """What lays a batch out.

    It is called with the stream and five addresses: of the copy, of the source, of the table of the copy's matrices, of
    a second batch whose matrices are ``beside_step`` bytes apart and come next in that table, and of the infos. The
    last three may be 0.
    """
    ctype = CTYPES[dtype]
    entry = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) run(
    {ctype}* out, const {ctype}* in, u64* addresses, u64 beside, int* info, i64 count, i64 rows, i64 columns, i64 step,
    i64 row_step, i64 column_step, i64 beside_step
) {{
    gather<{ctype}, {keep}, {str(conjugate and dtype.is_complex).lower()}>(
        out, in, addresses, beside, info, count, rows, columns, step, row_step, column_step, beside_step
    );
}}"""
    kernel = load(f"{PRELUDE}{ARITHMETIC}{GATHER}{entry}", "run")
    grid = min(blocks(max(source.number * source.size, 1), _THREADS), _MOST_BLOCKS)
    constants = [("i64", number) for number in (*source, beside_step)]
    return kernel.prepare(grid, _THREADS, "PPPPP", constants)


class Scratch:
    """Scratch memory for a call, cut into pieces of the given numbers of bytes; ``at`` has their addresses."""

    __slots__ = ("_keeper", "at")

    def __init__(self, backend: Any, sizes: Sequence[int]) -> None:
        offsets, total = [], 0
        for size in sizes:
            offsets.append(total)
            total += -(-size // _ALIGNMENT) * _ALIGNMENT
        if total > _KEPT_SCRATCH:
            self._keeper = cp.empty(total, "b")
            base = self._keeper.data.ptr
        else:
            base = backend.workspace(max(total, _ALIGNMENT)).pointer
        self.at = [base + offset for offset in offsets]


def read(backend: Any, *pieces: tuple[int, int]) -> list[memoryview]:
    """Wait for the device, and return what lies at addresses, given with numbers of bytes."""
    runtime, total = cp.cuda.runtime, sum([nbytes for _, nbytes in pieces])
    buffer = backend.allocate_pinned_for_cupy(total)
    begin = 0
    for address, nbytes in pieces:
        runtime.memcpyAsync(buffer.ptr + begin, address, nbytes, runtime.memcpyDeviceToHost, backend.stream)
        begin += nbytes
    runtime.streamSynchronize(backend.stream)
    whole, begin, found = memoryview(bytes(np.frombuffer(buffer, np.uint8, total))), 0, []
    for _, nbytes in pieces:
        found.append(whole[begin : begin + nbytes])
        begin += nbytes
    return found


class _Failed(NamedTuple):
    """What a launch checks: that a library could do what it was asked to with each matrix of a batch."""

    name: str
    is_batch: bool
    explain: Callable[[int], str]

    def error(self, index: int, place: int) -> TelegradError:
        """The error of matrix ``place``, whose info is ``index``."""
        made: TelegradError = failure(self.name, self.is_batch, place, index, self.explain)  # type: ignore[no-untyped-call]
        return made


class FailureCheck:
    """Looks, after a library's call, at the infos of a batch, and where values are given also whether one is NaN.

    The device looks, and nobody waits; in backward passes, which are not rolled back, the host waits and looks itself.
    """

    def __init__(
        self, backend: Any, name: str, batch: Size, explain: Callable[[int], str], values: Meta | None = None
    ) -> None:
        self._backend, self._count = backend, math.prod(batch)
        self._check = _Failed(name, bool(batch), explain)
        self._values = values
        self._look = looker(float32 if values is None else values.dtype, self._count, values.numel if values else 0)

    def run(self, info: int, values: int = 0, wait: bool = False) -> None:
        """Look at the infos at an address, and the values at another; ``wait`` for them where host memory is in use."""
        tag = 0 if wait else expect(self._check)
        if not tag:
            self._wait(info, values)
            return
        record = record_of(self._backend)
        self._look(self._backend.stream, info, values, record.pointer, tag)
        record.mark()

    def _wait(self, info: int, values: int) -> None:
        pieces = [(info, 4 * self._count)]
        if self._values is not None:
            pieces.append((values, self._values.nbytes))
        first, *rest = read(self._backend, *pieces)
        infos = np.frombuffer(first, np.int32)
        for numbers in rest:
            dtype = NUMPY_DTYPES[self._values.dtype]  # type: ignore[union-attr]
            is_invalid = np.isnan(np.frombuffer(numbers, dtype)).reshape(self._count, -1).any(1)
            infos = np.where(is_invalid & (infos == 0), 1, infos)
        if infos.any():
            number = int(np.argmax(infos != 0))
            raise self._check.error(int(infos[number]), number)


def looker(dtype: DType, count: int, values: int) -> Callable[..., None]:
    """What looks at the infos of ``count`` matrices, and at ``values`` real numbers of ``dtype`` that were computed.

    It is called with the stream, the addresses of both and of a fault record, and a tag.
    """
    ctype = CTYPES[dtype]
    text = f"""{PRELUDE}{FAULTS}{FLAG}
extern "C" __global__ void __launch_bounds__({_LOOKING_THREADS}) flag(
    const int* info, const {ctype}* values, fault_record* record, u64 tag, i64 count, i64 per
) {{
    flag_failures<{ctype}>(info, values, record, tag, count, per);
}}"""
    constants = [("i64", count), ("i64", values // max(count, 1))]
    return load(text, "flag").prepare(1, _LOOKING_THREADS, "PPPQ", constants)
