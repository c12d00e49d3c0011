"""Norms, variances and standard deviations. Variances take two passes: the mean first, then the deviations from it."""

from __future__ import annotations

import numpy as np

from server.engine import functional as F
from server.engine.array_library.indexing import sum_over
from server.engine.registry import composite, implements
from telegrad_protocol.ops import spread as ops

from .reduce import axes, converted, count_of, expand_reduced, write_maximum, write_minimum


def _norm_backward(grad, input, input_meta, out, p, dim, keepdim):
    p = 2 if p is None else p
    norm, grad = expand_reduced(out, input_meta, dim, keepdim), expand_reduced(grad, input_meta, dim, keepdim)
    if p == 0:
        return F.zeros_like(input)
    if p == 1:
        return F.mul(F.sgn(input), grad)
    if p == 2:
        return F.mul(input, F.mul(grad, _unless_zero(norm, F.reciprocal(norm))))
    size = F.abs(input)
    if p in (float("inf"), float("-inf")):
        reached = F.logical_or(F.eq(size, norm), F.logical_and(F.isnan(size), F.isnan(norm)))
        share = F.div(reached, F.sum(reached, dim, True))
        return F.mul(F.sgn(input), F.mul(grad, share))
    divisor = F.masked_fill(norm, F.eq(norm, 0), 1)  # so that derivatives of the gradient are no NaN there
    scale = F.div(grad, F.pow(divisor, p - 1)) if p > 1 else F.mul(grad, F.pow(divisor, 1 - p))
    if p < 2:
        return F.mul(F.mul(F.sgn(input), _unless_zero(input, F.pow(size, p - 1))), _unless_zero(norm, scale))
    return F.mul(F.mul(input, F.pow(size, p - 2)), _unless_zero(norm, scale))


def _unless_zero(condition, value):
    return F.masked_fill(value, F.eq(condition, 0), 0)


@implements(ops.norm, input=_norm_backward)
def norm(xp, input, p, dim, keepdim, *, dtype, out):
    if dtype is not None:
        input = converted(input, _accumulator(input, out))
    if input.dtype.kind == "c":
        input = xp.abs(input)
    axis, p = axes(input, dim), 2 if p is None else p
    if p in (float("inf"), float("-inf")):
        (write_maximum if p > 0 else write_minimum)(xp, xp.abs(input), axis, keepdim, out)
    elif p == 2:
        xp.sqrt(sum_over(xp, input * input, axis, keepdim), out=out)
    elif p == 0:
        out[...] = xp.count_nonzero(input, axis=axis).reshape(out.shape)
    else:
        powers = xp.abs(input) if p == 1 else xp.abs(input) ** p
        summed = sum_over(xp, powers, axis, keepdim)
        out[...] = summed if p == 1 else summed ** (1 / p)


def _accumulator(input, out):
    return np.result_type(out.dtype, np.complex64) if input.dtype.kind == "c" else out.dtype


@composite(ops.norm_named)
def norm_named(input, p, dim, keepdim, *, dtype):
    if p == "nuc":
        return F.linalg_matrix_norm(input, p, (0, 1) if dim is None else dim, keepdim, dtype=dtype)
    return F.norm(input, 2, dim, keepdim, dtype=dtype)


@composite(ops.dist)
def dist(input, other, p):
    return F.norm(F.sub(input, other), p)


def _correction(correction, unbiased=None):
    if unbiased is not None:
        return 1 if unbiased else 0
    return 1 if correction is None else correction


def _var_backward(grad, input, input_meta, dim, correction, keepdim):
    degrees_of_freedom = count_of(input_meta, dim) - _correction(correction)
    centred = F.sub(input, F.mean(input, dim, True))
    if degrees_of_freedom <= 0:
        return F.mul(expand_reduced(grad, input_meta, dim, keepdim), F.div(centred, 0))
    return F.mul(centred, expand_reduced(F.mul(grad, 2.0 / degrees_of_freedom), input_meta, dim, keepdim))


def _std_backward(grad, input, input_meta, out, dim, correction, keepdim):
    of_var = _unless_zero(out, F.div(grad, F.mul(out, 2)))
    return _var_backward(of_var, input, input_meta, dim, correction, keepdim)


@implements(ops.var, input=_var_backward)
def var(xp, input, dim, *, correction, keepdim, out):
    axis = axes(input, dim)
    count = input.size // out.size if out.size else 1
    centred = input - sum_over(xp, input, axis, True) / max(count, 1)  # ``mean`` would warn of empty slices
    degrees_of_freedom = count - _correction(correction)
    deviation_sum = sum_over(xp, centred, axis, keepdim)  # not 0, because the mean was rounded
    summed = sum_over(xp, _squares(xp, centred), axis, keepdim) - _squares(xp, deviation_sum) / max(count, 1)
    xp.divide(summed, out.dtype.type(degrees_of_freedom if degrees_of_freedom > 0 else 0), out=out)


def _squares(xp, array):
    return xp.abs(array) ** 2 if array.dtype.kind == "c" else array * array


@composite(ops.var_unbiased)
def var_unbiased(input, unbiased):
    return F.var(input, None, correction=_correction(None, unbiased))


@composite(ops.var_dim)
def var_dim(input, dim, unbiased, keepdim):
    return F.var(input, dim, correction=_correction(None, unbiased), keepdim=keepdim)


@implements(ops.std, input=_std_backward)
def std(xp, input, dim, *, correction, keepdim, out):
    var(xp, input, dim, correction=correction, keepdim=keepdim, out=out)
    xp.sqrt(out, out=out)


@composite(ops.std_unbiased)
def std_unbiased(input, unbiased):
    return F.std(input, None, correction=_correction(None, unbiased))


@composite(ops.std_dim)
def std_dim(input, dim, unbiased, keepdim):
    return F.std(input, dim, correction=_correction(None, unbiased), keepdim=keepdim)


@composite(ops.var_mean)
def var_mean(input, dim, *, correction, keepdim):
    return F.var(input, dim, correction=correction, keepdim=keepdim), F.mean(input, dim, keepdim)


@composite(ops.var_mean_unbiased)
def var_mean_unbiased(input, unbiased):
    return var_mean(input, None, correction=_correction(None, unbiased), keepdim=False)


@composite(ops.var_mean_dim)
def var_mean_dim(input, dim, unbiased, keepdim):
    return var_mean(input, dim, correction=_correction(None, unbiased), keepdim=keepdim)


@composite(ops.std_mean)
def std_mean(input, dim, *, correction, keepdim):
    return F.std(input, dim, correction=correction, keepdim=keepdim), F.mean(input, dim, keepdim)


@composite(ops.std_mean_unbiased)
def std_mean_unbiased(input, unbiased):
    return std_mean(input, None, correction=_correction(None, unbiased), keepdim=False)


@composite(ops.std_mean_dim)
def std_mean_dim(input, dim, unbiased, keepdim):
    return std_mean(input, dim, correction=_correction(None, unbiased), keepdim=keepdim)
