"""Creation of tensors, filling, and copies."""

from __future__ import annotations

import functools

import numpy as np

from server.engine import context
from server.engine import functional as F
from server.engine.array_library.cache_blocks import number, unwritten
from server.engine.registry import implements
from telegrad_protocol.ops import creation as ops

from .derivatives import zero_gradient
from .pointwise import cast_into


@implements(ops.zeros, movement=True)
def zeros(xp, size, *, dtype, device, out):
    out[...] = 0


@implements(ops.empty, movement=True)
@implements(ops.empty_like, movement=True)
@implements(ops.empty_strided, movement=True)
@implements(ops.new_empty, movement=True)
@implements(ops.new_empty_strided, movement=True)
def leave(xp, *described, dtype, device, out):
    """The memory of the result is already allocated, and its contents are undefined, but in deterministic mode."""
    if context.current.switches.fills_memory:
        out[...] = unwritten(out.dtype)


@implements(ops.ones, movement=True)
def ones(xp, size, *, dtype, device, out):
    out[...] = 1


@implements(ops.full, movement=True)
def full(xp, size, fill_value, *, dtype, device, out):
    out[...] = number(fill_value, out.dtype)


@implements(ops.scalar_tensor, movement=True)
def scalar_tensor(xp, s, *, dtype, device, out):
    out[...] = number(s, out.dtype)


@implements(ops.zeros_like, movement=True)
def zeros_like(xp, input, *, dtype, device, out):
    out[...] = 0


@implements(ops.ones_like, movement=True)
def ones_like(xp, input, *, dtype, device, out):
    out[...] = 1


@implements(ops.full_like, movement=True)
def full_like(xp, input, fill_value, *, dtype, device, out):
    out[...] = number(fill_value, out.dtype)


@implements(ops.new_zeros, movement=True)
def new_zeros(xp, input, size, *, dtype, device, out):
    out[...] = 0


@implements(ops.new_ones, movement=True)
def new_ones(xp, input, size, *, dtype, device, out):
    out[...] = 1


@implements(ops.new_full, movement=True)
def new_full(xp, input, size, fill_value, *, dtype, device, out):
    out[...] = number(fill_value, out.dtype)


@implements(ops.arange, movement=True)
def arange(xp, end, *, dtype, device, out):
    _write_range(xp, 0, 1, out)


@implements(ops.arange_start, movement=True)
def arange_start(xp, start, end, step, *, dtype, device, out):
    _write_range(xp, start, step, out)


def _write_range(xp, start, step, out):
    """Write start + i * step: in int64 for an integer result, else in float64, so that it is rounded once."""
    is_integer = out.dtype.kind in "iu"
    steps = xp.arange(out.size, dtype=np.int64 if is_integer else np.float64)
    if step != 1:
        steps *= int(step) if is_integer else step
    if start != 0:
        steps += int(start) if is_integer else start
    xp.copyto(out, steps, casting="unsafe")


def _in_double(xp, bound, out):
    """A bound as float64 or complex128; it is truncated first if the result has an integer dtype."""
    dtype = np.complex128 if out.dtype.kind == "c" else np.float64
    if out.dtype.kind in "iu":
        bound = bound.astype(np.int64) if hasattr(bound, "dtype") else int(bound)
    return bound.astype(dtype) if hasattr(bound, "dtype") else dtype(bound)


def _evenly_spaced(xp, start, end, steps, out):
    """Evenly spaced numbers, computed from both ends towards the middle, so that both ends are exact."""
    first, last = _in_double(xp, start, out), _in_double(xp, end, out)
    position = xp.arange(steps, dtype=np.float64)
    step = (last - first) / max(steps - 1, 1)
    if out.dtype.kind not in "iu":
        step = step.astype(out.dtype).astype(first.dtype)  # PyTorch rounds the step to the result's dtype
    return xp.where(position < max(steps // 2, 1), first + step * position, last - step * (steps - 1 - position))


@implements(ops.linspace, movement=True)
def linspace(xp, start, end, steps, *, dtype, device, out):
    xp.copyto(out, _evenly_spaced(xp, start, end, steps, out), casting="unsafe")


@implements(ops.logspace, movement=True)
def logspace(xp, start, end, steps, base, *, dtype, device, out):
    xp.copyto(out, xp.power(base, _evenly_spaced(xp, start, end, steps, out)), casting="unsafe")


@implements(ops.eye, movement=True)
def eye(xp, n, m, *, dtype, device, out):
    out[...] = 0
    diagonal = xp.arange(min(out.shape))
    out[diagonal, diagonal] = 1


def _clamped_diagonal(diagonal, matrix):
    """The diagonal's number, limited to the nearest diagonals that lie outside of the matrix."""
    return max(-matrix.shape[-2] - 1, min(diagonal, matrix.shape[-1] + 1))


_MOST_KEPT = 1 << 12
"""Elements of a matrix up to which it is kept on the host where a triangle is, a byte for each."""


@functools.lru_cache(maxsize=256)
def _outside(rows, columns, diagonal, upper):
    """Where elements are outside of a triangle: below a diagonal of a matrix, or above it."""
    return np.tri(rows, columns, diagonal - 1, dtype=bool) if upper else ~np.tri(rows, columns, diagonal, dtype=bool)


def _write_triangle(xp, input, out, diagonal, upper):
    """Copy a triangle of matrices, and write zeros elsewhere."""
    number, (rows, columns) = _clamped_diagonal(diagonal, input), input.shape[-2:]
    if xp is not np or rows * columns > _MOST_KEPT:
        xp.copyto(out, (xp.triu if upper else xp.tril)(input, number))
        return
    xp.copyto(out, input)
    xp.copyto(out, xp.zeros((), out.dtype), where=_outside(rows, columns, number, upper))


@implements(ops.tril, movement=True, input=lambda grad, diagonal: F.tril(grad, diagonal))
def tril(xp, input, diagonal, *, out):
    _write_triangle(xp, input, out, diagonal, upper=False)


@implements(ops.triu, movement=True, input=lambda grad, diagonal: F.triu(grad, diagonal))
def triu(xp, input, diagonal, *, out):
    _write_triangle(xp, input, out, diagonal, upper=True)


@implements(ops.clone, movement=True, input=lambda grad: grad)
def clone(xp, input, *, out):
    xp.copyto(out, input)


@implements(ops.copy_, movement=True, input=zero_gradient, src=lambda grad: grad)
def copy_(xp, input, src, non_blocking):
    cast_into(xp, input, src)


@implements(ops.copy_number_, movement=True, input=zero_gradient)
def copy_number_(xp, input, src, non_blocking):
    cast_into(xp, input, xp.asarray(src))


@implements(ops.fill_, movement=True, input=zero_gradient)
def fill_(xp, input, value):
    input[...] = number(value, input.dtype)


@implements(ops.fill_tensor_, movement=True, input=zero_gradient, value=lambda grad: grad)
def fill_tensor_(xp, input, value):
    cast_into(xp, input, value)


@implements(ops.zero_, movement=True, input=zero_gradient)
def zero_(xp, input):
    input[...] = 0
