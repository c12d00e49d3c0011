"""The softmax family.

The CPU kernels go over blocks of rows that stay in cache; narrow rows are turned into columns.
"""

from __future__ import annotations

import numpy as np

from telegrad_protocol.ops import softmax as ops

from .. import functional as F
from .. import keys
from ..operators import composite, implements, kernel
from . import rows
from .reduce import axes, converted

_NARROW = 48
"""Rows shorter than this are faster as columns: NumPy vectorizes along the many, not along the few."""


def _largest(xp, input, dim):
    return xp.amax(input, axis=axes(input, dim), keepdims=True)


@implements(
    ops.softmax,
    input=lambda grad, out, dim: F._softmax_backward_data(grad, out, dim, grad.dtype),  # the engine casts it back
)
def softmax(xp, input, dim, dtype, *, out):
    if out.size:
        input = converted(input, out.dtype)
        xp.subtract(input, _largest(xp, input, dim), out=out)
        xp.exp(out, out=out)
        out /= xp.sum(out, axis=axes(out, dim), keepdims=True)


@composite(ops.softmax_functional)
def softmax_functional(input, dim, _stacklevel, dtype):
    return F.softmax(input, ops.implicit_dim(input.meta) if dim is None else dim, dtype)


@implements(
    ops.log_softmax,
    input=lambda grad, out, dim: F._log_softmax_backward_data(grad, out, dim, grad.dtype),
)
def log_softmax(xp, input, dim, dtype, *, out):
    if out.size:
        input = converted(input, out.dtype)
        xp.subtract(input, _largest(xp, input, dim), out=out)
        out -= xp.log(xp.sum(xp.exp(out), axis=axes(out, dim), keepdims=True))


@composite(ops.log_softmax_functional)
def log_softmax_functional(input, dim, _stacklevel, dtype):
    return F.log_softmax(input, ops.implicit_dim(input.meta) if dim is None else dim, dtype)


@composite(ops.softmin)
def softmin(input, dim, _stacklevel, dtype):
    return F.softmax(F.neg(input), ops.implicit_dim(input.meta) if dim is None else dim, dtype)


def _softmax_twice(grad, grad_output, output, dim):
    """How the backward pass depends on the forward's result."""
    inner = F.sum(F.mul(grad_output, output), dim, True)
    return F.sub(F.mul(grad, F.sub(grad_output, inner)), F.mul(grad_output, F.sum(F.mul(grad, output), dim, True)))


@implements(
    ops._softmax_backward_data,
    grad_output=lambda grad, output, dim: F._softmax_backward_data(grad, output, dim, grad.dtype),
    output=_softmax_twice,
)
def _softmax_backward_data(xp, grad_output, output, dim, input_dtype, *, out):
    xp.multiply(grad_output, output, out=out)
    out -= output * xp.sum(out, axis=axes(out, dim), keepdims=True)


def _log_softmax_twice(grad, grad_output, output, dim):
    return F.neg(F.mul(F.mul(grad, F.exp(output)), F.sum(grad_output, dim, True)))


@implements(
    ops._log_softmax_backward_data,
    grad_output=lambda grad, output, dim: F.sub(grad, F.sum(F.mul(grad, F.exp(output)), dim, True)),
    output=_log_softmax_twice,
)
def _log_softmax_backward_data(xp, grad_output, output, dim, input_dtype, *, out):
    summed = xp.sum(grad_output, axis=axes(out, dim), keepdims=True)
    xp.exp(output, out=out)
    out *= summed
    xp.subtract(grad_output, out, out=out)


def _matrices(dim, *arrays):
    """The operands as matrices whose rows are what is normalized, if their types and layouts allow that."""
    first = arrays[0]
    if first.ndim == 0 or dim % first.ndim != first.ndim - 1:
        return None
    if any(a.dtype is not first.dtype or not rows.is_fast(a) for a in arrays):
        return None
    return arrays if first.ndim == 2 else [a.reshape(-1, first.shape[-1]) for a in arrays]


def _softmax_rows(x, out):
    for block in rows.row_blocks(*x.shape):
        y = out[block]
        np.subtract(x[block], np.maximum.reduce(x[block], axis=1, keepdims=True), out=y)
        np.exp(y, out=y)
        y *= (1 / rows.row_sums(y))[:, None]


def _softmax_columns(x, out):
    columns = np.array(x.T, order="C")
    columns -= np.maximum.reduce(columns, axis=0)
    np.exp(columns, out=columns)
    np.divide(columns, np.add.reduce(columns, axis=0), out=out.T)


def exponentials(x, out):
    """Write the softmax of the rows of a matrix; return each row's sum of exponentials of x - max, and the max."""
    return _exponential_columns(x, out) if x.shape[1] < _NARROW else _exponential_rows(x, out)


def _exponential_columns(x, out):
    columns = np.array(x.T, order="C")
    largest = np.maximum.reduce(columns, axis=0)
    columns -= largest
    np.exp(columns, out=columns)
    sums = np.add.reduce(columns, axis=0)
    np.divide(columns, sums, out=out.T)
    return sums, largest


def _exponential_rows(x, out):
    sums, largest = np.empty(len(x), x.dtype), np.maximum.reduce(x, axis=1)
    for block in rows.row_blocks(*x.shape):
        y = out[block]
        np.subtract(x[block], largest[block, None], out=y)
        sums[block] = rows.row_sums(np.exp(y, out=y))
        y *= (1 / sums[block])[:, None]
    return sums, largest


def _log_softmax_rows(x, out):
    for block in rows.row_blocks(*x.shape):
        y = out[block]
        np.subtract(x[block], np.maximum.reduce(x[block], axis=1, keepdims=True), out=y)
        y -= np.log(rows.row_sums(np.exp(y)))[:, None]


def _log_softmax_columns(x, out):
    columns = np.array(x.T, order="C")
    columns -= np.maximum.reduce(columns, axis=0)
    summed = np.add.reduce(np.exp(columns), axis=0)
    np.subtract(columns, np.log(summed), out=out.T)


@kernel(ops.softmax, keys.CPU)
def _softmax_cpu(xp, input, dim, dtype, *, out):
    found = _matrices(dim, out, input)
    if found is None:
        softmax(xp, input, dim, dtype, out=out)
    else:
        (_softmax_columns if out.shape[-1] < _NARROW else _softmax_rows)(found[1], found[0])


@kernel(ops.log_softmax, keys.CPU)
def _log_softmax_cpu(xp, input, dim, dtype, *, out):
    found = _matrices(dim, out, input)
    if found is None:
        log_softmax(xp, input, dim, dtype, out=out)
    else:
        (_log_softmax_columns if out.shape[-1] < _NARROW else _log_softmax_rows)(found[1], found[0])


@kernel(ops._softmax_backward_data, keys.CPU)
def _softmax_backward_cpu(xp, grad_output, output, dim, input_dtype, *, out):
    found = _matrices(dim, out, grad_output, output)
    if found is None:
        _softmax_backward_data(xp, grad_output, output, dim, input_dtype, out=out)
        return
    result, grad, output = found
    for block in rows.row_blocks(*result.shape):
        weighted = np.einsum("ij,ij->i", grad[block], output[block])
        np.subtract(grad[block], weighted[:, None], out=result[block])
        result[block] *= output[block]


@kernel(ops._log_softmax_backward_data, keys.CPU)
def _log_softmax_backward_cpu(xp, grad_output, output, dim, input_dtype, *, out):
    found = _matrices(dim, out, grad_output, output)
    if found is None:
        _log_softmax_backward_data(xp, grad_output, output, dim, input_dtype, out=out)
        return
    result, grad, output = found
    for block in rows.row_blocks(*result.shape):
        y = np.exp(output[block], out=result[block])
        y *= rows.row_sums(grad[block])[:, None]
        np.subtract(grad[block], y, out=y)
