"""Checks of the indices of sparse matrices, and the memory of which it is known that they passed.

A library reads wherever an index points. The check writes a copy in which an index out of range is replaced by one that
is harmless, and reports it in hindsight. That memory is trusted until something is written into it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

from server.engine import keys
from server.engine.checks import Check
from server.engine.cuda.rows.rowwise import byte_offset, row_major
from server.engine.cuda.runtime.faults import FAULTS, expect, record_of
from server.engine.cuda.runtime.geometry import blocks
from server.engine.cuda.runtime.launch import load, pointer
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.device.cupy_module import cp
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch, Storage, Value
from telegrad_protocol.dtypes import DType, int32, int64
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import sparse as ops

_THREADS = 256

TEXT = r"""
// Copies columns; one that is out of range becomes 0.
template <class I, class O>
__device__ __forceinline__ void check_columns(
    O* out, const I* col, i64 count, i64 columns, fault_record* record, u64 tag) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    i64 k = (i64)col[i];
    if ((u64)k >= (u64)columns) { report(record, tag, k, 0); k = 0; }
    out[i] = (O)k;
}
// Looks whether rows begin in order, from 0 to the number of stored elements.
template <class I>
__device__ __forceinline__ void check_starts(
    i32* bad, const I* crow, i64 count, i64 rows, i64 stored, fault_record* record, u64 tag) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    const i64 at = i % (rows + 1), start = (i64)crow[i];
    if ((at ? start < (i64)crow[i - 1] : start != 0) || (at == rows && start != stored)) {
        report(record, tag, start, 1);
        *bad = 1;
    }
}
// Copies where rows begin; where that is out of order, all elements are in the last row.
template <class I, class O>
__device__ __forceinline__ void copy_starts(O* out, const i32* bad, const I* crow, i64 count, i64 rows, i64 stored) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < count) out[i] = *bad ? (O)(i % (rows + 1) == rows ? stored : 0) : (O)crow[i];
}
"""


class _Passed(NamedTuple):
    """Indices that were checked: where they are as long as their version stays, their shape, and their limit."""

    storage: ReferenceType[Storage]
    version: int
    shape: Size
    limit: int


_PASSED: dict[tuple[int, int], _Passed] = {}
"""By device, and address. A backward pass that is captured works on other storages at the same addresses."""


def _remember(backend: Any, value: Value, limit: int) -> None:
    storage, key = value.storage, (backend.index, pointer(value))

    def forget(reference: Any) -> None:
        known = _PASSED.get(key)
        if known is not None and known.storage is reference:
            del _PASSED[key]

    _PASSED[key] = _Passed(ref(storage, forget), storage.version, value.meta.shape, limit)


def has_passed(backend: Any, value: Value, limit: int) -> bool:
    """Whether a row-major value's indices were checked against this limit, and not written since."""
    known = _PASSED.get((backend.index, pointer(value)))
    if known is None or known.limit != limit or known.shape != value.meta.shape:
        return False
    storage = known.storage()
    return storage is not None and storage.version == known.version


class IndexCheck:
    """The launches that check and copy the indices of matrices of given metas."""

    def __init__(self, backend: Any, crow: Meta, col: Meta, columns: int, dtype: DType) -> None:
        self._backend = backend
        self.rows, self.stored, self.columns = crow.shape[-1] - 1, col.shape[-1], columns
        self.dtype = dtype
        given, starts, out = CTYPES[col.dtype], CTYPES[crow.dtype], CTYPES[dtype]
        source = PRELUDE + FAULTS + TEXT + _entries(given, starts, out)
        sizes = [("i64", crow.numel), ("i64", self.rows), ("i64", self.stored)]
        grid = blocks(crow.numel, _THREADS)
        self._columns: Callable[..., None] | None = None
        if col.numel:
            constants = [("i64", col.numel), ("i64", columns)]
            self._columns = load(source, "columns").prepare(
                blocks(col.numel, _THREADS), _THREADS, "PPPQ", constants
            )  # fmt: skip
        self._starts = load(source, "starts").prepare(grid, _THREADS, "PPPQ", sizes)
        self._copied = load(source, "copied").prepare(grid, _THREADS, "PPP", sizes)
        limits = (f"{columns} columns", f"crow_indices, which must not decrease from 0 to {self.stored}")
        self._check = Check("sparse matrix", limits)

    def run(self, crow: int, col: int, out_crow: int, out_col: int) -> None:
        """Check what lies at two addresses, and write it to two others."""
        backend = self._backend
        bad, stream = cp.empty(1, "i4"), backend.stream
        cp.cuda.runtime.memsetAsync(bad.data.ptr, 0, 4, stream)
        record, tag = record_of(backend), expect(self._check)
        self._starts(stream, bad.data.ptr, crow, record.pointer, tag)
        if self._columns is not None:
            self._columns(stream, out_col, col, record.pointer, tag)
        self._copied(stream, out_crow, bad.data.ptr, crow)
        if tag:
            record.mark()


def _entries(given: str, starts: str, out: str) -> str:
    return f"""
extern "C" __global__ void columns(
    {out}* out, const {given}* col, fault_record* record, u64 tag, i64 count, i64 limit) {{
    check_columns<{given}, {out}>(out, col, count, limit, record, tag);
}}
extern "C" __global__ void starts(
    i32* bad, const {starts}* crow, fault_record* record, u64 tag, i64 count, i64 rows, i64 stored) {{
    check_starts<{starts}>(bad, crow, count, rows, stored, record, tag);
}}
extern "C" __global__ void copied({out}* out, const i32* bad, const {starts}* crow, i64 count, i64 rows, i64 stored) {{
    copy_starts<{starts}, {out}>(out, bad, crow, count, rows, stored);
}}
"""


def takes(crow: Meta, col: Meta, columns: int) -> bool:
    """Whether indices of these metas can be made harmless: there is a column that one out of range can become."""
    return not col.numel or (columns > 0 and crow.shape[-1] > 1)


def narrowest(columns: int, col: Meta) -> DType:
    """The type of checked indices, which is that of the contract's results."""
    return int64 if max(columns, col.shape[-1]) >= 1 << 31 else int32


class CheckedIndices:
    """Gives the addresses of checked indices: those of the operands, or of copies that are checked for this call."""

    def __init__(self, backend: Any, crow: Meta, col: Meta, columns: int) -> None:
        self._backend = backend
        self._crow, self._col = crow, col
        self.dtype = narrowest(columns, col)
        self._limits = (col.shape[-1], columns)
        self._can_pass = crow.dtype is col.dtype is self.dtype
        self._check = IndexCheck(backend, crow, col, columns, self.dtype)

    def of(self, crow: Value, col: Value) -> tuple[int, int, Any]:
        """Two addresses, and what keeps the memory behind them."""
        backend, (stored, columns) = self._backend, self._limits
        if self._can_pass and has_passed(backend, crow, stored) and has_passed(backend, col, columns):
            return pointer(crow), pointer(col), None
        copies = [cp.empty(max(meta.numel, 1), self.dtype.name) for meta in (self._crow, self._col)]
        self._check.run(pointer(crow), pointer(col), copies[0].data.ptr, copies[1].data.ptr)
        return copies[0].data.ptr, copies[1].data.ptr, copies


@prepares(ops._csr_indices, keys.CUDA)
@row_major
def csr_indices(request: Request) -> Launch | None:
    crow, col, columns = request.args
    if not takes(crow, col, columns):
        return None
    backend, dtype = request.backend, request.outs[0].dtype
    check = IndexCheck(backend, crow, col, columns, dtype)
    at_crow, at_col = byte_offset(crow), byte_offset(col)

    def launch(args: Any, outs: Any) -> None:
        starts, places = args[0].storage.block.pointer + at_crow, args[1].storage.block.pointer + at_col
        check.run(starts, places, pointer(outs[0]), pointer(outs[1]))
        _remember(backend, outs[0], col.shape[-1])
        _remember(backend, outs[1], columns)

    return launch
