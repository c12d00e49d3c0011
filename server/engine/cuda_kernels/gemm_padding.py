"""Products of half-precision matrices whose rows begin at odd addresses, such as logits of 50,257 classes.

Tensor cores load 16 bytes at a time; without that alignment a product runs at a fifth of its speed. Where it is large,
copying such matrices to padded rows, or the result from them, costs less than that. Knows nothing of cuBLASLt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

from .gemm_layout import Matrices, alignment
from .launch import load
from .prelude import PRELUDE

_ALIGNED = 16
_RATES = {2: 100e12, 4: 250e12, 8: 500e12, _ALIGNED: 600e12}
"""Operations per second by alignment, roughly; and bytes per second of copies, and seconds to launch one."""
_COPIED = 2.5e12
_LAUNCH = 8e-6

_THREADS, _PER_THREAD = 256, 8
_TEXT = r"""
extern "C" __global__ void __launch_bounds__(256) copy_rows(
    u16* to, const u16* from, i64 columns, i64 to_step, i64 from_step, i64 chunks
) {
    i64 row = blockIdx.x / chunks, begin = (blockIdx.x % chunks) * (256 * 8) + threadIdx.x;
    to += row * to_step;
    from += row * from_step;
    u16 held[8];
#pragma unroll
    for (int k = 0; k < 8; ++k)
        if (begin + k * 256 < columns) held[k] = from[begin + k * 256];
#pragma unroll
    for (int k = 0; k < 8; ++k)
        if (begin + k * 256 < columns) to[begin + k * 256] = held[k];
}
"""

Copy = Callable[[int, int, int], None]


def alignment_of(of: Matrices) -> int:
    """What all rows begin at multiples of, in bytes; at most 16."""
    rows = of if of.is_by_rows else of.T
    step = rows.row_step if rows.rows > 1 else 0
    return math.gcd(alignment(of), step * of.dtype.itemsize, _ALIGNED)


def stand_in(of: Matrices) -> Matrices:
    """The same matrix with padded rows, at the start of memory of its own; or itself where it is aligned."""
    if alignment_of(of) == _ALIGNED:
        return of
    rows = of if of.is_by_rows else of.T
    unit = _ALIGNED // of.dtype.itemsize
    padded = rows._replace(row_step=-(-rows.columns // unit) * unit, column_step=1, offset=0)
    return padded if of.is_by_rows else padded.T


def pays(left: Matrices, right: Matrices, out: Matrices) -> bool:
    """Whether padding what is not aligned makes a product faster."""
    sides = (left, right, out)
    if out.dtype not in (dtypes.float16, dtypes.bfloat16) or out.batch > 1 or not all(m.is_blas for m in sides):
        return False
    work = 2 * out.rows * out.columns * left.columns
    odd = [m for m in sides if alignment_of(m) < _ALIGNED]
    copied = sum(2 * m.rows * m.columns * m.dtype.itemsize for m in odd)
    before = work / _RATES[min(alignment_of(m) for m in sides)]
    return before > 1.5 * (work / _RATES[_ALIGNED] + copied / _COPIED + len(odd) * _LAUNCH)


def memory_of(padded: Matrices, backend: Any) -> Meta:
    """What a padded matrix needs."""
    rows = padded if padded.is_by_rows else padded.T
    return Meta.of((rows.rows * rows.row_step,), padded.dtype, backend.device)


def copying(source: Matrices, target: Matrices) -> Copy:
    """A launch that copies a matrix's elements between layouts: of the stream, where to and where from."""
    to, origin = (m if m.is_by_rows else m.T for m in (target, source))
    chunks = -(-to.columns // (_THREADS * _PER_THREAD))
    constants = [("i64", to.columns), ("i64", to.row_step), ("i64", origin.row_step), ("i64", chunks)]
    return load(PRELUDE + _TEXT, "copy_rows").prepare(to.rows * chunks, _THREADS, "PP", constants)
