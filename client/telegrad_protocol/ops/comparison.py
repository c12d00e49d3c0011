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
    """Compare element by element: input == other."""


@pointwise(promotion="bool", differentiable=False)
def ne(input: Meta, other: Meta | Scalar) -> Meta:
    """Compare element by element: input != other."""


@pointwise(promotion="bool", takes="bif", differentiable=False)
def lt(input: Meta, other: Meta | Scalar) -> Meta:
    """Compare element by element: input < other."""


@pointwise(promotion="bool", takes="bif", differentiable=False)
def le(input: Meta, other: Meta | Scalar) -> Meta:
    """Compare element by element: input <= other."""


@pointwise(promotion="bool", takes="bif", differentiable=False)
def gt(input: Meta, other: Meta | Scalar) -> Meta:
    """Compare element by element: input > other."""


@pointwise(promotion="bool", takes="bif", differentiable=False)
def ge(input: Meta, other: Meta | Scalar) -> Meta:
    """Compare element by element: input >= other."""


@pointwise(promotion="bool", inplace=False, out=False, differentiable=False)
def isclose(input: Meta, other: Meta, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Meta:
    """Test |input - other| <= atol + rtol * |other|; infinities are close only to themselves."""
    same_dtype("isclose", input, other)
    if rtol < 0 or atol < 0:
        name, tolerance = ("rtol", rtol) if rtol < 0 else ("atol", atol)
        raise ArgumentError(f"isclose: {name} must be greater than or equal to zero, but got {tolerance}")


@pointwise(promotion="bool", inplace=False, out=False, differentiable=False)
def isnan(input: Meta) -> Meta:
    """Test which elements are NaN."""


@pointwise(promotion="bool", inplace=False, out=False, differentiable=False)
def isinf(input: Meta) -> Meta:
    """Test which elements are infinite."""


@pointwise(promotion="bool", inplace=False, out=False, differentiable=False)
def isfinite(input: Meta) -> Meta:
    """Test which elements are neither infinite nor NaN."""


@pointwise(promotion="bool", takes="bif", inplace=False, differentiable=False)
def isposinf(input: Meta) -> Meta:
    """Test which elements are positive infinity."""


@pointwise(promotion="bool", takes="bif", inplace=False, differentiable=False)
def isneginf(input: Meta) -> Meta:
    """Test which elements are negative infinity."""


@pointwise(promotion="bool", takes="bif", inplace=False, differentiable=False)
def signbit(input: Meta) -> Meta:
    """Test which elements have a minus sign, -0.0 included."""


@pointwise(promotion="bool", differentiable=False)
def logical_and(input: Meta, other: Meta) -> Meta:
    """Test where both elements are not zero."""


@pointwise(promotion="bool", differentiable=False)
def logical_or(input: Meta, other: Meta) -> Meta:
    """Test where at least one of both elements is not zero."""


@pointwise(promotion="bool", differentiable=False)
def logical_xor(input: Meta, other: Meta) -> Meta:
    """Test where exactly one of both elements is not zero."""


@pointwise(promotion="bool", differentiable=False)
def logical_not(input: Meta) -> Meta:
    """Test which elements are zero."""


@pointwise(takes="bi", differentiable=False)
def bitwise_and(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Combine the bits that are set in both: input & other."""


@pointwise(takes="bi", differentiable=False)
def bitwise_or(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Combine the bits that are set in at least one: input | other."""


@pointwise(takes="bi", differentiable=False)
def bitwise_xor(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Combine the bits that are set in exactly one: input ^ other."""


@pointwise(takes="bi", differentiable=False)
def bitwise_not(input: Meta) -> Meta:
    """Invert every bit: ~input."""


@pointwise(takes="i", differentiable=False)
def bitwise_left_shift(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Shift bits to the left: input * 2 ** other, and 0 where all bits are shifted out."""


@pointwise(takes="i", differentiable=False)
def bitwise_right_shift(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Shift bits to the right: input / 2 ** other, rounded down."""


@pointwise(promotes=("input", "other"), inplace=False, method=False)
def where(condition: Meta, input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Choose ``input`` where ``condition`` is true, and ``other`` elsewhere."""
    if condition.dtype.category != BOOL and condition.dtype.name != "uint8":
        raise DTypeError(f"where: the condition must be a bool tensor, not {condition}")


def _filled(input: Meta, mask: Meta) -> Meta:
    if mask.dtype.category != BOOL:
        raise DTypeError(f"masked_fill: the mask must be a bool tensor, not {mask}")
    return input.like(broadcast_shapes("masked_fill", input.shape, mask.shape))


@op(inplace=True, out=False)
def masked_fill(input: Meta, mask: Meta, value: Scalar) -> Meta:
    """Copy ``input`` with ``value`` where ``mask`` is true."""
    check_fits("masked_fill", value, input.dtype)
    return _filled(input, mask)


@op(name="masked_fill.Tensor", inplace=True, out=False)
def masked_fill_tensor(input: Meta, mask: Meta, value: Meta) -> Meta:
    """Copy ``input`` with the one element of ``value`` where ``mask`` is true."""
    if value.ndim:
        raise ShapeError(
            f"masked_fill: only supports a 0-dimensional value tensor, but got tensor with {value.ndim} "
            f"dimension(s): {value}"
        )
    if result_type((input, value)).category > input.dtype.category:
        raise DTypeError(f"masked_fill: value cannot be converted to type {input.dtype.name} without overflow: {value}")
    return _filled(input, mask)


alias("not_equal", ne)
alias("less", lt)
alias("less_equal", le)
alias("greater", gt)
alias("greater_equal", ge)
alias("__lshift__", bitwise_left_shift)
alias("__rshift__", bitwise_right_shift)
