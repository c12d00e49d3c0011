"""QR factorizations of large real matrices, by panels of columns between which are BLAS's products.

Matrices are in column-major order. The reflections of a panel are one product, by the triangle of Schreiber and Van
Loan. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from typing import Any

from ..arithmetic import compiled_for_reals
from ..blas import product
from ..slots import specialized
from .matrices import combine, factorize_panel, read_matrix

Array = Any
_N, _T = ord("N"), ord("T")


@specialized
def _apply(
    function: int, transposed: int, tails: Array, combined: Array, panel: int, target: Array, begin: int, first: int,
    before: Array, after: Array,
) -> None:  # fmt: skip
    """Apply the reflections of the panel that begins at a row to the columns of a matrix from the first one on."""
    rows, item, most = tails.shape[1], tails.itemsize, combined.shape[1]
    count, others, length = min(most, tails.shape[0] - begin), target.shape[0] - first, rows - begin
    if others <= 0:
        return
    zero, one = tails.dtype.type(0), tails.dtype.type(1)
    v, t = tails.ctypes.data + (begin * rows + begin) * item, combined.ctypes.data + panel * most * most * item
    rest, w, y = target.ctypes.data + (first * rows + begin) * item, before.ctypes.data, after.ctypes.data
    product(function, _T, _N, count, others, length, v, rows, rest, rows, zero, w, most)
    product(function, transposed, _N, count, others, count, t, most, w, most, zero, y, most)
    product(function, _N, _N, length, others, count, v, rows, y, most, one, rest, rows)


@compiled_for_reals(
    "int64", "T[:,:]", "T[:,::1]", "T[:,::1]", "T[:,:,::1]", "T[:,::1]", "T[:,::1]", "T[:,::1]", "T[::1]",
    returns="int64",
)  # fmt: skip
def qr(
    function: int, matrix: Array, columns: Array, tails: Array, combined: Array, q: Array, before: Array, after: Array,
    factors: Array,
) -> int:  # fmt: skip
    """Write R into the upper triangle of ``columns``, and Q; return whether that could be done.

    ``function`` is the address of BLAS's product. Q has as many columns as are wanted. The rest is scratch memory: of
    all reflections, a square for each panel and one more, twice of as many numbers for every column of ``columns`` and
    of Q as a panel has columns, and of the reflections' factors.
    """
    read_matrix(matrix, columns)
    rows, most, item = columns.shape[1], combined.shape[1], columns.itemsize
    count, panels, zero = tails.shape[0], combined.shape[0] - 1, columns.dtype.type(0)
    for panel in range(panels):
        begin = panel * most
        end = min(begin + most, count)
        if not factorize_panel(columns, begin, end, tails[begin:end], factors):
            return 0
        v = tails.ctypes.data + (begin * rows + begin) * item
        product(
            function, _T, _N, end - begin, end - begin, rows - begin, v, rows, v, rows, zero,
            combined[panels].ctypes.data, most,
        )  # fmt: skip
        combine(combined[panels], factors, combined[panel], end - begin)
        _apply(function, _T, tails, combined, panel, columns, begin, end, before, after)
    q[:] = 0
    for j in range(q.shape[0]):
        q[j, j] = 1
    for panel in range(panels - 1, -1, -1):
        begin = panel * most
        if q.shape[0]:
            _apply(function, _N, tails, combined, panel, q, begin, begin, before, after)
    return 1
