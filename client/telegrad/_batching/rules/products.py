"""Products of vectors and matrices."""

from __future__ import annotations

import math
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor

from ..case import Case, Operand, enter, rule


def multiplied(left: Operand, right: Operand) -> Tensor:
    """Return the matrix products of two operands for the whole batch."""
    matmul = function("matmul")
    if not right.is_batched and (right.ndim <= 2 or right.ndim < left.ndim):
        return _by_shared(left, right)
    if not left.is_batched:
        if left.ndim <= 1 or (left.ndim == 2 and right.ndim >= 2):
            return matmul(right.tensor, left.tensor) if right.ndim == 1 else matmul(left.tensor, right.tensor)  # type: ignore[no-any-return]
        if left.ndim == 2:
            return matmul(right.tensor, left.tensor.transpose(-2, -1))  # type: ignore[no-any-return]
    return _both(left, right)


def _by_shared(left: Operand, right: Operand) -> Tensor:
    """Return products with what all elements of the batch share: one product of more rows."""
    matmul = function("matmul")
    if right.ndim <= 2:
        return matmul(left.tensor, right.tensor)  # type: ignore[no-any-return]
    return matmul(left.padded(max(left.ndim, right.ndim)), right.tensor)  # type: ignore[no-any-return]


def _both(left: Operand, right: Operand) -> Tensor:
    first = left.front if left.ndim > 1 else left.front.unsqueeze(1)
    second = right.front if right.ndim > 1 else right.front.unsqueeze(-1)
    ndim = max(first.ndim, second.ndim)
    first, second = [_with_ones(tensor, ndim) for tensor in (first, second)]
    result = function("matmul")(first, second)
    if left.ndim == 1:
        result = result.squeeze(-2)
    return result.squeeze(-1) if right.ndim == 1 else result  # type: ignore[no-any-return]


def _with_ones(tensor: Tensor, ndim: int) -> Tensor:
    missing = ndim - tensor.ndim
    if not missing:
        return tensor
    return tensor.reshape(tensor.shape[0], *(1,) * missing, *tensor.shape[1:])


def _product(case: Case) -> Any:
    return multiplied(case.args[0], case.args[1])


enter(_product, ("matmul", "linalg_matmul", "mm", "bmm", "mv", "dot"))


@rule("vdot")
def _vdot(case: Case) -> Any:
    left, right = case.args
    return (left.front.conj() * right.front).sum(1)


@rule("inner")
def _inner(case: Case) -> Any:
    left, right = case.args
    if not (left.ndim and right.ndim):
        ndim = max(left.ndim, right.ndim)
        return left.lifted(ndim) * right.lifted(ndim)
    rows, columns = left.front.flatten(1, -2) if left.ndim > 1 else left.front.unsqueeze(1), right.front
    columns = columns.flatten(1, -2) if right.ndim > 1 else columns.unsqueeze(1)
    return case.shaped(function("matmul")(rows, columns.transpose(1, 2)))


@rule("outer")
def _outer(case: Case) -> Any:
    left, right = case.args
    return left.front.unsqueeze(2) * right.front.unsqueeze(1)


def _added(case: Case, product: Tensor, ndim: int) -> Any:
    """Return ``beta * input + alpha * product``."""
    alpha, beta = case.named("alpha"), case.named("beta")
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    base = case.args[0].lifted(ndim)
    return (base if beta == 1 else base * beta) + scaled


@rule("addmm", "addmv", "baddbmm")
def _added_product(case: Case) -> Any:
    return _added(case, multiplied(case.args[1], case.args[2]), len(case.outs[0].shape))


@rule("addbmm")
def _added_sum(case: Case) -> Any:
    return _added(case, multiplied(case.args[1], case.args[2]).sum(1), 2)


@rule("addr")
def _added_outer(case: Case) -> Any:
    left, right = case.args[1:3]
    return _added(case, left.front.unsqueeze(2) * right.front.unsqueeze(1), 2)


@rule("linear")
def _linear(case: Case) -> Any:
    x, weight, bias = case.args
    is_shared = not weight.is_batched and (bias is None or not bias.is_batched)
    if is_shared:
        return case.call(x.tensor, weight.tensor, None if bias is None else bias.tensor)
    if weight.ndim == 1:
        result = function("matmul")(x.front, weight.front.unsqueeze(-1)).squeeze(-1) if x.ndim > 1 else None
        if result is None:
            return NotImplemented
    elif not weight.is_batched:
        result = case.call(x.tensor, weight.tensor)
    else:
        rows = x.front.reshape(case.size, math.prod(x.shape[:-1]), x.shape[-1])
        columns = function("bmm")(weight.front, rows.transpose(1, 2))  # so the weights' gradient lies as they do
        result = columns.transpose(1, 2).reshape(case.size, *x.shape[:-1], weight.shape[0])
    return result if bias is None else result + bias.lifted(len(case.outs[0].shape))


@rule("bilinear")
def _bilinear(case: Case) -> Any:
    first, second, weight, bias = case.args
    if weight.is_batched or (bias is not None and bias.is_batched):
        return NotImplemented
    return case.call(first.front, second.front, weight.tensor, None if bias is None else bias.tensor)


@rule("cross", "linalg_cross", "linalg_vecdot", "cosine_similarity")
def _along_last(case: Case) -> Any:
    left, right, dim, *rest = case.args
    ndim = max(left.ndim, right.ndim)
    if not ndim:
        return case.shaped(case.call(left.front.unsqueeze(1), right.front.unsqueeze(1), 1, *rest))
    if dim is None:
        dim = next(d for d, size in enumerate(left.shape) if size == 3)
    dim = (dim + ndim if dim < 0 else dim) + 1
    return case.call(left.padded(ndim), right.padded(ndim), dim, *rest)
