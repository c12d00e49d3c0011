"""Our own matrix product: tiles in shared memory, any strides. For integers, which no library multiplies.

Integers are summed in 64 bits and wrap around as their type does.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from server.engine.cuda.runtime.launch import Launch, load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

from .layout import Matrices

_TILE = 32
_MOST_BLOCKS_Z = 1 << 15

_TEXT = r"""
struct matrices { i64 step, row, column; };
struct shape { i64 batch, m, n, k; matrices a, b, c, d; };

template <class T> struct summed { typedef i64 type; };
template <> struct summed<f16> { typedef float type; };
template <> struct summed<bf16> { typedef float type; };
template <> struct summed<float> { typedef float type; };
template <> struct summed<double> { typedef double type; };

template <class T> __device__ void multiply(
    T* __restrict__ d, const T* a, const T* b, const T* c, const shape s,
    typename summed<T>::type alpha, typename summed<T>::type beta
) {
    typedef typename summed<T>::type S;
    const int TILE = 32, STEP = 16;
    __shared__ S left[STEP][TILE + 1], right[STEP][TILE + 1];
    int x = threadIdx.x, y = threadIdx.y, thread = y * 16 + x;
    i64 across = (s.n + TILE - 1) / TILE;
    i64 i0 = (i64)blockIdx.x / across * TILE, j0 = (i64)blockIdx.x % across * TILE;
    for (i64 batch = blockIdx.z; batch < s.batch; batch += gridDim.z) {
        const T *at = a + batch * s.a.step, *bt = b + batch * s.b.step;
        S sum[2][2] = {};
        for (i64 k0 = 0; k0 < s.k; k0 += STEP) {
            for (int e = thread; e < TILE * STEP; e += 256) {
                // neighbours read along the dimension whose elements are neighbours
                int r = s.a.column == 1 ? e / STEP : e % TILE, t = s.a.column == 1 ? e % STEP : e / TILE;
                bool inside = i0 + r < s.m && k0 + t < s.k;
                left[t][r] = inside ? (S)widen(at[(i0 + r) * s.a.row + (k0 + t) * s.a.column]) : S(0);
                int q = s.b.column == 1 ? e % TILE : e / STEP, u = s.b.column == 1 ? e / TILE : e % STEP;
                inside = j0 + q < s.n && k0 + u < s.k;
                right[u][q] = inside ? (S)widen(bt[(k0 + u) * s.b.row + (j0 + q) * s.b.column]) : S(0);
            }
            __syncthreads();
#pragma unroll
            for (int t = 0; t < STEP; ++t)
#pragma unroll
                for (int p = 0; p < 2; ++p)
#pragma unroll
                    for (int q = 0; q < 2; ++q) sum[p][q] += left[t][y + 16 * p] * right[t][x + 16 * q];
            __syncthreads();
        }
        for (int p = 0; p < 2; ++p)
            for (int q = 0; q < 2; ++q) {
                i64 i = i0 + y + 16 * p, j = j0 + x + 16 * q;
                if (i >= s.m || j >= s.n) continue;
                S result = alpha * sum[p][q];
                if (beta != S(0)) result += beta * (S)widen(c[batch * s.c.step + i * s.c.row + j * s.c.column]);
                d[batch * s.d.step + i * s.d.row + j * s.d.column] = cast<T>(result);
            }
    }
}
"""


def takes(dtype: DType) -> bool:
    """Whether the kernel is made for a type."""
    return not dtype.is_complex and dtype is not dtypes.bool_


def tiles(left: Matrices, right: Matrices, added: Matrices, out: Matrices, alpha: Any, beta: Any) -> Launch:
    """A launch of alpha * left @ right + beta * added; it takes the stream, and addresses of the result and these."""
    ctype = CTYPES[out.dtype]
    text = f"""
extern "C" __global__ void __launch_bounds__(256) multiply_{ctype}(
    {ctype}* d, const {ctype}* a, const {ctype}* b, const {ctype}* c, summed<{ctype}>::type alpha,
    summed<{ctype}>::type beta, const shape s
) {{ multiply(d, a, b, c, s, alpha, beta); }}"""
    kind, number = _factor_of(out.dtype)
    count = -(-out.rows // _TILE) * -(-out.columns // _TILE)
    sides = [n for m in (left, right, added, out) for n in (m.step, m.row_step, m.column_step)]
    packed = struct.pack("=16q", out.batch, out.rows, out.columns, left.columns, *sides)
    return load(PRELUDE + _TEXT + text, f"multiply_{ctype}").prepare(
        (count, 1, min(out.batch, _MOST_BLOCKS_Z)), (16, 16), "PPPP",
        [(kind, number(alpha)), (kind, number(beta)), packed],
    )  # fmt: skip


def _factor_of(dtype: DType) -> tuple[str, Any]:
    """The type of alpha and beta, and what makes a number one: as arrays are converted, whatever it is."""
    kind = "i64" if not dtype.is_floating_point else "double" if dtype is dtypes.float64 else "float"
    held = np.dtype({"i64": "i8", "double": "f8", "float": "f4"}[kind])
    return kind, lambda factor: np.asarray(factor).astype(held).item()
