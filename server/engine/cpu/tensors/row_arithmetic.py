"""Arithmetic of a large tensor and one that is broadcast to it, such as a bias, by compiled loops of rows.

Dimensions that lie one behind the other and are both broadcast, or both not, count as one. Taken are those in which the
smaller operand has whole rows of the larger one, or one number for each of its rows. The others are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.dtypes import HALVES
from server.engine.cpu.halves import is_half, narrow, words
from server.engine.device import threads
from server.engine.operators import OPERATORS, Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.dtypes import float32
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import pointwise as ops

Array = Any
_SHORTEST = 16
"""Elements of a row, at least: shorter ones are mostly the loop around them."""
_LARGEST = 3e38


class Rows(NamedTuple):
    """The rows of the larger operand and their length, those of the other one, and how many go with each of these."""

    number: int
    length: int
    others: int
    width: int
    repeat: int


def rows_of(shape: Sequence[int], other: Sequence[int]) -> Rows | None:
    """How a tensor of the second shape is broadcast to one of the first, which has all elements; None if otherwise."""
    padded = (1,) * (len(shape) - len(other)) + tuple(other)
    sizes = [(size, size == there) for size, there in zip(shape, padded, strict=True) if size != 1]
    blocks = [(is_kept, math.prod([size for size, _ in group])) for is_kept, group in groupby(sizes, lambda s: s[1])]
    if not 2 <= len(blocks) <= 4 or blocks[-1][1] < _SHORTEST:
        return None
    (is_whole, length), *before = reversed(blocks)
    repeat = before.pop(0)[1] if is_whole else 1
    others = before.pop(0)[1] if before else 1
    if len(before) > 1:
        return None
    number = math.prod(shape) // length
    return Rows(number, length, others, length if is_whole else 1, repeat)


_LOOPS = {
    "add": ("add_rows", "add_columns", 1), "sub": ("add_rows", "add_columns", -1),
    "mul": ("multiply_rows", "multiply_columns", 0), "div": (None, "divide_by_columns", 0),
}  # fmt: skip
"""By operation: the loops for whole rows and for columns, and the factor of the second operand."""


def _prepare(request: Request) -> Launch | None:
    op, (first, second), (out,) = request.op, request.args[:2], request.outs
    if not isinstance(first, Meta) or not isinstance(second, Meta) or out.numel < compiled.LEAST:
        return None
    if not all([meta.is_contiguous and meta.dtype is out.dtype for meta in (first, second)]) or not out.is_contiguous:
        return None
    if out.dtype is not float32 and out.dtype not in HALVES:
        return None
    turned = first.shape != out.shape
    large, small = (second, first) if turned else (first, second)
    if large.shape != out.shape or (turned and op.name not in ("add", "mul")):
        return None
    rows = rows_of(out.shape, small.shape)
    names = [param.name for param in op.params[op.positional :]]
    options = dict(zip(names, request.args[op.positional :], strict=True))
    alpha = options.get("alpha", 1)
    is_number = alpha.__class__ in (int, float) and abs(alpha) < _LARGEST
    if rows is None or not is_number or (turned and alpha != 1) or options.get("rounding_mode") is not None:
        return None
    by_rows, by_columns, sign = _LOOPS[op.name]
    name = by_columns if rows.width == 1 else by_rows
    if name is None:
        return None
    function = partial(OPERATORS[op.name].kernels[keys.CPU].function, np, **options)
    return partial(_run, function, name, sign * alpha, rows, turned)


def _run(
    function: Callable[..., None], name: str, factor: float, rows: Rows, turned: bool, args: Any, outs: Any
) -> None:  # fmt: skip
    given, out = [arg.array for arg in args[:2]], outs[0].array
    loops = compiled.kernels("tensors.broadcasts")
    if loops is None:
        _run_by_numpy(function, given, out)
        return
    large, small = reversed(given) if turned else given
    shape = rows.number, rows.length
    x, target = words(large).reshape(shape), words(out).reshape(shape)
    other, loop = words(small).reshape(rows.others, rows.width), getattr(loops, name)[out.dtype.char]
    shares = threads.shares_of(rows.number, 2 * out.nbytes)
    calls = [(x[share], other, factor, share.start, rows.repeat, target[share]) for share in shares]
    threads.run_loop(loop, calls)


def _run_by_numpy(function: Callable[..., None], given: Sequence[Array], out: Array) -> None:
    if not is_half(out):
        function(*given, out=out)
        return
    result = np.empty(out.shape, np.float32)
    function(*[array.astype(np.float32) for array in given], out=result)
    narrow(result, out)


for _op in (ops.add, ops.sub, ops.mul, ops.div):
    prepares(_op, keys.CPU, elementwise=True)(_prepare)
