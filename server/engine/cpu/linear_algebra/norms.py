"""Norms of vectors, and of matrices by the sums of their rows or columns, by a compiled loop for any strides.

Where it is not compiled yet, or not loaded, NumPy computes the norms of a few numbers, and the other kernels the rest.
All add up single precision in double precision, so that no bit tells which of them has computed a norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import count as numbers_from
from typing import Any, NamedTuple

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.cpu import reduce
from server.engine.cpu.rows import row_dots
from server.engine.device import threads
from server.engine.operators import Request
from server.engine.ops.linear_algebra import matrix_norms as generic_matrix_norms
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.dtypes import float32, float64
from telegrad_protocol.layout import wrap_dims
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import spread
from telegrad_protocol.ops.linear_algebra import matrix_functions

from .matrices import launch_of

Array = Any
_MODULE = "tensors.norms"
_COUNT, _SUM, _EUCLIDEAN, _LARGEST, _SMALLEST, _CUBIC, _POWER = range(7)
"""The codes of ``server/engine/compiled/tensors/norms``."""
_CODES = {0: _COUNT, 1: _SUM, 2: _EUCLIDEAN, math.inf: _LARGEST, -math.inf: _SMALLEST, 3: _CUBIC}
_MOST_NUMBERS, _MOST_OF_ROW, _FEW_COLUMNS = 1 << 14, 1 << 10, 16
"""Numbers for which the loop is used, and how many of a row, or columns beside each other, where there are more."""


_runs = numbers_from()
"""Counts the norms of few numbers that were computed without the loop."""


def _euclidean(rows: Array, out: Array) -> None:
    np.sqrt(np.vecdot(rows, rows) if len(rows) == 1 else row_dots(rows, rows), out=out)


def _sums(rows: Array, out: Array) -> None:
    np.add.reduce(np.absolute(rows), axis=1, out=out)


def _largest(rows: Array, out: Array) -> None:
    np.maximum.reduce(np.absolute(rows), axis=1, out=out)


def _smallest(rows: Array, out: Array) -> None:
    np.minimum.reduce(np.absolute(rows), axis=1, out=out)


def _of_order(p: float) -> Callable[[Array, Array], None]:
    def powers(rows: Array, out: Array) -> None:
        np.power(np.add.reduce(np.power(np.absolute(rows), p), axis=1), 1 / p, out=out)

    return powers


_BY_ORDER = {2: _euclidean, 1: _sums, math.inf: _largest, -math.inf: _smallest}


class _Runs(NamedTuple):
    """Sizes and steps of dimensions that are one behind the other in memory."""

    sizes: list[int]
    steps: list[int]


def _merged(meta: Meta, dims: Iterable[int]) -> _Runs:
    """Dimensions of which neighbours are one wherever they may be."""
    runs = _Runs([], [])
    for dim in dims:
        size, step = meta.shape[dim], meta.strides[dim]
        if size == 1:
            continue
        if runs.sizes and runs.steps[-1] == step * size:
            runs.sizes[-1], runs.steps[-1] = runs.sizes[-1] * size, step
        else:
            runs.sizes.append(size)
            runs.steps.append(step)
    return runs


def _padded(runs: _Runs, count: int) -> list[int] | None:
    """So many pairs of sizes and steps, the first ones of one element; None where there are more."""
    missing = count - len(runs.sizes)
    if missing < 0:
        return None
    return [1, 0] * missing + [number for pair in zip(*runs, strict=True) for number in pair]


def _loop_launch(
    head: tuple[int, int], order: float, places: list[int], input: Meta, out: Meta, fallback: Launch
) -> Launch:
    """A launch of the loop: the code and the extreme, the order, three pairs of a size and a step, and what else."""
    size, char = out.dtype.itemsize, NUMPY_DTYPES[out.dtype].char
    unit = input.dtype.itemsize // size
    scaled = [number * unit if place % 2 else number for place, number in enumerate(places)]
    plan = np.array([*head, unit - 1, *scaled], np.int64)
    address, begin, goal = plan.ctypes.data, input.offset * input.dtype.itemsize, out.offset * size
    power, is_much, loop = float(order), input.numel > _MOST_NUMBERS, None

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...], alive: Any = plan) -> None:
        nonlocal loop
        if loop is None:
            module = compiled.kernels(_MODULE) if is_much else compiled.kernels_after(_runs, _MODULE)
            if module is None:
                fallback(args, outs)
                return
            loop = module.norms[char]
        loop(1.0, power, address, args[0].storage.block.pointer + begin, outs[0].storage.block.pointer + goal)

    return launch


def _numpy_launch(order: float, input: Meta, kept: int) -> Launch:
    """A launch of NumPy's functions for dense numbers, of which the last dimensions are reduced."""
    shape = math.prod(input.shape[:kept]), -1
    write, wide = _BY_ORDER.get(order) or _of_order(order), "D" if input.dtype.is_complex else "d"

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        rows = args[0].array.reshape(shape).astype(wide, copy=False)
        results = np.empty(shape[0])
        write(np.absolute(rows) if wide == "D" else rows, results)
        outs[0].array.reshape(-1)[...] = results

    return launch


def _is_for_loop(code: int, input: Meta, step: int, count: int) -> bool:
    """Whether the loop takes less time than what several threads, or blocks of columns, would."""
    if input.numel <= _MOST_NUMBERS or code in (_CUBIC, _POWER):  # of many numbers these take NumPy the longest
        return True
    if 1 < step <= _FEW_COLUMNS:
        return True
    return step == 1 and count <= _MOST_OF_ROW and input.nbytes < threads.LEAST_BYTES


@prepares(spread.norm, keys.CPU)
def norm(request: Request) -> Launch | None:
    input, p, dim, keepdim, dtype = request.args
    (out,) = request.outs
    order = 2 if p is None else p
    is_plain = input.dtype.is_differentiable and input.dtype.to_real() is out.dtype and out.dtype in (float32, float64)
    if not (is_plain and out.is_contiguous and dtype in (None, input.dtype) and input.numel):
        return None
    dims = range(input.ndim) if dim is None or dim == () else (dim,) if isinstance(dim, int) else dim
    reduced = set(wrap_dims("norm", tuple(dims), input.ndim)) if input.ndim else set()
    in_memory = sorted(
        reduced, key=lambda d: (-input.strides[d], d)
    )  # in which order they are added up is all the same
    vector = _padded(_merged(input, in_memory), 1)
    others = _padded(_merged(input, [d for d in range(input.ndim) if d not in reduced]), 2)
    kept = input.ndim - len(reduced)
    is_dense = input.is_contiguous and input.numel <= _MOST_NUMBERS and order
    fallback = _numpy_launch(order, input, kept) if is_dense and reduced == set(range(kept, input.ndim)) else None
    code = _CODES.get(order, _POWER)
    if vector is None or others is None or not _is_for_loop(code, input, vector[1], vector[0]):
        return fallback

    def launch_generic(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        wide = np.empty(outs[0].array.shape)
        numbers = args[0].array.astype("D" if input.dtype.is_complex else "d", copy=False)
        reduce.norm(np, numbers, p, dim, keepdim, dtype=None, out=wide)
        outs[0].array[...] = wide

    return _loop_launch((code, -1), order, [*others, *vector], input, out, fallback or launch_generic)


@prepares(matrix_functions.plain_matrix_norm, keys.CPU)
def plain_matrix_norm(request: Request) -> Launch | None:
    """The largest or smallest sum of the magnitudes of a column, or of a row."""
    (A, ord, dim, _), (out,) = request.args, request.outs
    order = {"1": 1, "-1": -1, "inf": math.inf, "-inf": -math.inf}.get(ord)
    if order is None or not out.is_contiguous or A.numel > _MOST_NUMBERS * 4:
        return None
    rows, columns = matrix_functions.matrix_dims("linalg.matrix_norm", A, dim)
    if abs(order) == math.inf:
        rows, columns = columns, rows
    others = [d for d in range(A.ndim) if d not in (rows, columns)]
    batch = _padded(_merged(A, others), 1)
    if batch is None:
        return None
    places = [*batch, A.shape[columns], A.strides[columns], A.shape[rows], A.strides[rows]]
    fallback = launch_of(generic_matrix_norms.plain_matrix_norm, ("ord", "dim", "keepdim"), request, _never)
    return _loop_launch((_SUM, _LARGEST if order > 0 else _SMALLEST), 1.0, places, A, out, fallback)


def _never(*arrays: Array) -> bool:
    """What computes nothing, so that the generic kernel does."""
    return False
