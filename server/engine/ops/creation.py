"""Tensors out of nothing, filled, or copied."""

from __future__ import annotations

import numpy as np

from server.engine import functional as F
from server.engine.array_library.cache_blocks import number
from server.engine.registry import implements
from telegrad_protocol.ops import creation as ops

from .pointwise import cast_into


def _zeros(grad):
    return F.zeros_like(grad)


@implements(ops.zeros, movement=True)
def zeros(xp, size, *, dtype, device, out):
    out[...] = 0


@implements(ops.ones, movement=True)
def ones(xp, size, *, dtype, device, out):
    out[...] = 1


@implements(ops.empty, movement=True)
def empty(xp, size, *, dtype, device, out):
    """Nothing to do: the memory is there."""


@implements(ops.full, movement=True)
def full(xp, size, fill_value, *, dtype, device, out):
    out[...] = number(fill_value, out.dtype)


@implements(ops.scalar_tensor, movement=True)
def scalar_tensor(xp, s, *, dtype, device, out):
    out[...] = number(s, out.dtype)


@implements(ops.empty_strided, movement=True)
def empty_strided(xp, size, stride, *, dtype, device, out):
    """Nothing to do: the memory is there."""


@implements(ops.zeros_like, movement=True)
def zeros_like(xp, input, *, dtype, device, out):
    out[...] = 0


@implements(ops.ones_like, movement=True)
def ones_like(xp, input, *, dtype, device, out):
    out[...] = 1


@implements(ops.empty_like, movement=True)
def empty_like(xp, input, *, dtype, device, out):
    """Nothing to do: the memory is there."""


@implements(ops.full_like, movement=True)
def full_like(xp, input, fill_value, *, dtype, device, out):
    out[...] = number(fill_value, out.dtype)


@implements(ops.new_zeros, movement=True)
def new_zeros(xp, input, size, *, dtype, device, out):
    out[...] = 0


@implements(ops.new_ones, movement=True)
def new_ones(xp, input, size, *, dtype, device, out):
    out[...] = 1


@implements(ops.new_empty, movement=True)
def new_empty(xp, input, size, *, dtype, device, out):
    """Nothing to do: the memory is there."""


@implements(ops.new_full, movement=True)
def new_full(xp, input, size, fill_value, *, dtype, device, out):
    out[...] = number(fill_value, out.dtype)


@implements(ops.new_empty_strided, movement=True)
def new_empty_strided(xp, input, size, stride, *, dtype, device, out):
    """Nothing to do: the memory is there."""


@implements(ops.arange, movement=True)
def arange(xp, end, *, dtype, device, out):
    _count_up(xp, 0, 1, out)


@implements(ops.arange_start, movement=True)
def arange_start(xp, start, end, step, *, dtype, device, out):
    _count_up(xp, start, step, out)


def _count_up(xp, start, step, out):
    """Counted in integers where they are wanted, else in double precision, rounded once."""
    is_integer = out.dtype.kind in "iu"
    steps = xp.arange(out.size, dtype=np.int64 if is_integer else np.float64)
    if step != 1:
        steps *= int(step) if is_integer else step
    if start != 0:
        steps += int(start) if is_integer else start
    xp.copyto(out, steps, casting="unsafe")


def _wide(xp, bound, out):
    """A bound in the type that spacing is computed in, cut to an integer first where integers are wanted."""
    wide = np.complex128 if out.dtype.kind == "c" else np.float64
    if out.dtype.kind in "iu":
        bound = bound.astype(np.int64) if hasattr(bound, "dtype") else int(bound)
    return bound.astype(wide) if hasattr(bound, "dtype") else wide(bound)


def _spaced(xp, start, end, steps, out):
    """Counted from both ends towards the middle, so that both are met exactly."""
    first, last = _wide(xp, start, out), _wide(xp, end, out)
    position = xp.arange(steps, dtype=np.float64)
    step = (last - first) / max(steps - 1, 1)
    if out.dtype.kind not in "iu":
        step = step.astype(out.dtype).astype(first.dtype)  # as PyTorch does; it shows in half precision
    return xp.where(position < max(steps // 2, 1), first + step * position, last - step * (steps - 1 - position))


@implements(ops.linspace, movement=True)
def linspace(xp, start, end, steps, *, dtype, device, out):
    xp.copyto(out, _spaced(xp, start, end, steps, out), casting="unsafe")


@implements(ops.logspace, movement=True)
def logspace(xp, start, end, steps, base, *, dtype, device, out):
    xp.copyto(out, xp.power(base, _spaced(xp, start, end, steps, out)), casting="unsafe")


@implements(ops.eye, movement=True)
def eye(xp, n, m, *, dtype, device, out):
    out[...] = 0
    diagonal = xp.arange(min(out.shape))
    out[diagonal, diagonal] = 1


def _within(diagonal, matrix):
    """The nearest diagonal that is just outside of the matrix, for those beyond it."""
    return max(-matrix.shape[-2] - 1, min(diagonal, matrix.shape[-1] + 1))


@implements(ops.tril, movement=True, input=lambda grad, diagonal: F.tril(grad, diagonal))
def tril(xp, input, diagonal, *, out):
    xp.copyto(out, xp.tril(input, _within(diagonal, input)))


@implements(ops.triu, movement=True, input=lambda grad, diagonal: F.triu(grad, diagonal))
def triu(xp, input, diagonal, *, out):
    xp.copyto(out, xp.triu(input, _within(diagonal, input)))


@implements(ops.clone, movement=True, input=lambda grad: grad)
def clone(xp, input, *, out):
    xp.copyto(out, input)


@implements(ops.copy_, movement=True, input=_zeros, src=lambda grad: grad)
def copy_(xp, input, src, non_blocking):
    cast_into(xp, input, src)


@implements(ops.fill_, movement=True, input=_zeros)
def fill_(xp, input, value):
    input[...] = number(value, input.dtype)


@implements(ops.fill_tensor_, movement=True, input=_zeros, value=lambda grad: grad)
def fill_tensor_(xp, input, value):
    cast_into(xp, input, value)


@implements(ops.zero_, movement=True, input=_zeros)
def zero_(xp, input):
    input[...] = 0
