"""Cumulative sums, products and extrema along a dimension; differences of neighbours."""

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


def _flipped(function, grad, dim):
    """A scan from the end: the transpose of a scan from the beginning."""
    return F.flip(function(F.flip(grad, (dim,))), (dim,))


@implements(ops.cumsum, input=lambda grad, dim: _flipped(lambda g: F.cumsum(g, dim), grad, dim))
def cumsum(xp, input, dim, *, dtype, out):
    if input.ndim == 0:
        out[...] = converted(input, out.dtype)
        return
    input = converted(input, out.dtype)
    xp.cumsum(input, axis=dim, dtype=sums_in(xp, out.dtype), out=out)


def _cumprod_backward(grad, input, dim):
    """sum over i >= k of grad[i] * (product of all before k) * (product from k+1 to i), without a division."""
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
    """Each element one place later; zero at the first."""
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


def _log_sum_backward(grad, input, dim):
    """Each result passes on the shares that its element and the result before it have in its sum.

    They are differences of large numbers as a rule, so both are computed anew in double precision.
    """
    if input.ndim == 0:
        return grad
    wide = F._to_copy(input, dtype=dtypes.complex128 if input.dtype.is_complex else dtypes.float64)
    out = F.logcumsumexp(wide, dim)
    before, own = F.exp(F.sub(_shifted(out, dim), out)), F.exp(F.sub(wide, out))
    found = F.mul(conj(own), _reverse_recurrence(conj(before), F._to_copy(grad, dtype=wide.dtype), dim))
    return F._to_copy(found, dtype=grad.dtype)


@implements(ops.logcumsumexp, input=_log_sum_backward)
def logcumsumexp(xp, input, dim, *, out):
    if input.ndim == 0 or not input.size:
        out[...] = input
        return
    if xp is np and not np.iscomplexobj(input):
        np.logaddexp.accumulate(input, axis=dim, dtype=sums_in(xp, out.dtype), out=out)
        return
    source, target = (xp.moveaxis(a, dim, 0) for a in (input, out))
    target[0] = source[0]
    for i in range(1, len(source)):  # in PyTorch's order: it says by how many turns imaginary parts go round
        target[i] = _log_of_both(xp, target[i - 1], source[i])


def _log_of_both(xp, one, other):
    """log(exp(one) + exp(other)), relative to the one whose real part is larger."""
    is_top = one.real > other.real
    top, low = xp.where(is_top, one, other), xp.where(is_top, other, one)
    apart = xp.where(xp.isinf(top.real) & (low.real == top.real), -math.inf, low - top)
    return top + xp.log(1 + xp.exp(apart))


def _running_backward(grad_values, input_meta, dim, indices):
    if input_meta.ndim == 0:
        return grad_values
    nothing = F.zeros(input_meta.shape, dtype=grad_values.dtype, device=grad_values.device)
    return F.scatter_add(nothing, dim, indices, grad_values)


@implements(ops.cummax, input=_running_backward)
def cummax(xp, input, dim, *, out):
    _run(xp, xp.greater_equal, input, dim, out)


@implements(ops.cummin, input=_running_backward)
def cummin(xp, input, dim, *, out):
    _run(xp, xp.less_equal, input, dim, out)


def _run(xp, reaches, input, dim, out):
    """The best so far along ``dim``, over distances that double; a NaN is better than any number."""
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
    _accumulate(np.maximum, input, dim, out)


@kernel(ops.cummin, keys.CPU)
def _cummin_cpu(xp, input, dim, *, out):
    _accumulate(np.minimum, input, dim, out)


def _accumulate(extreme, input, dim, out):
    """The best so far, and the last place that reached it."""
    values, indices = out
    if input.ndim == 0 or not input.size:
        values[...], indices[...] = input, 0
        return
    extreme.accumulate(input, axis=dim, out=values)
    places = np.arange(input.shape[dim]).reshape(-1, *(1,) * (input.ndim - 1 - dim % input.ndim))
    reached = np.where((input == values) | (input != input), places, 0)
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
    """y[i] depends on decay[i] through y[i-1]."""
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
