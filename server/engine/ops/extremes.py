"""``maximum``, ``minimum`` and ``clamp``, element by element. Operands arrive in the dtype of the result."""

from __future__ import annotations

from server.engine import functional as F
from server.engine.registry import implements
from telegrad_protocol.ops import extremes as ops

from .pointwise import is_number


def _extreme_gradient(grad, operand, other, is_other):
    """The gradient of one operand of an extreme: all of it, half where both are equal, 0 where ``is_other``."""
    return F.where(operand == other, grad / 2, F.where(is_other, 0.0, grad))


@implements(
    ops.maximum,
    input=lambda grad, input, other: _extreme_gradient(grad, input, other, input < other),
    other=lambda grad, input, other: _extreme_gradient(grad, other, input, other < input),
)
def maximum(xp, input, other, *, out):
    xp.maximum(input, other, out=out)


@implements(
    ops.minimum,
    input=lambda grad, input, other: _extreme_gradient(grad, input, other, input > other),
    other=lambda grad, input, other: _extreme_gradient(grad, other, input, other > input),
)
def minimum(xp, input, other, *, out):
    xp.minimum(input, other, out=out)


def _selects_input(first_is_better, other):
    """Whether ``fmax`` or ``fmin`` takes the first operand: it is better, or the other is NaN."""
    return F.logical_or(first_is_better, F.isnan(other))


@implements(
    ops.fmax,
    input=lambda grad, input, other: F.where(_selects_input(input >= other, other), grad, 0.0),
    other=lambda grad, input, other: F.where(_selects_input(input >= other, other), 0.0, grad),
)
def fmax(xp, input, other, *, out):
    xp.fmax(input, other, out=out)


@implements(
    ops.fmin,
    input=lambda grad, input, other: F.where(_selects_input(input <= other, other), grad, 0.0),
    other=lambda grad, input, other: F.where(_selects_input(input <= other, other), 0.0, grad),
)
def fmin(xp, input, other, *, out):
    xp.fmin(input, other, out=out)


def _is_within(input, min, max):
    if min is None:
        return input <= max
    return input >= min if max is None else F.logical_and(input >= min, input <= max)


def _clamp_min_backward(grad, input, min, max):
    is_below = input < min
    return F.where(is_below if max is None else F.logical_and(is_below, _below(min, max)), grad, 0.0)


def _clamp_max_backward(grad, input, min, max):
    is_above = input > max
    return F.where(is_above if min is None else F.logical_or(is_above, _below(max, min)), grad, 0.0)


def _below(a, b):
    return a < b


@implements(
    ops.clamp,
    input=lambda grad, input, min, max: F.where(_is_within(input, min, max), grad, 0.0),
    min=_clamp_min_backward,
    max=_clamp_max_backward,
)
def clamp(xp, input, min, max, *, out):
    if max is None:
        xp.maximum(input, min, out=out)
    elif min is None:
        xp.minimum(input, max, out=out)
    elif is_number(max):
        xp.maximum(input, min, out=out)
        xp.minimum(out, max, out=out)
    else:
        xp.minimum(xp.maximum(input, min), max, out=out)


@implements(
    ops.clamp_min,
    input=lambda grad, input, min: F.where(input >= min, grad, 0.0),
    min=lambda grad, input, min: F.where(input < min, grad, 0.0),
)
def clamp_min(xp, input, min, *, out):
    xp.maximum(input, min, out=out)


@implements(
    ops.clamp_max,
    input=lambda grad, input, max: F.where(input <= max, grad, 0.0),
    max=lambda grad, input, max: F.where(input > max, grad, 0.0),
)
def clamp_max(xp, input, max, *, out):
    xp.minimum(input, max, out=out)
