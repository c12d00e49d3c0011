"""Contracts of comparisons, tests for special values, logic, bits, and selection by a mask."""

from __future__ import annotations

from telegrad_protocol.dtypes import BOOL, result_type
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import broadcast_shapes
from telegrad_protocol.meta import Meta

from .contract import Scalar, alias, op, pointwise
from .creation import check_fits
from .pointwise import same_dtype


@pointwise(promotion="bool", differentiable=False)
def eq(input: Meta, other: Meta | Scalar) -> Meta:
    """input == other"""


@pointwise(promotion="bool", differentiable=False)
def ne(input: Meta, other: Meta | Scalar) -> Meta:
    """input != other"""


@pointwise(promotion="bool", takes="bif", differentiable=False)
def lt(input: Meta, other: Meta | Scalar) -> Meta:
    """input < other"""


@pointwise(promotion="bool", takes="bif", differentiable=False)
def le(input: Meta, other: Meta | Scalar) -> Meta:
    """input <= other"""


@pointwise(promotion="bool", takes="bif", differentiable=False)
def gt(input: Meta, other: Meta | Scalar) -> Meta:
    """input > other"""


@pointwise(promotion="bool", takes="bif", differentiable=False)
def ge(input: Meta, other: Meta | Scalar) -> Meta:
    """input >= other"""


@pointwise(promotion="bool", inplace=False, out=False, differentiable=False)
def isclose(input: Meta, other: Meta, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Meta:
    """abs(input - other) <= atol + rtol * abs(other), infinities only if equal"""
    same_dtype("isclose", input, other)
    if rtol < 0 or atol < 0:
        raise ArgumentError(f"isclose: tolerances must not be negative, got rtol={rtol}, atol={atol}")


@pointwise(promotion="bool", inplace=False, out=False, differentiable=False)
def isnan(input: Meta) -> Meta:
    """Whether elements are NaN."""


@pointwise(promotion="bool", inplace=False, out=False, differentiable=False)
def isinf(input: Meta) -> Meta:
    """Whether elements are infinite."""


@pointwise(promotion="bool", inplace=False, out=False, differentiable=False)
def isfinite(input: Meta) -> Meta:
    """Whether elements are neither infinite nor NaN."""


@pointwise(promotion="bool", takes="bif", inplace=False, differentiable=False)
def isposinf(input: Meta) -> Meta:
    """Whether elements are positive infinity."""


@pointwise(promotion="bool", takes="bif", inplace=False, differentiable=False)
def isneginf(input: Meta) -> Meta:
    """Whether elements are negative infinity."""


@pointwise(promotion="bool", takes="bif", inplace=False, differentiable=False)
def signbit(input: Meta) -> Meta:
    """Whether the sign is minus, also of -0.0"""


@pointwise(promotion="bool", differentiable=False)
def logical_and(input: Meta, other: Meta) -> Meta:
    """Whether both are not zero."""


@pointwise(promotion="bool", differentiable=False)
def logical_or(input: Meta, other: Meta) -> Meta:
    """Whether one is not zero, or both."""


@pointwise(promotion="bool", differentiable=False)
def logical_xor(input: Meta, other: Meta) -> Meta:
    """Whether exactly one is not zero."""


@pointwise(promotion="bool", differentiable=False)
def logical_not(input: Meta) -> Meta:
    """Whether elements are zero."""


@pointwise(takes="bi", differentiable=False)
def bitwise_and(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Bits that are set in both."""


@pointwise(takes="bi", differentiable=False)
def bitwise_or(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Bits that are set in one or both."""


@pointwise(takes="bi", differentiable=False)
def bitwise_xor(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Bits that are set in exactly one."""


@pointwise(takes="bi", differentiable=False)
def bitwise_not(input: Meta) -> Meta:
    """Every bit inverted."""


@pointwise(takes="i", differentiable=False)
def bitwise_left_shift(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """input * 2 ** other, 0 where all bits are shifted out"""


@pointwise(takes="i", differentiable=False)
def bitwise_right_shift(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """input / 2 ** other, rounded down"""


@pointwise(promotes=("input", "other"), inplace=False, method=False)
def where(condition: Meta, input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """input where the condition holds, other elsewhere"""
    if condition.dtype.category != BOOL and condition.dtype.name != "uint8":
        raise DTypeError(f"where: the condition must be a bool tensor, not {condition}")


def _filled(input: Meta, mask: Meta) -> Meta:
    if mask.dtype.category != BOOL:
        raise DTypeError(f"masked_fill: the mask must be a bool tensor, not {mask}")
    return input.like(broadcast_shapes("masked_fill", input.shape, mask.shape))


@op(inplace=True, out=False)
def masked_fill(input: Meta, mask: Meta, value: Scalar) -> Meta:
    """input with ``value`` where the mask holds"""
    check_fits("masked_fill", value, input.dtype)
    return _filled(input, mask)


@op(name="masked_fill.Tensor", inplace=True, out=False)
def masked_fill_tensor(input: Meta, mask: Meta, value: Meta) -> Meta:
    """input with the one element of ``value`` where the mask holds"""
    if value.ndim:
        raise ShapeError(f"masked_fill: the value must be a number or a 0-d tensor, not {value}")
    if result_type((input, value)).category > input.dtype.category:
        raise DTypeError(f"masked_fill: {value} does not go into {input}")
    return _filled(input, mask)


alias("not_equal", ne)
alias("less", lt)
alias("less_equal", le)
alias("greater", gt)
alias("greater_equal", ge)
alias("__lshift__", bitwise_left_shift)
alias("__rshift__", bitwise_right_shift)
