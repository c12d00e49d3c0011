"""Products of matrices whose sizes or addresses tensor cores do not take well, such as logits of 50,257 classes.

They load 16 bytes at a time; a product with a size that is no multiple of that runs at a fifth of the speed. Where it
is large, copying its matrices to padded ones, zeros at the end, and the result from one costs less than that. Knows
nothing of operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import PRELUDE
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

from .cublaslt import COMPUTE_32F_FAST_TF32
from .layout import Matrices, alignment
from .product import Product

_ALIGNED = 16
_HALVES = {2: 110e12, 4: 200e12, 8: 400e12, _ALIGNED: 600e12}
_TENSORFLOAT = {4: 130e12, 8: 200e12, _ALIGNED: 320e12}
"""Operations per second by alignment, roughly; bytes per second of copies, and seconds to allocate and launch one."""
_COPIED = 3e12
_LAUNCH = 10e-6
_GAIN = 1.5

_THREADS, _PER_THREAD = 256, 8
_TEXT = r"""
// copies rows of a matrix; what the target has beyond the source becomes zero
template <class T> __device__ __forceinline__ void copy_rows(
    T* to, const T* from, i64 rows, i64 columns, i64 to_columns, i64 to_step, i64 from_step, i64 chunks
) {
    i64 row = blockIdx.x / chunks, begin = (blockIdx.x % chunks) * (256 * 8) + threadIdx.x;
    to += row * to_step;
    from += row * from_step;
    T held[8];
#pragma unroll
    for (int k = 0; k < 8; ++k)
        held[k] = row < rows && begin + k * 256 < columns ? from[begin + k * 256] : (T)0;
#pragma unroll
    for (int k = 0; k < 8; ++k)
        if (begin + k * 256 < to_columns) to[begin + k * 256] = held[k];
}
#define COPY(NAME, T) extern "C" __global__ void __launch_bounds__(256) NAME( \
    T* to, const T* from, i64 rows, i64 columns, i64 to_columns, i64 to_step, i64 from_step, i64 chunks \
) { copy_rows<T>(to, from, rows, columns, to_columns, to_step, from_step, chunks); }
COPY(copy_rows_2, u16)
COPY(copy_rows_4, u32)
"""

Copy = Callable[[int, int, int], None]


def _by_rows(of: Matrices) -> Matrices:
    return of if of.is_by_rows else of.T


def _alignment(of: Matrices) -> int:
    """What all rows begin at multiples of, and are as long as, in bytes; at most 16."""
    rows = _by_rows(of)
    step = rows.row_step if rows.rows > 1 else 0
    return math.gcd(alignment(of), step * of.dtype.itemsize, rows.columns * of.dtype.itemsize, _ALIGNED)


def stand_in(product: Product, compute: int) -> Product | None:
    """The product of padded copies of what is not aligned; None where that is not faster."""
    rates = _rates(product, compute)
    if rates is None or not product.left.columns:
        return None
    sides = (product.left, product.right, product.out)
    worst = min([_alignment(of) for of in sides])
    if worst == _ALIGNED:
        return None
    left, right, out = _padded(product)
    copied = [of for of, to in zip(sides, (left, right, out), strict=True) if to is not of]
    work = 2 * out.rows * out.columns * left.columns
    seconds = sum([2 * m.rows * m.columns * m.dtype.itemsize / _COPIED + _LAUNCH for m in copied])
    if work / rates[worst] < _GAIN * (work / rates[_ALIGNED] + seconds):
        return None
    return product._replace(left=left, right=right, out=out)


def _rates(product: Product, compute: int) -> dict[int, float] | None:
    """What to expect of products of this kind; None where padding is not made for them."""
    dtype = product.out.dtype
    if product.out.batch > 1 or product.added is not None or product.bias_gradient_at is not None:
        return None
    if dtype in (dtypes.float16, dtypes.bfloat16):
        return _HALVES
    return _TENSORFLOAT if dtype is dtypes.float32 and compute == COMPUTE_32F_FAST_TF32 else None


def _padded(product: Product) -> tuple[Matrices, Matrices, Matrices]:
    unit = _ALIGNED // product.out.dtype.itemsize
    m, n, k = (-(-size // unit) * unit for size in (product.out.rows, product.out.columns, product.left.columns))
    return _sized(product.left, m, k), _sized(product.right, k, n), _sized(product.out, m, n)


def _sized(of: Matrices, rows: int, columns: int) -> Matrices:
    """A matrix of its own memory and of that size; or the same one, where it is that already."""
    if (of.rows, of.columns) == (rows, columns) and _alignment(of) == _ALIGNED:
        return of
    if of.is_by_rows:
        return of._replace(rows=rows, columns=columns, row_step=columns, column_step=1, offset=0)
    return of._replace(rows=rows, columns=columns, row_step=1, column_step=rows, offset=0)


def memory_of(padded: Matrices, backend: Any) -> Meta:
    """What a padded matrix needs."""
    return Meta.of((padded.rows * padded.columns,), padded.dtype, backend.device)


def copying(source: Matrices, target: Matrices) -> Copy:
    """A launch that copies a matrix to a larger one, or the part of one that fits: of the stream, and from where to."""
    to, origin = _by_rows(target), _by_rows(source)
    chunks = -(-to.columns // (_THREADS * _PER_THREAD))
    sizes = origin.rows, origin.columns, to.columns, to.row_step, origin.row_step, chunks
    return load(PRELUDE + _TEXT, f"copy_rows_{to.dtype.itemsize}").prepare(
        to.rows * chunks, _THREADS, "PP", [("i64", size) for size in sizes]
    )
