"""Products of dense matrices at the stored elements of sparse ones: a part of a warp per element."""

from __future__ import annotations

from typing import Any

from server.engine import keys
from server.engine.cuda.rows.rowwise import byte_offset, power_of_two, row_major
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
    template <int N> __device__ __forceinline__ void join() {
        for (int step = N / 2; step; step /= 2) total += (A)__shfl_xor_sync(0xffffffffu, total, step);
    }
};
template <class R> struct sum_of<complex_t<R>> {
    complex_t<R> total = {0, 0};
    __device__ __forceinline__ void add(complex_t<R> a, complex_t<R> b) {
        total.re += a.re * b.re - a.im * b.im;
        total.im += a.re * b.im + a.im * b.re;
    }
    template <int N> __device__ __forceinline__ void join() {
        for (int step = N / 2; step; step /= 2) {
            total.re += __shfl_xor_sync(0xffffffffu, total.re, step);
            total.im += __shfl_xor_sync(0xffffffffu, total.im, step);
        }
    }
};

template <class T, class I, int LANES>
__device__ __forceinline__ void sampled(
    T* out, const I* crow, const I* col, const T* left, const T* right, i64 rows, i64 stored, i64 width,
    i64 crow_step, i64 col_step, i64 left_step, i64 right_step) {
    const i64 i = ((i64)blockIdx.x * 256 + threadIdx.x) / LANES, batch = blockIdx.y;
    const int lane = threadIdx.x % LANES;
    crow += batch * crow_step;
    col += batch * col_step;
    sum_of<compute_t<T>> sum;
    if (i < stored) {
        i64 low = 0, high = rows - 1;  // the last row that begins at i or before it
        while (low < high) {
            const i64 middle = (low + high + 1) / 2;
            if ((i64)crow[middle] <= i) low = middle; else high = middle - 1;
        }
        const T* a = left + batch * left_step + low * width;
        const T* b = right + batch * right_step + (i64)col[i] * width;
        for (i64 k = lane; k < width; k += LANES) sum.add(a[k], b[k]);
    }
    sum.template join<LANES>();
    if (i < stored && !lane) out[batch * stored + i] = cast<T>(sum.total);
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
    lanes = max(4, min(32, power_of_two(width)))
    element, index = CTYPES[out.dtype], CTYPES[indices.dtype]
    steps = [
        meta.numel // meta.shape[0] if meta.ndim == least + 1 else 0
        for meta, least in ((crow, 1), (col, 1), (left, 2), (right, 2))
    ]
    fire = load(PRELUDE + TEXT + _entry(element, index, lanes), "run").prepare(
        (blocks(stored * lanes, _THREADS), batch), _THREADS, "PPPPP",
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


def _entry(element: str, index: str, lanes: int) -> str:
    return f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) run(
    {element}* out, const {index}* crow, const {index}* col, const {element}* left, const {element}* right, i64 rows,
    i64 stored, i64 width, i64 crow_step, i64 col_step, i64 left_step, i64 right_step) {{
    sampled<{element}, {index}, {lanes}>(
        out, crow, col, left, right, rows, stored, width, crow_step, col_step, left_step, right_step);
}}
"""
