"""Contracts of element-wise arithmetic: sums, products, quotients, powers, extremes, interpolation."""

from __future__ import annotations

from telegrad_protocol.dtypes import COMPLEX, FLOAT, DType, bool_, result_type
from telegrad_protocol.errors import ArgumentError, DTypeError
from telegrad_protocol.meta import Device, Meta

from .contract import Scalar, alias, op, pointwise
from .creation import check_fits, like


def check_alpha(name: str, alpha: Scalar, *operands: Meta | Scalar) -> None:
    """Refuse a factor of a higher category than the operands' common type."""
    dtype = result_type(operands)
    if dtype.category < FLOAT and isinstance(alpha, (float, complex)):
        raise DTypeError(f"{name}: alpha must be an integer where the operands are, got {alpha} for {dtype.name}")
    if dtype.category < COMPLEX and isinstance(alpha, complex):
        raise DTypeError(f"{name}: alpha must be real where the operands are, got {alpha} for {dtype.name}")
    if dtype.category > 0 and isinstance(alpha, bool):
        raise DTypeError(f"{name}: a boolean alpha is only for bool operands, not for {dtype.name}")


def _check_subtraction(name: str, *operands: Meta | Scalar) -> None:
    if any(o.dtype.category == 0 if isinstance(o, Meta) else isinstance(o, bool) for o in operands):
        raise DTypeError(f"{name}: bool operands are not subtracted; use ^, logical_xor(), ~ or logical_not()")


def _check_divisor(name: str, input: Meta | Scalar, other: Meta | Scalar) -> None:
    is_empty = isinstance(input, Meta) and not input.numel  # nothing is divided
    if not isinstance(other, Meta) and other == 0 and result_type((input, other)).category < FLOAT and not is_empty:
        raise DTypeError(f"{name}: integer division of {input!r} by zero")


@pointwise
def add(input: Meta | Scalar, other: Meta | Scalar, *, alpha: Scalar = 1) -> Meta:
    """Add ``other``, multiplied by ``alpha``: input + alpha * other."""
    check_alpha("add", alpha, input, other)


@pointwise
def sub(input: Meta | Scalar, other: Meta | Scalar, *, alpha: Scalar = 1) -> Meta:
    """Subtract ``other``, multiplied by ``alpha``: input - alpha * other."""
    _check_subtraction("sub", input, other)
    check_alpha("sub", alpha, input, other)


@pointwise(inplace=False)
def rsub(input: Meta, other: Meta | Scalar, *, alpha: Scalar = 1) -> Meta:
    """Subtract ``input``, multiplied by ``alpha``, from ``other``: other - alpha * input."""
    _check_subtraction("rsub", input, other)
    check_alpha("rsub", alpha, input, other)


@pointwise
def mul(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Multiply element by element: input * other."""


@pointwise(promotion="int_to_float")
def div(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Divide element by element: input / other. Integers are divided as floating-point numbers."""


def _division(input: Meta | Scalar, other: Meta | Scalar, rounding_mode: str | None) -> str:
    return "int_to_float" if rounding_mode is None else "default"


@pointwise(name="div.mode", promotion=_division)
def div_mode(input: Meta | Scalar, other: Meta | Scalar, *, rounding_mode: str | None) -> Meta:
    """Divide and round: towards zero (``trunc``), down (``floor``), or not at all (None)."""
    if rounding_mode not in (None, "trunc", "floor"):
        raise ArgumentError(f"div: rounding_mode must be None, 'trunc' or 'floor', not {rounding_mode!r}")
    if rounding_mode is not None:
        _check_divisor("div", input, other)
        check_rounded("div", input, other)


def check_rounded(name: str, *operands: Meta | Scalar) -> None:
    """Refuse operands that have no rounded quotient."""
    dtype = result_type(operands)
    if dtype.category in (0, COMPLEX):
        raise DTypeError(f"{name}: a rounded quotient is not defined for {dtype.name}")


@pointwise(takes="if")
def floor_divide(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Divide and round down: floor(input / other)."""
    _check_divisor("floor_divide", input, other)


@pointwise(takes="if")
def remainder(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Compute the remainder with the divisor's sign: input - other * floor(input / other)."""
    _check_divisor("remainder", input, other)


@pointwise(takes="if")
def fmod(input: Meta, other: Meta | Scalar) -> Meta:
    """Compute the remainder with the dividend's sign: input - other * trunc(input / other)."""
    _check_divisor("fmod", input, other)


@pointwise(takes="ifc")
def pow(input: Meta | Scalar, exponent: Meta | Scalar) -> Meta:
    """Raise to a power: input ** exponent."""
    dtype = result_type((input, exponent))
    if dtype.category < FLOAT and not isinstance(exponent, Meta):
        if exponent < 0:  # type: ignore[operator]
            raise DTypeError(f"pow: integers have no negative integer powers: {input!r} ** {exponent}")
        check_fits("pow", exponent, dtype)


@pointwise
def neg(input: Meta) -> Meta:
    """Negate every element: -input."""
    if input.dtype is bool_:
        operator = "Negation, the `-` operator, on a bool tensor is not supported"
        raise DTypeError(f"neg: {operator}: use the `~` or `logical_not()` operator on {input}")


@op(view_of="input")
def positive(input: Meta) -> Meta:
    """Return ``input`` itself; bools, which have no sign, are refused."""
    if input.dtype.category == 0:
        raise DTypeError(f"positive: not defined for {input}")
    return input.view(input.shape, input.strides)


@pointwise(takes="ifc", promotion="complex_to_float")
def abs(input: Meta) -> Meta:
    """Compute the absolute value of every element: |input|."""


@pointwise(takes="bif")
def sign(input: Meta) -> Meta:
    """Compute the sign of every element: -1, 0 or 1."""


@pointwise
def sgn(input: Meta) -> Meta:
    """Compute the sign of every element; for complex numbers input / |input|, and 0 at 0."""


@pointwise(promotion="bool_to_int")
def square(input: Meta) -> Meta:
    """Square every element: input * input."""


@pointwise(promotion="int_to_float")
def reciprocal(input: Meta) -> Meta:
    """Compute the reciprocal of every element: 1 / input."""


@pointwise(promotion="int_to_float")
def sqrt(input: Meta) -> Meta:
    """Compute the square root of every element; it is NaN for negative numbers."""


@pointwise(promotion="int_to_float")
def rsqrt(input: Meta) -> Meta:
    """Compute the reciprocal of the square root of every element: 1 / sqrt(input)."""


@pointwise(takes="f")
def hypot(input: Meta, other: Meta) -> Meta:
    """Compute sqrt(input ** 2 + other ** 2) without overflow in between."""


@pointwise(promotion="int_to_float", takes="bif")
def copysign(input: Meta, other: Meta | Scalar) -> Meta:
    """Give every element of ``input`` the sign of the element of ``other``."""


def same_dtype(name: str, *operands: Meta | Scalar) -> None:
    """Refuse tensors of different types where nothing is promoted."""
    metas = [o for o in operands if isinstance(o, Meta)]
    if any(m.dtype is not metas[0].dtype for m in metas):
        raise DTypeError(f"{name}: operands must have the same dtype, got {', '.join(map(repr, metas))}")


@pointwise(takes="fc", promotes=("input", "end"))
def lerp(input: Meta, end: Meta, weight: Meta | Scalar) -> Meta:
    """Interpolate linearly: input + weight * (end - input)."""
    if isinstance(weight, complex) and not input.dtype.is_complex:
        raise DTypeError(f"lerp: the complex weight {weight} does not go with {input}")
    same_dtype("lerp", input, end, weight)


@pointwise(takes="ifc", promotes=("input", "tensor1", "tensor2"))
def addcmul(input: Meta, tensor1: Meta, tensor2: Meta, *, value: Scalar = 1) -> Meta:
    """Add a scaled product: input + value * tensor1 * tensor2."""
    check_alpha("addcmul", +value, input, tensor1, tensor2)  # True is 1 here


@pointwise(takes="fc", promotes=("input", "tensor1", "tensor2"))
def addcdiv(input: Meta, tensor1: Meta, tensor2: Meta, *, value: Scalar = 1) -> Meta:
    """Add a scaled quotient: input + value * tensor1 / tensor2."""
    if result_type((tensor1, tensor2)).category < FLOAT:
        raise DTypeError(f"addcdiv: integers are not divided: {tensor1} / {tensor2}; use div() with a rounding_mode")
    check_alpha("addcdiv", +value, input, tensor1, tensor2)  # True is 1 here


@op(out=False, method=False)
def _to_copy(input: Meta, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Copy to another dtype or another device, in the same memory order."""
    return like(input, dtype, device)


alias("subtract", sub)
alias("multiply", mul)
alias("divide", div)
alias("true_divide", div)
alias("negative", neg)
alias("absolute", abs)
