"""Contracts of further element-wise functions of two numbers, and of the parts of floating-point numbers."""

from __future__ import annotations

from telegrad_protocol.dtypes import int32
from telegrad_protocol.errors import DTypeError
from telegrad_protocol.layout import result_strides
from telegrad_protocol.meta import Meta

from .contract import op, pointwise


@pointwise(takes="i", differentiable=False)
def gcd(input: Meta, other: Meta) -> Meta:
    """Compute the greatest common divisor, which is not negative."""


@pointwise(takes="i", differentiable=False)
def lcm(input: Meta, other: Meta) -> Meta:
    """Compute the least common multiple, which is not negative."""


@pointwise(takes="f")
def nextafter(input: Meta, other: Meta) -> Meta:
    """Return the number next to ``input`` in the direction of ``other``."""


@pointwise(takes="bif")
def heaviside(input: Meta, values: Meta) -> Meta:
    """Return 0 where ``input`` is negative, 1 where it is positive, and ``values`` where it is 0."""
    if input.dtype is not values.dtype:
        raise DTypeError(f"heaviside: {input} and {values} must have the same type")


@pointwise(takes="f")
def logaddexp2(input: Meta, other: Meta) -> Meta:
    """Compute log2(2 ** input + 2 ** other) without overflow."""


@op(returns=("mantissa", "exponent"))
def frexp(input: Meta) -> tuple[Meta, Meta]:
    """Take numbers apart: input = mantissa * 2 ** exponent, with a mantissa in [0.5, 1) or 0."""
    if not input.dtype.is_floating_point:
        raise DTypeError(f"frexp: expected floating-point elements, not {input}")
    strides = result_strides(input.shape, [(input.shape, input.strides)])
    return input.like(strides=strides), input.like(dtype=int32, strides=strides)
