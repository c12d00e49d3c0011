"""Norms of a few numbers, of all or of rows, where arrays and the choice of kernels would take longer than the sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from server.engine import keys
from server.engine.cpu.rows import row_dots
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.dtypes import float32, float64
from telegrad_protocol.layout import wrap_dims
from telegrad_protocol.ops import spread

Array = Any
_MOST_NUMBERS = 1 << 14


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


@prepares(spread.norm, keys.CPU)
def norm(request: Request) -> Launch | None:
    input, p, dim, _, dtype = request.args
    (out,) = request.outs
    order = 2 if p is None else p
    is_plain = input.dtype.is_differentiable and input.dtype.to_real() is out.dtype and out.dtype in (float32, float64)
    is_dense = input.is_contiguous and out.is_contiguous
    if not (is_plain and is_dense and dtype in (None, input.dtype) and 0 < input.numel <= _MOST_NUMBERS and order):
        return None
    dims = range(input.ndim) if dim is None or dim == () else (dim,) if isinstance(dim, int) else dim
    reduced = set(wrap_dims("norm", tuple(dims), input.ndim)) if input.ndim else set()
    kept = input.ndim - len(reduced)
    if reduced != set(range(kept, input.ndim)):
        return None
    shape = math.prod(input.shape[:kept]), -1
    write = _BY_ORDER.get(order) or _of_order(order)

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        write(args[0].array.reshape(shape), outs[0].array.reshape(-1))

    def launch_complex(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        write(np.absolute(args[0].array.reshape(shape)), outs[0].array.reshape(-1))

    return launch_complex if input.dtype.is_complex else launch
