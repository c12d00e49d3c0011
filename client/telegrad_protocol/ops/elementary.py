"""Contracts of elementary and special functions: exponentials, trigonometry, rounding, error and gamma functions."""

from __future__ import annotations

from telegrad_protocol.dtypes import FLOAT
from telegrad_protocol.errors import DTypeError
from telegrad_protocol.meta import Meta

from .contract import Scalar, alias, pointwise
from .rules import check_backward


@pointwise(promotion="int_to_float")
def exp(input: Meta) -> Meta:
    """Compute the exponential of every element: e ** input."""


@pointwise(promotion="int_to_float")
def exp2(input: Meta) -> Meta:
    """Compute two to the power of every element: 2 ** input."""


@pointwise(promotion="int_to_float")
def expm1(input: Meta) -> Meta:
    """Compute e ** input - 1, exact near 0."""


@pointwise(promotion="int_to_float")
def log(input: Meta) -> Meta:
    """Compute the natural logarithm of every element."""


@pointwise(promotion="int_to_float")
def log2(input: Meta) -> Meta:
    """Compute the logarithm to base 2 of every element."""


@pointwise(promotion="int_to_float")
def log10(input: Meta) -> Meta:
    """Compute the logarithm to base 10 of every element."""


@pointwise(promotion="int_to_float")
def log1p(input: Meta) -> Meta:
    """Compute log(1 + input), exact near 0."""


@pointwise(promotion="int_to_float")
def sin(input: Meta) -> Meta:
    """Compute the sine of angles in radians."""


@pointwise(promotion="int_to_float")
def cos(input: Meta) -> Meta:
    """Compute the cosine of angles in radians."""


@pointwise(promotion="int_to_float")
def tan(input: Meta) -> Meta:
    """Compute the tangent of angles in radians."""


@pointwise(promotion="int_to_float")
def asin(input: Meta) -> Meta:
    """Compute the angle, in radians, whose sine is ``input``."""


@pointwise(promotion="int_to_float")
def acos(input: Meta) -> Meta:
    """Compute the angle, in radians, whose cosine is ``input``."""


@pointwise(promotion="int_to_float")
def atan(input: Meta) -> Meta:
    """Compute the angle, in radians, whose tangent is ``input``."""


@pointwise(promotion="int_to_float", takes="bif")
def atan2(input: Meta, other: Meta) -> Meta:
    """Compute the angle of the point (other, input), between -pi and pi."""


@pointwise(promotion="int_to_float")
def sinh(input: Meta) -> Meta:
    """Compute the hyperbolic sine of every element."""


@pointwise(promotion="int_to_float")
def cosh(input: Meta) -> Meta:
    """Compute the hyperbolic cosine of every element."""


@pointwise(promotion="int_to_float")
def tanh(input: Meta) -> Meta:
    """Compute the hyperbolic tangent of every element."""


@pointwise(takes="fc", out=False, inplace=False, method=False)
def _tanh_backward(gradient: Meta, result: Meta) -> Meta:
    """Compute the gradient of tanh: gradient * (1 - result ** 2)."""
    check_backward("_tanh_backward", gradient, result)


@pointwise(promotion="int_to_float")
def asinh(input: Meta) -> Meta:
    """Compute the inverse hyperbolic sine of every element."""


@pointwise(promotion="int_to_float")
def acosh(input: Meta) -> Meta:
    """Compute the inverse hyperbolic cosine of every element."""


@pointwise(promotion="int_to_float")
def atanh(input: Meta) -> Meta:
    """Compute the inverse hyperbolic tangent of every element."""


@pointwise(promotion="int_to_float")
def sigmoid(input: Meta) -> Meta:
    """Compute the logistic function: 1 / (1 + exp(-input))."""


@pointwise(takes="fc", out=False, inplace=False, method=False)
def _sigmoid_backward(gradient: Meta, result: Meta) -> Meta:
    """Compute the gradient of sigmoid: gradient * result * (1 - result)."""
    check_backward("_sigmoid_backward", gradient, result)


@pointwise(promotion="int_to_float", takes="bif")
def logit(input: Meta, eps: float | None = None) -> Meta:
    """Compute log(input / (1 - input)); with ``eps``, of input clamped to [eps, 1 - eps]."""


@pointwise(promotion="int_to_float", takes="bif")
def erf(input: Meta) -> Meta:
    """Compute the error function of every element."""


@pointwise(promotion="int_to_float", takes="bif")
def erfc(input: Meta) -> Meta:
    """Compute 1 - erf(input), exact where that is small."""


@pointwise(promotion="int_to_float", takes="bif")
def erfinv(input: Meta) -> Meta:
    """Compute the inverse of the error function of every element."""


@pointwise(promotion="int_to_float", takes="bif")
def lgamma(input: Meta) -> Meta:
    """Compute the logarithm of the absolute value of the gamma function."""


@pointwise(promotion="int_to_float", takes="bif")
def digamma(input: Meta) -> Meta:
    """Compute the derivative of ``lgamma``."""


@pointwise(takes="fc")
def logaddexp(input: Meta, other: Meta) -> Meta:
    """Compute log(exp(input) + exp(other)) without overflow."""


@pointwise(promotion="int_to_float", takes="bif")
def xlogy(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Compute input * log(other), which is 0 where input is 0."""


@pointwise(takes="if")
def floor(input: Meta) -> Meta:
    """Round every element down to an integer."""


@pointwise(takes="if")
def ceil(input: Meta) -> Meta:
    """Round every element up to an integer."""


@pointwise(takes="if")
def trunc(input: Meta) -> Meta:
    """Round every element towards zero to an integer."""


@pointwise(takes="f")
def frac(input: Meta) -> Meta:
    """Compute the fraction of every element: input - trunc(input)."""


@pointwise(takes="if")
def round(input: Meta, *, decimals: int = 0) -> Meta:
    """Round every element to ``decimals`` places, halves to the even neighbour."""
    if decimals and input.dtype.category < FLOAT:
        raise DTypeError(f"round: decimals are for floating-point types, not for {input}")


@pointwise(promotion="int_to_float", takes="bif")
def deg2rad(input: Meta) -> Meta:
    """Convert degrees to radians."""


@pointwise(promotion="int_to_float", takes="bif")
def rad2deg(input: Meta) -> Meta:
    """Convert radians to degrees."""


@pointwise
def nan_to_num(input: Meta, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Meta:
    """Replace NaN and infinities by the given numbers; by 0 and the type's extremes where none are given."""


alias("arcsin", asin)
alias("arccos", acos)
alias("arctan", atan)
alias("arctan2", atan2)
alias("arcsinh", asinh)
alias("arccosh", acosh)
alias("arctanh", atanh)
alias("fix", trunc)
