"""Rows added up by index, in the order in which they are given: no atomics, so that results are the same each time.

Indices come sorted, and chunks of the sorted ones are added up by a block each. An index whose rows lie in several
chunks leaves partial sums, which a second launch adds up. Knows no operation.
"""

from __future__ import annotations

from typing import Any

from server.engine.cuda.reduce.layout import flag
from server.engine.cuda.rows.rowwise import fits_grid, vector_width
from server.engine.cuda.runtime.faults import FAULTS, FaultRecord
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.cuda.sort.launch import LONGEST, job_of, sorting
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta

_CHUNK = 32
_THREADS = 256
_MOST_SLICES = 65535

_TEXT = r"""
#define CHUNK 32
#define AHEAD 4
// The first place in sorted keys that is not below (or, ``after``, that is above) a key
template <class I> __device__ __forceinline__ i64 lower_bound(const I* sorted, i64 count, i64 key, bool after) {
    i64 low = 0, high = count;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (after ? (i64)sorted[middle] <= key : (i64)sorted[middle] < key) low = middle + 1; else high = middle;
    }
    return low;
}

// What a row becomes: its sum, perhaps over how many there are; or what it was and ``alpha`` times the sum.
template <bool MORE, class TO, class S> __device__ __forceinline__ TO final_sum(TO was, S sum, i64 many, S alpha) {
    return cast<TO>(MORE ? (S)widen(was) + alpha * sum : many ? sum / (S)many : sum);
}

template <bool MORE, class TO, class T, class S, class I, int VEC>
__device__ __forceinline__ void add_chunks(
    TO* out, S* partial, const T* given, const I* sorted, const i64* order, fault_record* record, u64 tag, i64 count,
    i64 width, i64 rows, i64 padding, S alpha, int by_count
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
            if (k + a < size) held[a] = *(const vec<T, VEC>*)(given + from[k + a] * width + column);
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
                TO* to = out + key * width + column;
                if (MORE) result = *(const vec<TO, VEC>*)to;
                #pragma unroll
                for (int j = 0; j < VEC; ++j)
                    result.at[j] = final_sum<MORE>(result.at[j], sum[j], by_count ? at + 1 - first : 0, alpha);
                *(vec<TO, VEC>*)to = result;
            }
            #pragma unroll
            for (int j = 0; j < VEC; ++j) sum[j] = 0;
            first = at + 1;
        }
    }
}

// Adds up the partial sums of a key whose rows begin in this block's chunk and go on behind it.
template <bool MORE, class TO, class S, class I>
__device__ __forceinline__ void join_chunks(
    TO* out, const S* partial, const I* sorted, i64 count, i64 width, i64 rows, i64 padding, S alpha, int by_count
) {
    i64 chunk = blockIdx.x, end = (chunk + 1) * CHUNK;
    if (end >= count) return;
    i64 key = (i64)sorted[end - 1];
    if ((i64)sorted[end] != key || key == padding || (u64)key >= (u64)rows) return;
    if (chunk && (i64)sorted[chunk * CHUNK] == key && (i64)sorted[chunk * CHUNK - 1] == key) return;
    __shared__ i64 shared[2];
    if (threadIdx.x == 0) shared[0] = lower_bound(sorted, count, key, true);
    if (threadIdx.x == 1) shared[1] = by_count ? lower_bound(sorted, count, key, false) : 0;
    __syncthreads();
    i64 last = (shared[0] - 1) / CHUNK;
    i64 step = (i64)gridDim.y * blockDim.x;
    for (i64 column = (i64)blockIdx.y * blockDim.x + threadIdx.x; column < width; column += step) {
        S sum = partial[(chunk * 2 + 1) * width + column];
        #pragma unroll 8
        for (i64 c = chunk + 1; c <= last; ++c) sum += partial[c * 2 * width + column];
        TO* to = out + key * width + column;
        *to = final_sum<MORE>(*to, sum, by_count ? shared[0] - shared[1] : 0, alpha);
    }
}
"""


class RowSums:
    """Rows of ``given``, ``width`` elements each, added up into those rows of ``out`` that indices of a type number.

    ``adds``: to what is there, ``alpha`` times; otherwise rows are overwritten, by the mean if ``by_count``. Rows
    of the index ``padding`` are left out.
    """

    def __init__(
        self, backend: Any, given: Meta, out: Meta, index: DType, count: int, width: int, *, padding: int = -1,
        by_count: bool = False, adds: bool = False, alpha: float = 1.0,
    ) -> None:  # fmt: skip
        self._backend = backend
        self._vector = vector_width(width, (given, out))
        self._wide = dtypes.float64 if given.dtype is dtypes.float64 else dtypes.float32
        self._types = (flag(adds), CTYPES[out.dtype], CTYPES[given.dtype], CTYPES[self._wide], CTYPES[index])
        columns = -(-width // self._vector)
        block = min(-(-columns // 32) * 32, _THREADS)
        grid = (-(-count // _CHUNK), -(-columns // block))
        self.is_possible = fits_grid(grid[0]) and grid[1] <= _MOST_SLICES and count < LONGEST
        if self.is_possible:
            rows = out.numel // width
            numbers: list[tuple[str, Any]] = [("i64", number) for number in (count, width, rows, padding)]
            numbers += [("double" if self._wide is dtypes.float64 else "float", alpha), ("int", int(by_count))]
            self._add, self._join = self._launches(grid, block, numbers)
            self._scratch = Meta.of((2 * grid[0] * width,), self._wide, backend.device)
            self._keys, self._places = (Meta.of((count,), dtype, backend.device) for dtype in (index, dtypes.int64))
            job = job_of(self._keys, self._keys, self._places, 0, False, (0, count))
            self._sort = sorting(backend, job._replace(digits=_digits_below(rows)))

    def _launches(self, grid: tuple[int, int], block: int, numbers: Any) -> tuple[Any, Any]:
        adds, out, given, wide, index = self._types
        tail = f"i64 count, i64 width, i64 rows, i64 padding, {wide} alpha, int by_count"
        names = "count, width, rows, padding, alpha, by_count"
        add = _kernel(
            f"{out}* out, {wide}* partial, const {given}* given, const {index}* sorted, const i64* order, "
            f"fault_record* record, u64 tag, {tail}",
            f"add_chunks<{adds}, {out}, {given}, {wide}, {index}, {self._vector}>"
            f"(out, partial, given, sorted, order, record, tag, {names})",
        )
        join = _kernel(
            f"{out}* out, const {wide}* partial, const {index}* sorted, {tail}",
            f"join_chunks<{adds}, {out}, {wide}, {index}>(out, partial, sorted, {names})",
        )
        return add.prepare(grid, block, "PPPPPPQ", numbers), join.prepare(grid, block, "PPP", numbers)

    def run(self, target: int, given: int, index: int, record: FaultRecord, tag: int) -> None:
        """Add up the rows at an address into those at another; at ``index`` is a dense vector in any order."""
        backend = self._backend
        ordered, order, partial = backend.empty(self._keys), backend.empty(self._places), backend.empty(self._scratch)
        sums, sorted_at = partial.storage.block.pointer, ordered.storage.block.pointer
        order_at, stream = order.storage.block.pointer, backend.stream
        self._sort(index, sorted_at, order_at)
        self._add(stream, target, sums, given, sorted_at, order_at, record.pointer, tag)
        self._join(stream, target, sums, sorted_at)
        if tag:
            record.mark()


def _digits_below(rows: int) -> int:
    """Return how many bytes tell the numbers of so many rows apart; others are reported, whatever their order."""
    return max(1, -(-(rows - 1).bit_length() // 8))


def _kernel(parameters: str, call: str) -> Any:
    body = f'extern "C" __global__ void __launch_bounds__({_THREADS}) run({parameters}) {{ {call}; }}\n'
    return load(assembled(PRELUDE, FAULTS, _TEXT, body), "run")
