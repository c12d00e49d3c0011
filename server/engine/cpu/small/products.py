"""Products of few matrices and vectors by NumPy's own loops, which are called with addresses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from server.engine.array_library.addresses import loop_of
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.cpu.linear_algebra.small_products import is_for_loop
from server.engine.in_c.small import CONSTANT, Loop, Place
from server.engine.operators import Request
from telegrad_protocol.dtypes import DType, float32, float64
from telegrad_protocol.layout import wrap_dim
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra import linalg, matrix_functions

from .layouts import argument, is_small, result, strides_of
from .registering import small

_MOST_PRODUCTS = 1 << 18
"""Multiply-adds up to which BLAS uses one thread, and a call costs something beside them."""
_FLOATING = "fdFD"


def _loop(function: Any, dtype: DType) -> list[int] | None:
    """The address of a loop for two operands and a result of a type, and that of its data."""
    char = np.dtype(NUMPY_DTYPES[dtype]).char
    found = loop_of(function, f"{char}{char}->{char}") if char in _FLOATING else None
    return None if found is None else list(found)


def _are_taken(*metas: Meta) -> bool:
    return len({meta.dtype for meta in metas}) == 1 and all([meta.numel for meta in metas])


def _product(left: Meta, right: Meta, out: Meta, sizes: Sequence[int], steps: Sequence[int]) -> list[int] | None:
    """The numbers of ``multiply_matrices``: sizes are the pairs, rows, what is summed over, and columns."""
    if not _are_taken(left, right, out) or math.prod(sizes) > _MOST_PRODUCTS:
        return None
    found = _loop(np.matmul, out.dtype)
    return found and [*found, *sizes, *[step * out.dtype.itemsize for step in steps]]


def _of_matrices(left: Meta, right: Meta, out: Meta) -> list[int] | None:
    """The numbers of ``multiply_matrices`` for a product of two matrices; None where the loop does not take them."""
    sizes = 1, *left.shape, right.shape[1]
    return _product(left, right, out, sizes, (0, 0, 0, *left.strides, *right.strides, *out.strides))


def _loop_of_pairs(left: Meta, right: Meta, out: Meta, numbers: list[int] | None) -> Loop | None:
    places = argument(0, left), argument(1, right), result(0, out)
    return None if numbers is None else Loop("multiply_matrices", places, numbers)


@small(linalg.mm)
def mm(request: Request) -> Loop | None:
    (left, right), (out,) = request.args, request.outs
    return _loop_of_pairs(left, right, out, _of_matrices(left, right, out))


@small(linalg.bmm)
def bmm(request: Request) -> Loop | None:
    """Pairs of which each is a call of BLAS; where one element is summed over, NumPy multiplies instead."""
    (left, right), (out,) = request.args, request.outs
    sizes = *left.shape, right.shape[2]
    if sizes[2] == 1 or is_for_loop(left, right, out):
        return None
    first = left.strides[0], right.strides[0], out.strides[0]
    numbers = _product(left, right, out, sizes, (*first, *left.strides[1:], *right.strides[1:], *out.strides[1:]))
    return _loop_of_pairs(left, right, out, numbers)


@small(linalg.mv)
def mv(request: Request) -> Loop | None:
    (matrix, vector), (out,) = request.args, request.outs
    steps = 0, 0, 0, *matrix.strides, *vector.strides, 0, *out.strides, 0
    numbers = _product(matrix, vector, out, (1, *matrix.shape, 1), steps)
    return _loop_of_pairs(matrix, vector, out, numbers)


@small(linalg.dot)
def dot(request: Request) -> Loop | None:
    (left, right), (out,) = request.args, request.outs
    steps = 0, 0, 0, 0, *left.strides, *right.strides, 0, 0, 0
    numbers = _product(left, right, out, (1, 1, *left.shape, 1), steps)
    return _loop_of_pairs(left, right, out, numbers)


@small(linalg.addmm, in_place=False)
def addmm(request: Request) -> Loop | None:
    """A product in real numbers to which something is added as it is."""
    (added, left, right, beta, alpha), (out,) = request.args, request.outs
    numbers = _of_matrices(left, right, out) if beta == alpha == 1 else None
    return None if numbers is None else _with_addition(numbers, (1, left), (2, right), (0, added), out)


@small(linalg.linear)
def linear(request: Request) -> Loop | None:
    """Rows, those of all batches together, by the rows of a matrix, and a bias."""
    (input, weight, bias), (out,) = request.args, request.outs
    if weight.ndim != 2 or not input.ndim or not (input.is_contiguous and out.is_contiguous):
        return None
    k, n = weight.shape[1], weight.shape[0]
    sizes = 1, input.numel // max(k, 1), k, n
    numbers = _product(input, weight, out, sizes, (0, 0, 0, k, 1, *weight.strides[::-1], n, 1))
    if numbers is None:
        return None
    if bias is None:
        return _loop_of_pairs(input, weight, out, numbers)
    return _with_addition(numbers, (0, input), (1, weight), (2, bias), out)


def _with_addition(
    numbers: list[int], left: tuple[int, Meta], right: tuple[int, Meta], added: tuple[int, Any], out: Meta
) -> Loop | None:
    """The loop of a product, whose operands and what is added are arguments with these numbers."""
    number, meta = added
    if meta.__class__ is not Meta or meta.ndim > 2 or not out.is_contiguous:
        return None
    if out.dtype not in (float32, float64) or meta.dtype is not out.dtype:
        return None
    rows, columns = out.numel // out.shape[-1], out.shape[-1]
    if meta.ndim == 2 and meta.shape[0] not in (1, rows):
        return None
    places = argument(*left), argument(*right), result(0, out), argument(number, meta)
    steps = strides_of(meta, (rows, columns))
    return Loop("multiply_and_add", places, [*numbers, out.dtype.itemsize, rows, columns, *steps])


@small(linalg._linear_backward)
def linear_backward(request: Request) -> Loop | None:
    """The gradients of ``linear`` by rows, by the weight, and by the bias, which is a product of ones with rows."""
    (grad, input, weight, bias), outs = request.args, request.outs
    metas = [meta for meta in (grad, input, weight) if meta is not None]
    if not all([meta.ndim == 2 and meta.is_contiguous for meta in metas]) or not _are_taken(*metas):
        return None
    if grad.dtype not in (float32, float64) or not all([out.is_contiguous for out in outs]):
        return None
    if bias and not is_small(grad):
        return None
    (m, n), places = grad.shape, [result(number, out) for number, out in enumerate(outs)]
    products = []
    if weight is not None:
        products.append(_Factors(argument(0, grad), argument(2, weight), (m, n, weight.shape[1]), (n, 1)))
    if input is not None:
        products.append(_Factors(argument(0, grad), argument(1, input), (n, m, input.shape[1]), (1, n)))
    if bias:
        products.append(_Factors(Place(CONSTANT), argument(0, grad), (1, m, n), (m, 1)))
    return _several(products, places, grad.dtype, m if bias else 0)


class _Factors(NamedTuple):
    """Two matrices in a dense product: their rows, what is summed over, columns, and the steps of the first one."""

    left: Place
    right: Place
    sizes: tuple[int, int, int]
    steps: tuple[int, int]


def _several(products: Sequence[_Factors], targets: Sequence[Place], dtype: DType, ones: int) -> Loop | None:
    """The loop of several products, of which a constant operand is so many ones."""
    found = _loop(np.matmul, dtype)
    if not products or found is None or sum([math.prod(product.sizes) for product in products]) > _MOST_PRODUCTS:
        return None
    numbers, places = [len(products)], []
    for product, target in zip(products, targets, strict=True):
        columns = product.sizes[2]
        steps = 0, 0, 0, *product.steps, columns, 1, columns, 1
        numbers += [*found, 1, *product.sizes, *[step * dtype.itemsize for step in steps]]
        places += [product.left, product.right, target]
    constant = np.ones(-(-ones * dtype.itemsize // 8) * 8 // dtype.itemsize, NUMPY_DTYPES[dtype])
    at = len(numbers)
    places = [place._replace(offset=at) if place.source == CONSTANT else place for place in places]
    return Loop("multiply_several", places, [*numbers, *constant.view(np.int64).tolist()])


@small(matrix_functions.plain_vecdot)
def plain_vecdot(request: Request) -> Loop | None:
    """Products of vectors along a dimension, the others of which are one at most."""
    (x, y, dim), (out,) = request.args, request.outs
    at = wrap_dim("linalg.vecdot", dim, x.ndim)
    others = [d for d in range(x.ndim) if d != at]
    found = _loop(np.vecdot, out.dtype) if x.ndim <= 2 and _are_taken(x, y, out) else None
    if found is None or x.numel > _MOST_PRODUCTS:
        return None
    first, size = (others[0] if others else None), out.dtype.itemsize
    outer = [0, 0, 0] if first is None else [x.strides[first], y.strides[first], out.strides[0]]
    steps = [step * size for step in (*outer, x.strides[at], y.strides[at])]
    numbers = [*found, out.numel, x.shape[at], *steps]
    return Loop("multiply_vectors", (argument(0, x), argument(1, y), result(0, out)), numbers)


@small(matrix_functions.plain_matrix_power)
def plain_matrix_power(request: Request) -> Loop | None:
    """Powers of dense matrices from the second one on."""
    (A, n), (out,) = request.args, request.outs
    if n < 2 or not (is_small(A) and A.is_contiguous and out.is_contiguous):
        return None
    rows, count = A.shape[-1], math.prod(A.shape[:-2])
    batch = Meta.of((count, rows, rows), A.dtype, A.device)
    steps = rows * rows, rows, 1
    numbers = _product(A, A, out, (count, rows, rows, rows), (*steps[:1] * 3, *steps[1:] * 3))
    if numbers is None or is_for_loop(batch, batch, batch):
        return None
    return Loop("raise_matrices", (argument(0, A), result(0, out)), [*numbers, n, A.numel * A.dtype.itemsize])
