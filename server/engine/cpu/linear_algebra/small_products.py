"""Products of batches of small matrices by a compiled loop, and powers of matrices, written into the results' memory.

A call of BLAS for each pair of matrices costs more than their product.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.cpu.products import blocks
from server.engine.device import threads
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.dtypes import float32, float64
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra import linalg, matrix_functions

Array = Any
_MODULE = "tensors.small_products"
_MOST_PRODUCTS, _LEAST_OF_ALL = 6**3, 1 << 10
"""Multiply-adds of a pair of matrices up to which the loop is used, and of all of them from which on it is."""


def _loop_for(char: str) -> Any:
    """The loop for numbers of a type, None as long as it is not compiled."""
    module = compiled.kernels(_MODULE)
    return module and module.multiply[char]


class _Multiplication:
    """Products of batches of matrices that are so many numbers apart, by their addresses."""

    def __init__(self, sizes: tuple[int, int, int, int], dtype: Any, steps: tuple[int, ...]) -> None:
        self._count, m, n, k = sizes
        self._char = dtype.char
        self._plan = np.array([m, n, k, *steps], np.int64)
        self._is_large = self._count * (m * k + k * n + m * n) * dtype.itemsize >= threads.LEAST_BYTES
        self._loop: Any = None

    def run(self, left: int, right: int, target: int) -> bool:
        """Write the products; False, and nothing written, where the loop is not there yet."""
        loop = self._loop
        if loop is None:
            loop = self._loop = _loop_for(self._char)
            if loop is None:
                return False
        given = 1.0, self._plan.ctypes.data, left, right, target
        if self._is_large and threads.count() > 1:
            shares = threads.parts_of(self._count, 2 * threads.count())
            threads.run_loop(loop, [(*given, share.start, share.stop) for share in shares])
        else:
            loop(*given, 0, self._count)
        return True


def _is_small(count: int, m: int, n: int, k: int) -> bool:
    return 0 < m * n * k <= _MOST_PRODUCTS and count * m * n * k >= _LEAST_OF_ALL


def is_for_loop(left: Meta, right: Meta, out: Meta) -> bool:
    """Whether the loop multiplies these batches of matrices."""
    is_real = out.dtype in (float32, float64) and left.dtype is right.dtype is out.dtype
    count, m, n = out.shape
    return is_real and out.is_contiguous and _is_small(count, m, n, left.shape[2])


def _address(meta: Meta) -> int:
    """Where a tensor's first element is, from the beginning of its storage on."""
    return meta.offset * meta.dtype.itemsize


@prepares(linalg.bmm, keys.CPU)
def bmm(request: Request) -> Launch | None:
    (input, mat2), (out,) = request.args, request.outs
    sizes = out.shape[0], out.shape[1], out.shape[2], input.shape[2]
    if not is_for_loop(input, mat2, out):
        return None
    products = _Multiplication(sizes, np.dtype(NUMPY_DTYPES[out.dtype]), (*input.strides, *mat2.strides))
    first, second, goal = map(_address, (input, mat2, out))

    def launch(args: Any, outs: Any) -> None:
        left, right, target = (
            args[0].storage.block.pointer,
            args[1].storage.block.pointer,
            outs[0].storage.block.pointer,
        )
        if not products.run(left + first, right + second, target + goal):
            blocks.bmm(np, args[0].array, args[1].array, out=outs[0].array)

    return launch


def _power(a: Array, n: int, out: Array, multiply: Any) -> None:
    """Write a positive power of matrices by repeated squaring; ``multiply`` writes a product into its last argument."""
    result, square = None, a
    while n > 1:
        if n & 1:
            result = square if result is None else multiply(result, square, np.empty_like(out))
        n >>= 1
        is_last = n == 1 and result is None
        square = multiply(square, square, out if is_last else np.empty_like(out))
    if result is not None:
        multiply(result, square, out)
    elif square is a:
        np.copyto(out, a)


def _by_numpy(left: Array, right: Array, out: Array) -> Array:
    return np.matmul(left, right, out=out)


@prepares(matrix_functions.plain_matrix_power, keys.CPU)
def plain_matrix_power(request: Request) -> Launch | None:
    (A, n), (out,) = request.args, request.outs
    rows, dtype = A.shape[-1], np.dtype(NUMPY_DTYPES[A.dtype])
    if not (A.numel and out.is_contiguous):
        return None
    sizes = math.prod(A.shape[:-2]), rows, rows, rows
    dense = (rows * rows, rows, 1) * 2
    products = _Multiplication(sizes, dtype, dense) if dtype.char in "fd" and _is_small(*sizes) else None

    def by_loop(left: Array, right: Array, target: Array) -> Array:
        places = left.ctypes.data, right.ctypes.data, target.ctypes.data
        if products is None or not products.run(*places):
            return np.matmul(left, right, out=target)
        return target

    multiply = by_loop if products is not None else _by_numpy

    def launch(args: Any, outs: Any) -> None:
        given = args[0].array if products is None else np.ascontiguousarray(args[0].array)
        _power(given, n, outs[0].array, multiply)

    return launch
