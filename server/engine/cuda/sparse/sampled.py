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

_THREADS = 256
_MOST_BATCHES = 65535

TEXT = r"""
template <class A> struct sum_of {
    A total = 0;
    template <class T> __device__ __forceinline__ void add(T a, T b) { total += (A)widen(a) * (A)widen(b); }
    template <int N> __device__ __forceinline__ void join(u32 mask) {
        for (int step = N / 2; step; step /= 2) total += (A)__shfl_xor_sync(mask, total, step);
    }
};
template <class R> struct sum_of<complex_t<R>> {
    complex_t<R> total = {0, 0};
    __device__ __forceinline__ void add(complex_t<R> a, complex_t<R> b) {
        total.re += a.re * b.re - a.im * b.im;
        total.im += a.re * b.im + a.im * b.re;
    }
    template <int N> __device__ __forceinline__ void join(u32 mask) {
        for (int step = N / 2; step; step /= 2) {
            total.re += __shfl_xor_sync(mask, total.re, step);
            total.im += __shfl_xor_sync(mask, total.im, step);
        }
    }
};

// A group of LANES threads per stored element; PER_ROW groups share the elements of a row.
template <class T, class I, int LANES, int VEC, int PER_ROW>
__device__ __forceinline__ void sampled(
    T* out, const I* crow, const I* col, const T* left, const T* right, i64 rows, i64 stored, i64 width,
    i64 crow_step, i64 col_step, i64 left_step, i64 right_step) {
    const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const i64 row = (i64)blockIdx.x * (256 / LANES / PER_ROW) + group / PER_ROW, batch = blockIdx.y;
    if (row >= rows) return;
    const u32 mask = LANES == 32 ? 0xffffffffu : ((1u << LANES % 32) - 1) << (threadIdx.x % 32 / LANES * LANES);
    crow += batch * crow_step;
    col += batch * col_step;
    out += batch * stored;
    const T* a = left + batch * left_step + row * width;
    right += batch * right_step;
    const i64 end = (i64)crow[row + 1];
    for (i64 i = (i64)crow[row] + group % PER_ROW; i < end; i += PER_ROW) {
        const T* b = right + (i64)col[i] * width;
        sum_of<compute_t<T>> sum;
        for (i64 k = lane * VEC; k < width; k += LANES * VEC) {
            const vec<T, VEC> x = *(const vec<T, VEC>*)(a + k), y = *(const vec<T, VEC>*)(b + k);
            #pragma unroll
            for (int j = 0; j < VEC; ++j) sum.add(x.at[j], y.at[j]);
        }
        sum.template join<LANES>(mask);
        if (!lane) out[i] = cast<T>(sum.total);
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
    element, index = CTYPES[out.dtype], CTYPES[indices.dtype]
    steps = [
        meta.numel // meta.shape[0] if meta.ndim == least + 1 else 0
        for meta, least in ((crow, 1), (col, 1), (left, 2), (right, 2))
    ]
    fire = load(PRELUDE + TEXT + _entry(element, index, lanes, vector, per_row), "run").prepare(
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


def _entry(element: str, index: str, lanes: int, vector: int, per_row: int) -> str:
    return f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) run(
    {element}* out, const {index}* crow, const {index}* col, const {element}* left, const {element}* right, i64 rows,
    i64 stored, i64 width, i64 crow_step, i64 col_step, i64 left_step, i64 right_step) {{
    sampled<{element}, {index}, {lanes}, {vector}, {per_row}>(
        out, crow, col, left, right, rows, stored, width, crow_step, col_step, left_step, right_step);
}}
"""
