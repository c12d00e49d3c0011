"""Products of dense matrices at the stored elements of sparse ones: a part of a warp per element."""

from __future__ import annotations

from typing import Any

from server.engine import keys
from server.engine.cuda.rows.rowwise import byte_offset, power_of_two, row_major, vector_width
from server.engine.cuda.runtime.geometry import blocks
from server.engine.cuda.runtime.launch import load, nothing
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.ops import sparse as ops

from .checks import CheckedIndices, takes
from .sums import SUMS

_THREADS = 256
_MOST_BATCHES = 65535
_AT_ONCE = 4
"""So many elements of a row are read at once where rows have many: a load of each is under way meanwhile."""

TEXT = r"""
// A group of LANES threads for AT_ONCE stored elements; PER_ROW groups share the elements of a row.
template <class T, class I, int LANES, int VEC, int PER_ROW, int AT_ONCE>
__device__ __forceinline__ void sampled(
    T* out, const I* crow, const I* col, const T* left, const T* right, i64 rows, i64 stored, i64 width,
    i64 crow_step, i64 col_step, i64 left_step, i64 right_step) {
    const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const i64 row = (i64)blockIdx.x * (256 / LANES / PER_ROW) + group / PER_ROW, batch = blockIdx.y;
    if (row >= rows) return;
    const u32 mask = mask_of_group<LANES>();
    crow += batch * crow_step;
    col += batch * col_step;
    out += batch * stored;
    const T* a = left + batch * left_step + row * width;
    right += batch * right_step;
    const i64 end = (i64)crow[row + 1];
    for (i64 i = (i64)crow[row] + group % PER_ROW; i < end; i += PER_ROW * AT_ONCE) {
        const T* b[AT_ONCE];
        sum_of<compute_t<T>> sum[AT_ONCE];
        #pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) {
            const i64 at = i + n * PER_ROW;
            b[n] = right + (i64)col[at < end ? at : i] * width;
        }
        for (i64 k = lane * VEC; k < width; k += LANES * VEC) {
            const vec<T, VEC> x = *(const vec<T, VEC>*)(a + k);
            vec<T, VEC> y[AT_ONCE];
            #pragma unroll
            for (int n = 0; n < AT_ONCE; ++n) y[n] = *(const vec<T, VEC>*)(b[n] + k);
            #pragma unroll
            for (int n = 0; n < AT_ONCE; ++n) {
                #pragma unroll
                for (int j = 0; j < VEC; ++j) sum[n].add(x.at[j], y[n].at[j]);
            }
        }
        #pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) sum[n].template join<LANES>(mask);
        #pragma unroll
        for (int n = 0; n < AT_ONCE; ++n) {
            if (!lane && i + n * PER_ROW < end) out[i + n * PER_ROW] = cast<T>(sum[n].total);
        }
    }
}
"""


@prepares(ops._csr_sampled_matmul, keys.CUDA)
@row_major
def csr_sampled_matmul(request: Request) -> Launch | None:
    crow, col, left, right = request.args
    (out,) = request.outs
    batch = out.shape[0] if out.ndim == 2 else 1
    if not takes(crow, col, right.shape[-2]) or batch > _MOST_BATCHES:
        return None
    if not out.numel:
        return nothing
    rows, stored, width = crow.shape[-1] - 1, col.shape[-1], left.shape[-1]
    indices = CheckedIndices(request.backend, crow, col, right.shape[-2])
    if not width:
        return None
    vector = vector_width(width, (left, right))
    lanes = min(32, power_of_two(-(-width // vector)))
    groups = _THREADS // lanes
    per_row = min(groups, power_of_two(-(-stored // rows)))
    at_once = _AT_ONCE if stored >= rows * per_row * _AT_ONCE else 1
    element, index = CTYPES[out.dtype], CTYPES[indices.dtype]
    steps = [
        meta.numel // meta.shape[0] if meta.ndim == least + 1 else 0
        for meta, least in ((crow, 1), (col, 1), (left, 2), (right, 2))
    ]
    fire = load(PRELUDE + SUMS + TEXT + _entry(element, index, lanes, vector, per_row, at_once), "run").prepare(
        (blocks(rows, groups // per_row), batch), _THREADS, "PPPPP",
        [("i64", number) for number in (rows, stored, width, *steps)],
    )  # fmt: skip
    backend, offsets = request.backend, [byte_offset(meta) for meta in (out, left, right)]

    def launch(args: Any, outs: Any) -> None:
        starts, places, _kept = indices.of(args[0], args[1])
        fire(
            backend.stream, outs[0].storage.block.pointer + offsets[0], starts, places,
            args[2].storage.block.pointer + offsets[1], args[3].storage.block.pointer + offsets[2],
        )  # fmt: skip

    return launch


def _entry(element: str, index: str, lanes: int, vector: int, per_row: int, at_once: int) -> str:
    return f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) run(
    {element}* out, const {index}* crow, const {index}* col, const {element}* left, const {element}* right, i64 rows,
    i64 stored, i64 width, i64 crow_step, i64 col_step, i64 left_step, i64 right_step) {{
    sampled<{element}, {index}, {lanes}, {vector}, {per_row}, {at_once}>(
        out, crow, col, left, right, rows, stored, width, crow_step, col_step, left_step, right_step);
}}
"""
