"""Products of sparse matrices with vectors: a part of a warp per row. cuSPARSE's take the host longer than the GPU."""

from __future__ import annotations

from typing import Any

from server.engine.cuda.rows.rowwise import byte_offset, power_of_two
from server.engine.cuda.runtime.geometry import blocks
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.value import Launch
from telegrad_protocol.meta import Meta

from .checks import CheckedIndices
from .sums import SUMS

_THREADS = 256
MOST_BATCHES = 65535
_PER_THREAD = 4
"""About so many elements of a row for each of its threads."""

TEXT = r"""
template <class T, class I, int LANES>
__device__ __forceinline__ void times_vector(
    T* out, const I* crow, const I* col, const T* values, const T* vector, i64 rows, i64 crow_step, i64 col_step,
    i64 values_step, i64 vector_step) {
    const i64 row = (i64)blockIdx.x * (256 / LANES) + threadIdx.x / LANES, batch = blockIdx.y;
    const int lane = threadIdx.x % LANES;
    if (row >= rows) return;
    crow += batch * crow_step;
    col += batch * col_step;
    values += batch * values_step;
    vector += batch * vector_step;
    const i64 end = (i64)crow[row + 1];
    sum_of<compute_t<T>> sum;
    #pragma unroll 4
    for (i64 i = (i64)crow[row] + lane; i < end; i += LANES) sum.add(values[i], vector[(i64)col[i]]);
    sum.template join<LANES>(mask_of_group<LANES>());
    if (!lane) out[batch * rows + row] = cast<T>(sum.total);
}
"""


def times_vector(backend: Any, metas: tuple[Meta, ...], out: Meta, columns: int) -> Launch:
    """Return the product of matrices and vectors of these metas: crow, col, values, and the vectors as columns."""
    crow, col, values, other = metas
    rows, stored = crow.shape[-1] - 1, col.shape[-1]
    batch = out.shape[0] if out.ndim == 3 else 1
    indices = CheckedIndices(backend, crow, col, columns)
    lanes = max(2, min(32, power_of_two(-(-stored // (rows * _PER_THREAD)))))
    steps = [
        meta.numel // meta.shape[0] if meta.ndim == least + 1 else 0
        for meta, least in ((crow, 1), (col, 1), (values, 1), (other, 2))
    ]
    fire = load(PRELUDE + SUMS + TEXT + _entry(CTYPES[out.dtype], CTYPES[indices.dtype], lanes), "run").prepare(
        (blocks(rows, _THREADS // lanes), batch), _THREADS, "PPPPP",
        [("i64", number) for number in (rows, *steps)],
    )  # fmt: skip
    at_values, at_other, at_out = byte_offset(values), byte_offset(other), byte_offset(out)

    def launch(args: Any, outs: Any) -> None:
        starts, places, _kept = indices.of(args[0], args[1])
        fire(
            backend.stream, outs[0].storage.block.pointer + at_out, starts, places,
            args[2].storage.block.pointer + at_values, args[3].storage.block.pointer + at_other,
        )  # fmt: skip

    return launch


def _entry(element: str, index: str, lanes: int) -> str:
    return f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) run(
    {element}* out, const {index}* crow, const {index}* col, const {element}* values, const {element}* vector, i64 rows,
    i64 crow_step, i64 col_step, i64 values_step, i64 vector_step) {{
    times_vector<{element}, {index}, {lanes}>(
        out, crow, col, values, vector, rows, crow_step, col_step, values_step, vector_step);
}}
"""
