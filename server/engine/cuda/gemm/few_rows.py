"""Products with few rows, as in decoding: each weight is read once, in vectors, and used for all rows.

What takes the time is reading the weights, not multiplying. Computed in float32, each sum in the same order every time.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final, NamedTuple

from server.engine.cuda.runtime.geometry import VECTOR_BYTES
from server.engine.cuda.runtime.launch import Kernel, load
from server.engine.cuda.runtime.overlapping import OVERLAPPING
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

from . import cublaslt
from .few_rows_text import AHEAD, COLUMNS, WARPS
from .launch import Run
from .layout import Matrices
from .product import Product

MOST_ROWS: Final = {dtypes.float32: 4, dtypes.float16: 2, dtypes.bfloat16: 2}
"""With more rows libraries win, in half precision by tensor cores, since each weight is multiplied more often."""
_LARGE: Final = 3 << 24
"""Weights in half precision of which libraries read so many as fast, unless there is one row."""
WARP: Final = 32
_ENOUGH_WARPS: Final = 1056
"""Eight for each multiprocessor of an H100."""
_MOST_WARPS: Final = 4224
"""Warps that keep a GPU's memory busy: about half of those that an H100 holds."""

_TEXT = r"""
struct steps_t { i64 columns, depth, x, w, row, column, bias; };

// M rows; SPLIT warps share a column of the result
template <class T, int V, int M, int SPLIT> __device__ __forceinline__ void few_rows(
    T* out, const T* x, const T* w, const T* bias, int rows, steps_t s
) {
    __shared__ float parts[WARPS][M];
    const i64 column = (i64)blockIdx.x * (WARPS / SPLIT) + threadIdx.x / 32 / SPLIT;
    columns_t<T, V, 1, SPLIT> weights;
    weights.w[0] = w + column * s.w;
    weights.begin(column < s.columns ? (int)s.depth : 0);
    let_next_begin();
    weights.fetch_first();
    wait_for_earlier();
    weights.read();
    float sum[1][M];
    weights.multiply(sum, x, (int)s.x, rows);
    weights.combine(sum, parts);
    if (column >= s.columns || threadIdx.x % (32 * SPLIT)) return;
    const float added = bias ? (float)widen(bias[column * s.bias]) : 0.0f;
    #pragma unroll
    for (int m = 0; m < M; ++m)
        if (m < rows) out[m * s.row + column * s.column] = cast<T>(sum[0][m] + added);
}
"""
_KERNEL: Final = """
extern "C" __global__ void __launch_bounds__(256) few_rows_{split}(
    {T}* out, const {T}* x, const {T}* w, const {T}* bias, int rows, steps_t s
) {{ few_rows<{T}, {V}, {M}, {split}>(out, x, w, bias, rows, s); }}"""
_SPLITS: Final = (1, 2, 4, 8)
NAME: Final = "few_rows"
"""What this way to compute a product is called."""


class Sides(NamedTuple):
    """The few rows, the weights, the result and what is added to it; ``is_transposed``: of the transposed product."""

    few: Matrices
    weights: Matrices
    out: Matrices
    added: Matrices | None
    is_transposed: bool


def sides_of(product: Product) -> Sides | None:
    """The product, or its transpose, as one with few rows; None if it has many rows and columns."""
    left, right, out, added = product.left, product.right, product.out, product.added
    most = MOST_ROWS.get(out.dtype, 0)
    if out.rows <= most:
        return Sides(left, right, out, added, False)
    if out.columns <= most:
        return Sides(right.T, left.T, out.T, None if added is None else added.T, True)
    return None


def _are_vectors(matrix: Matrices, vector: int) -> bool:
    """Whether rows are made of whole vectors that begin where vectors may."""
    apart = matrix.row_step if matrix.rows > 1 else 0
    is_run = matrix.column_step == 1 and not matrix.columns % vector
    return is_run and not (apart % vector or matrix.offset % vector)


def takes(product: Product) -> bool:
    """Whether there is a kernel: few rows or columns, and factors whose rows are read in vectors."""
    sides = sides_of(product)
    if sides is None or product.out.batch != 1 or product.is_empty or _is_large(sides):
        return False
    is_plain = product.activation == cublaslt.PLAIN and product.bias_gradient_at is None and product.alpha == 1
    if not is_plain or product.may_alias or not _adds_a_row(product, sides.added):
        return False
    vector = VECTOR_BYTES // product.out.dtype.itemsize
    return _are_vectors(sides.few, vector) and _are_vectors(sides.weights.T, vector)


def _is_large(sides: Sides) -> bool:
    is_half = sides.out.dtype is not dtypes.float32
    return is_half and sides.out.rows > 1 and sides.weights.rows * sides.weights.columns > _LARGE


def _adds_a_row(product: Product, added: Matrices | None) -> bool:
    """Whether nothing is added, or the same to all rows."""
    return added is None or (product.beta == 1 and added.batch == 1 and (added.row_step == 0 or added.rows == 1))


def run_of(product: Product) -> Run | None:
    """What computes the product; None where there is no kernel for it."""
    sides = sides_of(product)
    if sides is None or not takes(product):
        return None
    few, weights, out, added, is_transposed = sides
    split = split_of(weights.columns, weights.rows, VECTOR_BYTES // out.dtype.itemsize)
    steps = struct.pack(
        "=7q", out.columns, few.columns, few.row_step, weights.column_step, out.row_step, out.column_step,
        0 if added is None else added.column_step,
    )  # fmt: skip
    fire = _kernel(out.dtype, 1 << (out.rows - 1).bit_length(), split).prepare(
        -(-out.columns * split // WARPS), WARPS * WARP, "PPPP", [("int", out.rows), steps], overlaps=True
    )

    def run(stream: int, left: int, right: int, at_added: int, at_out: int, bias: int) -> None:
        x, w = (right, left) if is_transposed else (left, right)
        fire(stream, at_out, x, w, 0 if added is None else at_added)

    return run


def split_of(columns: int, depth: int, vector: int) -> int:
    """How many warps share a column of the result.

    As few as read it at once, since more have to wait for each other, and enough for every multiprocessor.
    """
    split = 1
    while split < WARPS and 2 * split * WARP * vector <= depth and 2 * columns * split <= _MOST_WARPS:
        if columns * split >= _ENOUGH_WARPS and depth <= AHEAD * split * WARP * vector:
            break
        split *= 2
    return split


def _kernel(dtype: DType, rows: int, split: int) -> Kernel:
    """The kernel for so many rows at most, of which so many warps share a column of the result."""
    return load(_text(dtype, rows), f"few_rows_{split}")


@cache
def _text(dtype: DType, rows: int) -> str:
    ctype, vector = CTYPES[dtype], VECTOR_BYTES // dtype.itemsize
    kernels = [_KERNEL.format(T=ctype, V=vector, M=rows, split=each) for each in _SPLITS]
    return assembled(PRELUDE, OVERLAPPING, COLUMNS, _TEXT, *kernels)


def check_loads(dtype: DType) -> None:
    """Load the kernels of a type."""
    for rows in range(MOST_ROWS.get(dtype, 0).bit_length()):
        _kernel(dtype, 1 << rows, 1)
