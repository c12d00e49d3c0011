"""Batches of matrices in memory, and the kernel that lays one out for a library: columns contiguous, nothing between.

With the copy, the kernel writes what batched functions want beside it: the matrices' addresses, and an ``info`` of 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.cuda.runtime.geometry import blocks
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.device.cupy_module import cp
from server.engine.ops.matrices import check_info
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.matrices import column_major

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


def refuse_failures(backend: Any, name: str, info: int, batch: Size, explain: Callable[[int], str]) -> None:
    """Wait for the infos of a call, which lie at an address, and raise LinearAlgebraError if one is not 0."""
    (data,) = read(backend, (info, 4 * math.prod(batch)))
    refuse(name, np.frombuffer(data, np.int32), batch, explain)


def refuse(name: str, infos: Any, batch: Size, explain: Callable[[int], str]) -> None:
    """Raise LinearAlgebraError if an info on the host is not 0."""
    if infos.any():
        check_info(np, name, infos.reshape(batch), explain)  # type: ignore[no-untyped-call]


def refuse_invalid(
    backend: Any, name: str, info: int, values: int, meta: Meta, explain: Callable[[int], str]
) -> None:  # fmt: skip
    """The same, and if one of the values at another address, whose meta is given, is NaN: nothing converged."""
    count = math.prod(meta.shape[:-1])
    infos, numbers = read(backend, (info, 4 * count), (values, meta.nbytes))
    is_invalid = np.isnan(np.frombuffer(numbers, NUMPY_DTYPES[meta.dtype])).reshape(count, -1).any(1)
    refuse(name, np.where(is_invalid, 1, np.frombuffer(infos, np.int32)), meta.shape[:-1], explain)
