"""Products of large matrices by BLAS, which threads share by blocks of the result."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.addresses import data_address
from server.engine.array_library.host_libraries import PREFIXES, address_of
from server.engine.device import threads
from server.engine.ops.linear_algebra import linalg as generic
from server.engine.registry import kernel
from telegrad_protocol.ops.linear_algebra import linalg as ops

Array = Any
_BLOCKS_PER_THREAD = 2
"""So that a thread that is held up, since other processes use the processors too, holds up less."""
_LEAST_SIDE = 32
"""The rows or columns of a block, at least."""


@cache
def gemm(char: str) -> int:
    """The address of BLAS's product of matrices of this type."""
    return address_of(PREFIXES[char] + "gemm")


def loops_for(products: int, *arrays: Array) -> Any:
    """The compiled loops if threads pay for so many multiply-adds of matrices of one type; else None."""
    if products < 4 * threads.LEAST_PRODUCTS or threads.count() == 1:
        return None
    kind = arrays[0].dtype
    if kind.char not in "fd" or any([array.dtype is not kind for array in arrays]):
        return None
    return compiled.kernels("blas")


def calls_of(left: Array, right: Array, out: Array, bias: Array | None = None) -> list[tuple[Any, ...]] | None:
    """What ``multiply`` of ``compiled.blas`` is called with for out = left @ right + bias; None for other layouts."""
    first, second, third = _lies(left), _lies(right), _lies(out)
    if first is None or second is None or third is None or third[0]:
        return None
    (m, k), n, itemsize = left.shape, right.shape[1], out.itemsize
    none = np.zeros(0, out.dtype) if bias is None else np.ascontiguousarray(bias)
    places = [data_address(array) for array in (left, right, out)]
    function, calls = gemm(out.dtype.char), []
    down, across = _split(m, n, m * n * k)
    for rows in down:
        for columns in across:
            at_left = places[0] + rows.start * left.strides[0]
            at_right = places[1] + columns.start * right.strides[1]
            at_out = places[2] + rows.start * out.strides[0] + columns.start * itemsize
            calls.append((
                function, first[0], second[0], rows.stop - rows.start, columns.stop - columns.start, k,
                at_left, first[1], at_right, second[1], at_out, third[1], none if bias is None else none[columns],
            ))  # fmt: skip
    return calls


def _lies(array: Array) -> tuple[int, int] | None:
    """Whether a matrix is turned, so that its columns are side by side, and the elements from one to the next."""
    (rows, columns), (down, across), itemsize = array.shape, array.strides, array.itemsize
    if columns == 1 or across == itemsize:
        step = down if rows > 1 else columns * itemsize
        return (0, step // itemsize) if step >= columns * itemsize and not step % itemsize and across > 0 else None
    if rows == 1 or down == itemsize:
        return (1, across // itemsize) if across >= rows * itemsize and not across % itemsize else None
    return None


def _split(m: int, n: int, products: int) -> tuple[Sequence[slice], Sequence[slice]]:
    """Slices of rows and of columns that make blocks, each for one thread at a time."""
    wanted = min(_BLOCKS_PER_THREAD * threads.count(), products // threads.LEAST_PRODUCTS)
    down = across = 1
    while down * across < wanted:
        if m // down >= n // across:
            down *= 2
        else:
            across *= 2
        if max(m // down, n // across) < 2 * _LEAST_SIDE:
            break
    return threads.parts_of(m, min(down, m)), threads.parts_of(n, min(across, n))


def multiply(left: Array, right: Array, out: Array, bias: Array | None = None) -> bool:
    """Write a product, and a bias that is added to its rows; False, and nothing written, where threads do not pay."""
    loops = loops_for(out.size * left.shape[1], left, right, out)
    calls = None if loops is None else calls_of(left, right, out, bias)
    if calls is None:
        return False
    threads.run_loop(loops.multiply[out.dtype.char], calls, calls_blas=True)
    return True


@kernel(ops.mm, keys.CPU)
def mm(xp, input, mat2, *, out):
    if not multiply(input, mat2, out):
        generic.mm(xp, input, mat2, out=out)


@kernel(ops.addmm, keys.CPU)
def addmm(xp, input, mat1, mat2, *, beta, alpha, out):
    if multiply(mat1, mat2, out):
        generic.add_scaled(xp, input, beta, alpha, out)
    else:
        generic.addmm(xp, input, mat1, mat2, beta=beta, alpha=alpha, out=out)


@kernel(ops.bmm, keys.CPU)
def bmm(xp, input, mat2, *, out):
    """Products of many matrices, of which threads take some each."""
    products = out.size * input.shape[2]
    if len(out) == 1 or out.dtype.char not in "fd" or products < 4 * threads.LEAST_PRODUCTS:
        generic.bmm(xp, input, mat2, out=out)
        return
    number = min(_BLOCKS_PER_THREAD * threads.count(), products // threads.LEAST_PRODUCTS, len(out))
    parts = threads.parts_of(len(out), number if threads.count() > 1 else 1)
    threads.run(
        lambda part: generic.bmm(xp, input[parts[part]], mat2[parts[part]], out=out[parts[part]]), len(parts)
    )  # fmt: skip
