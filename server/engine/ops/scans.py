"""Scans along a dimension (cumulative sums, products, extrema, log-sum-exp), and differences of neighbours."""

from __future__ import annotations

import math

import numpy as np

from server.engine import functional as F
from server.engine import keys
from server.engine.array_library.indexing import sums_in
from server.engine.registry import composite, implements, kernel
from telegrad_protocol import dtypes
from telegrad_protocol.ops import scans as ops

from .complex import conj
from .reduce import converted, exclusive_cumprod


def _reverse_scan(function, grad, dim):
    """A scan from the end of ``dim``, which is the adjoint of the scan from its beginning."""
    return F.flip(function(F.flip(grad, (dim,))), (dim,))


@implements(ops.cumsum, input=lambda grad, dim: _reverse_scan(lambda g: F.cumsum(g, dim), grad, dim))
def cumsum(xp, input, dim, *, dtype, out):
    if input.ndim == 0:
        out[...] = converted(input, out.dtype)
        return
    input = converted(input, out.dtype)
    xp.cumsum(input, axis=dim, dtype=sums_in(xp, out.dtype), out=out)


def _cumprod_backward(grad, input, dim):
    """For element k the sum over i >= k of grad[i] * (product before k) * (product from k+1 to i), without division."""
    if input.ndim == 0:
        return grad
    if input.dtype.is_complex:
        input = F.conj(input)
    return F.mul(exclusive_cumprod(input, dim), _reverse_recurrence(input, grad, dim))


def _reverse_recurrence(decay, grad, dim):
    """y[k] = grad[k] + decay[k+1] * y[k+1]"""
    backwards = F.flip(decay, (dim,))
    return F.flip(F._linear_recurrence(_shifted(backwards, dim), F.flip(grad, (dim,)), dim), (dim,))


def _shifted(input, dim):
    """The input shifted by one along ``dim``, with a zero in front."""
    length = input.shape[dim]
    if length == 0:
        return input
    first = F.zeros_like(F.narrow(input, dim, 0, 1))
    return F.cat((first, F.narrow(input, dim, 0, length - 1)), dim)


@implements(ops.cumprod, input=_cumprod_backward)
def cumprod(xp, input, dim, *, dtype, out):
    if input.ndim == 0:
        out[...] = converted(input, out.dtype)
        return
    input = converted(input, out.dtype)
    xp.cumprod(input, axis=dim, dtype=sums_in(xp, out.dtype), out=out)


def _logcumsumexp_backward(grad, input, dim):
    """A reverse recurrence: result i depends on element i with weight ``own``, on result i - 1 with weight ``before``.

    The weights are exponentials of differences of close numbers, so they are recomputed in double precision.
    """
    if input.ndim == 0:
        return grad
    wide = F._to_copy(input, dtype=dtypes.complex128 if input.dtype.is_complex else dtypes.float64)
    out = F.logcumsumexp(wide, dim)
    before, own = F.exp(F.sub(_shifted(out, dim), out)), F.exp(F.sub(wide, out))
    result = F.mul(conj(own), _reverse_recurrence(conj(before), F._to_copy(grad, dtype=wide.dtype), dim))
    return F._to_copy(result, dtype=grad.dtype)


@implements(ops.logcumsumexp, input=_logcumsumexp_backward)
def logcumsumexp(xp, input, dim, *, out):
    if input.ndim == 0 or not input.size:
        out[...] = input
        return
    if xp is np and not np.iscomplexobj(input):
        np.logaddexp.accumulate(input, axis=dim, dtype=sums_in(xp, out.dtype), out=out)
        return
    source, target = (xp.moveaxis(a, dim, 0) for a in (input, out))
    target[0] = source[0]
    for i in range(1, len(source)):  # PyTorch's order decides the imaginary parts' multiples of 2 pi
        target[i] = _logaddexp(xp, target[i - 1], source[i])


def _logaddexp(xp, one, other):
    """log(exp(one) + exp(other)) of complex numbers, computed relative to the one with the larger real part."""
    is_larger = one.real > other.real
    larger, smaller = xp.where(is_larger, one, other), xp.where(is_larger, other, one)
    difference = xp.where(xp.isinf(larger.real) & (smaller.real == larger.real), -math.inf, smaller - larger)
    return larger + xp.log(1 + xp.exp(difference))


def _cumulative_extremum_backward(grad_values, input_meta, dim, indices):
    if input_meta.ndim == 0:
        return grad_values
    zeros = F.zeros(input_meta.shape, dtype=grad_values.dtype, device=grad_values.device)
    return F.scatter_add(zeros, dim, indices, grad_values)


@implements(ops.cummax, input=_cumulative_extremum_backward)
def cummax(xp, input, dim, *, out):
    _scan_extremum(xp, xp.greater_equal, input, dim, out)


@implements(ops.cummin, input=_cumulative_extremum_backward)
def cummin(xp, input, dim, *, out):
    _scan_extremum(xp, xp.less_equal, input, dim, out)


def _scan_extremum(xp, reaches, input, dim, out):
    """The extremum so far along ``dim`` and its index, by a Hillis-Steele scan; NaN wins over any number."""
    values, indices = out
    if input.ndim == 0 or not input.size:
        values[...], indices[...] = input, 0
        return
    source, best, where = (xp.moveaxis(a, dim, 0) for a in (input, values, indices))
    best[...] = source
    where[...] = xp.arange(len(source)).reshape(-1, *(1,) * (source.ndim - 1))
    step = 1
    while step < len(source):
        earlier, later = best[:-step].copy(), best[step:]
        is_nan = later != later
        wins = (reaches(later, earlier) | is_nan) & ((earlier == earlier) | is_nan)
        best[step:] = xp.where(wins, later, earlier)
        where[step:] = xp.where(wins, where[step:], where[:-step])
        step *= 2


@kernel(ops.cummax, keys.CPU)
def _cummax_cpu(xp, input, dim, *, out):
    _accumulate_extremum(np.maximum, input, dim, out)


@kernel(ops.cummin, keys.CPU)
def _cummin_cpu(xp, input, dim, *, out):
    _accumulate_extremum(np.minimum, input, dim, out)


def _accumulate_extremum(extreme, input, dim, out):
    """The extremum so far along ``dim``, and the last index that reached it."""
    values, indices = out
    if input.ndim == 0 or not input.size:
        values[...], indices[...] = input, 0
        return
    extreme.accumulate(input, axis=dim, out=values)
    indices_along_dim = np.arange(input.shape[dim]).reshape(-1, *(1,) * (input.ndim - 1 - dim % input.ndim))
    reached = np.where((input == values) | (input != input), indices_along_dim, 0)
    np.maximum.accumulate(reached, axis=dim, out=indices)


@composite(ops.diff)
def diff(input, n, dim, prepend, append):
    if n == 0:
        return F.clone(input)
    parts = [part for part in (prepend, input, append) if part is not None]
    if len(parts) > 1:
        input = F.cat(parts, dim)
    if n >= input.shape[dim]:
        return F.clone(F.narrow(input, dim, 0, 0))
    for _ in range(n):
        input = _difference(input, dim)
    return input


def _difference(input, dim):
    length = input.shape[dim]
    left = length - 1 if length else 0
    later, earlier = F.narrow(input, dim, length - left, left), F.narrow(input, dim, 0, left)
    return F.logical_xor(later, earlier) if input.dtype is dtypes.bool_ else F.sub(later, earlier)


def _recurrence_decay(grad, decay, out, dim):
    """The gradient of decay: dy[i] / ddecay[i] = y[i-1]"""
    return F.mul(_reverse_recurrence(conj(decay), grad, dim), conj(_shifted(out, dim)))


@implements(
    ops._linear_recurrence,
    decay=_recurrence_decay,
    input=lambda grad, decay, dim: _reverse_recurrence(conj(decay), grad, dim),
)
def _linear_recurrence(xp, decay, input, dim, *, out):
    if input.ndim == 0 or not input.size:
        out[...] = input
        return
    factors, source, target = (xp.moveaxis(a, dim, 0) for a in (decay, input, out))
    target[0] = running = source[0].astype(sums_in(xp, out.dtype))
    for i in range(1, len(source)):
        target[i] = running = factors[i] * running + source[i]
