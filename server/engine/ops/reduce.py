"""Reductions over dimensions: sums, products, extrema, and log-sum-exp."""

from __future__ import annotations

import math

import numpy as np

from server.engine import functional as F
from server.engine.array_library.indexing import sum_over
from server.engine.registry import composite, implements
from telegrad_protocol.layout import wrap_dim, wrap_dims
from telegrad_protocol.ops import reduce as ops


def axes(input, dim):
    """``dim`` as the array library's ``axis``: None reduces all dimensions."""
    return None if dim is None or dim == () or input.ndim == 0 else dim


def dims_of(meta, dim):
    """The reduced dimensions as non-negative numbers."""
    listed = (dim,) if isinstance(dim, int) else dim
    return wrap_dims("reduce", listed, meta.ndim) if listed and meta.ndim else tuple(range(meta.ndim))


def count_of(meta, dim):
    """The number of elements that are reduced to one."""
    count = 1
    for d in dims_of(meta, dim):
        count *= meta.shape[d]
    return count


def expand_reduced(grad, input_meta, dim, keepdim):
    """A tensor of the reduction's shape expanded to the input's: reduced dimensions are put back and broadcast."""
    dims = dims_of(input_meta, dim)
    if not keepdim and dims != tuple(range(len(dims))):
        grad = F.reshape(grad, ops.reduced("sum", input_meta, dim, True))
    return grad if grad.shape == input_meta.shape else F.expand(grad, input_meta.shape)


def converted(input, dtype):
    """``input`` cast to ``dtype``; the imaginary parts of complex numbers are dropped if ``dtype`` is real."""
    if input.dtype == dtype:
        return input
    is_narrowing = input.dtype.kind == "c" and dtype.kind not in "cb" and dtype.name != "complex32"
    return (input.real if is_narrowing else input).astype(dtype)


@implements(ops.sum, input=lambda grad, input_meta, dim, keepdim: expand_reduced(grad, input_meta, dim, keepdim))
def sum(xp, input, dim, keepdim, *, dtype, out):
    if input.dtype.kind in "biu" and out.dtype.kind in "biu":
        xp.sum(input, axis=axes(input, dim), keepdims=keepdim, dtype=out.dtype, out=out)
    else:
        out[...] = sum_over(xp, converted(input, out.dtype), axes(input, dim), keepdim)


def _nansum_backward(grad, input, input_meta, dim, keepdim):
    return F.mul(expand_reduced(grad, input_meta, dim, keepdim), F.logical_not(F.isnan(input)))


@implements(ops.nansum, input=_nansum_backward)
def nansum(xp, input, dim, keepdim, *, dtype, out):
    input = converted(input, out.dtype)
    out[...] = sum_over(xp, xp.where(xp.isnan(input), 0, input), axes(input, dim), keepdim)


def _mean_backward(grad, input_meta, dim, keepdim):
    count = count_of(input_meta, dim)
    return expand_reduced(F.mul(grad, 1.0 / count if count else float("nan")), input_meta, dim, keepdim)


@implements(ops.mean, input=_mean_backward)
def mean(xp, input, dim, keepdim, *, dtype, out):
    input = converted(input, out.dtype)
    count = input.size // out.size if out.size else 1
    xp.divide(sum_over(xp, input, axes(input, dim), keepdim), out.dtype.type(count), out=out)


@composite(ops.nanmean)
def nanmean(input, dim, keepdim, *, dtype):
    count = F.sum(F.logical_not(F.isnan(input)), dim, keepdim)
    return F.div(F.nansum(input, dim, keepdim, dtype=dtype), count)


def _prod_backward(grad, input, input_meta, dim, keepdim):
    """The gradient of an element is the product of all others, computed without division because of zeros."""
    if input_meta.ndim == 0:
        return grad
    if dim is None:
        flat = F.reshape(input, -1)
        return F.reshape(F.mul(F.reshape(grad, 1), _product_of_others(flat, 0)), input_meta.shape)
    kept = grad if keepdim else F.unsqueeze(grad, dim)
    return F.mul(kept, _product_of_others(input, wrap_dim("prod", dim, input_meta.ndim)))


def _product_of_others(input, dim):
    conjugate = F.conj(input) if input.dtype.is_complex else input
    before = exclusive_cumprod(conjugate, dim)
    after = F.flip(exclusive_cumprod(F.flip(conjugate, (dim,)), dim), (dim,))
    return F.mul(before, after)


def exclusive_cumprod(input, dim):
    """For every element the product of all elements before it along ``dim``."""
    length = input.shape[dim]
    if length == 0:
        return input
    first = F.ones_like(F.narrow(input, dim, 0, 1))
    return F.cumprod(F.cat((first, F.narrow(input, dim, 0, length - 1)), dim), dim)


@implements(ops.prod, input=_prod_backward)
def prod(xp, input, dim, keepdim, *, dtype, out):
    input = converted(input, out.dtype)
    if out.dtype.kind == "b":
        out[...] = xp.all(input, axis=axes(input, dim), keepdims=keepdim)
    else:
        xp.prod(input, axis=axes(input, dim), keepdims=keepdim, out=out)


def select_backward(grad, input_meta, dim, keepdim, indices):
    """The gradient of selecting ``indices`` along ``dim``: the selected elements get it, all others get 0."""
    if input_meta.ndim == 0:
        return grad
    if not keepdim:
        grad, indices = F.unsqueeze(grad, dim), F.unsqueeze(indices, dim)
    zeros = F.zeros(input_meta.shape, dtype=grad.dtype, device=grad.device)
    return F.scatter(zeros, dim, indices, grad)


def extremum_backward(grad, input, out, dim, keepdim):
    """The gradient of an extremum, distributed evenly over the elements equal to it, or over the NaN if it is NaN."""
    extremum = expand_reduced(out, input.meta, dim, keepdim)
    mask = F.eq(input, extremum)
    if input.dtype.is_floating_point:
        mask = F.logical_or(mask, F.logical_and(F.isnan(input), F.isnan(extremum)))
    share = F.div(grad, F.sum(mask, dim, keepdim))
    return F.mul(expand_reduced(share, input.meta, dim, keepdim), mask)


def _take_at(array, indices, axis, xp):
    if array.ndim == 0:
        return array
    return xp.take_along_axis(array, xp.expand_dims(indices, axis), axis).reshape(indices.shape)


def _write_extremum(xp, find, input, dim, keepdim, out):
    values, indices = out
    if input.ndim == 0:
        values[...], indices[...] = input, 0
        return
    if not values.size:
        return
    where = find(input, axis=dim)
    values.reshape(where.shape)[...] = _take_at(input, where, dim, xp)
    indices.reshape(where.shape)[...] = where


def write_maximum(xp, input, axis, keepdims, out):
    """Write the maximum; an empty result is skipped, because CuPy raises an error for it."""
    if not out.size:
        return
    if xp is np:
        np.maximum.reduce(input, axis, None, out, keepdims)
    else:
        xp.amax(input, axis=axis, keepdims=keepdims, out=out)


def write_minimum(xp, input, axis, keepdims, out):
    """Write the minimum. CuPy 14.2's ``amin`` mistakes ``out`` for a dtype, so its result is copied."""
    if not out.size:
        return
    if xp is np:
        np.minimum.reduce(input, axis, None, out, keepdims)
    else:
        out[...] = xp.amin(input, axis=axis, keepdims=keepdims)


@composite(ops.max_other)
def max_other(input, other):
    return F.maximum(input, other)


@implements(
    ops.max_dim,
    input=lambda grad_values, input_meta, dim, keepdim, indices: select_backward(
        grad_values, input_meta, dim, keepdim, indices
    ),
)
def max_dim(xp, input, dim, keepdim, *, out):
    _write_extremum(xp, xp.argmax, input, dim, keepdim, out)


@implements(ops.max, input=lambda grad, input, out: extremum_backward(grad, input, out, None, False))
def max(xp, input, *, out):
    write_maximum(xp, input, None, False, out)


@composite(ops.min_other)
def min_other(input, other):
    return F.minimum(input, other)


@implements(
    ops.min_dim,
    input=lambda grad_values, input_meta, dim, keepdim, indices: select_backward(
        grad_values, input_meta, dim, keepdim, indices
    ),
)
def min_dim(xp, input, dim, keepdim, *, out):
    _write_extremum(xp, xp.argmin, input, dim, keepdim, out)


@implements(ops.min, input=lambda grad, input, out: extremum_backward(grad, input, out, None, False))
def min(xp, input, *, out):
    write_minimum(xp, input, None, False, out)


@implements(ops.amax, input=lambda grad, input, out, dim, keepdim: extremum_backward(grad, input, out, dim, keepdim))
def amax(xp, input, dim, keepdim, *, out):
    write_maximum(xp, input, axes(input, dim), keepdim, out)


@implements(ops.amin, input=lambda grad, input, out, dim, keepdim: extremum_backward(grad, input, out, dim, keepdim))
def amin(xp, input, dim, keepdim, *, out):
    write_minimum(xp, input, axes(input, dim), keepdim, out)


def _aminmax_backward(grad_min, grad_max, input, min, max, dim, keepdim):
    return F.add(
        extremum_backward(grad_min, input, min, dim, keepdim), extremum_backward(grad_max, input, max, dim, keepdim)
    )


@implements(ops.aminmax, input=_aminmax_backward)
def aminmax(xp, input, *, dim, keepdim, out):
    amin(xp, input, dim, keepdim, out=out[0])
    amax(xp, input, dim, keepdim, out=out[1])


@implements(ops.argmax)
def argmax(xp, input, dim, keepdim, *, out):
    _write_index(xp, xp.argmax, input, dim, out)


@implements(ops.argmin)
def argmin(xp, input, dim, keepdim, *, out):
    _write_index(xp, xp.argmin, input, dim, out)


def _write_index(xp, find, input, dim, out):
    if not out.size:
        return
    if dim is None or input.ndim == 0:
        input, dim = input.reshape(-1), 0
    where = find(input, axis=dim)
    if xp is not np and input.dtype.kind == "f":  # CuPy returns any NaN's index, NumPy and PyTorch the first
        is_nan = xp.isnan(input)
        where = xp.where(is_nan.any(axis=dim), xp.argmax(is_nan, axis=dim), where)
    out[...] = where.reshape(out.shape)


@implements(ops.any)
def any(xp, input, dim, keepdim, *, out):
    out[...] = input != 0 if dim == () else xp.any(input, axis=axes(input, dim), keepdims=keepdim)


@implements(ops.all)
def all(xp, input, dim, keepdim, *, out):
    out[...] = input != 0 if dim == () else xp.all(input, axis=axes(input, dim), keepdims=keepdim)


@implements(ops.count_nonzero)
def count_nonzero(xp, input, dim, *, out):
    out[...] = xp.count_nonzero(input, axis=axes(input, dim))


def _logsumexp_backward(grad, input, input_meta, out, dim, keepdim):
    weights = F.exp(F.sub(input, expand_reduced(out, input_meta, dim, keepdim)))
    if weights.dtype.is_complex:
        weights = F.conj(weights)
    return F.mul(expand_reduced(grad, input_meta, dim, keepdim), weights)


@implements(ops.logsumexp, input=_logsumexp_backward)
def logsumexp(xp, input, dim, keepdim, *, out):
    axis = axes(input, dim)
    input = converted(input, out.dtype)
    if input.size == 0:
        out[...] = xp.log(sum_over(xp, input, axis, keepdim))
        return
    largest = xp.amax(input.real, axis=axis, keepdims=True)
    largest = xp.where(xp.isfinite(largest), largest, 0)
    summed = xp.log(sum_over(xp, xp.exp(input - largest), axis, True)) + largest
    out[...] = summed.reshape(out.shape)


@implements(ops.hash_tensor)
def hash_tensor(xp, input, dim, *, keepdim, mode, out):
    wide = np.float64 if input.dtype.kind == "f" else np.uint64 if input.dtype.kind == "u" else np.int64
    bits = input.astype(wide).view(np.uint64)
    listed = (dim,) if isinstance(dim, int) else dim
    dims = sorted({d % (input.ndim or 1) for d in listed} if listed else range(input.ndim))
    rows = xp.moveaxis(bits, dims, range(len(dims))) if input.ndim else bits
    rows = rows.reshape(math.prod(rows.shape[: len(dims)]), -1)
    while len(rows) > 1:  # CuPy reduces by few functions, and not by this one
        half = len(rows) // 2
        rest = rows[2 * half :]
        rows = xp.concatenate([rows[:half] ^ rows[half : 2 * half], rest])
    out[...] = rows.reshape(out.shape)
