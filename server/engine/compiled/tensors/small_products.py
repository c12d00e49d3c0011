"""Products of many pairs of small real matrices, whatever their strides.

Steps count numbers; addresses count bytes. Functions release the GIL and run on one thread.
"""

from __future__ import annotations

from ..arithmetic import compiled
from ..signals import bytes_of, word
from ..slots import specialized
from ..tiles import element, write


@specialized
def _multiply(one: float, plan: int, left: int, right: int, target: int, begin: int, end: int) -> None:
    m, n, k, size = word(plan, 0), word(plan, 1), word(plan, 2), bytes_of(one)
    a_batch, a_row, a_column = word(plan, 3), word(plan, 4), word(plan, 5)
    b_batch, b_row, b_column = word(plan, 6), word(plan, 7), word(plan, 8)
    goal = target + begin * m * n * size
    for number in range(begin, end):
        for i in range(m):
            a = left + (number * a_batch + i * a_row) * size
            for j in range(n):
                b = right + (number * b_batch + j * b_column) * size
                total = element(one, a, 0) * element(one, b, 0)
                for e in range(1, k):
                    total += element(one, a, e * a_column) * element(one, b, e * b_row)
                write(goal, total)
                goal += size


@compiled("float32", *["int64"] * 6)
def _single(one: float, plan: int, left: int, right: int, target: int, begin: int, end: int) -> None:
    _multiply(one, plan, left, right, target, begin, end)


@compiled("float64", *["int64"] * 6)
def _double(one: float, plan: int, left: int, right: int, target: int, begin: int, end: int) -> None:
    _multiply(one, plan, left, right, target, begin, end)


multiply = {"f": _single, "d": _double}
"""Write products of pairs ``begin`` to ``end`` of matrices, row-major and dense, by the type's character.

``one`` is 1. ``plan`` has integers: the rows and columns of the products, the length of their sums, at least 1, and the
steps of both operands from matrix to matrix, from row to row and from column to column.
"""
