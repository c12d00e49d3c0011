"""Contracts of elementary and special functions: exponentials, trigonometry, rounding, error and gamma functions."""

from __future__ import annotations

from telegrad_protocol.dtypes import FLOAT
from telegrad_protocol.errors import DTypeError
from telegrad_protocol.meta import Meta

from .contract import Scalar, alias, pointwise
from .rules import check_backward


@pointwise(promotion="int_to_float")
def exp(input: Meta) -> Meta:
    """e ** input"""


@pointwise(promotion="int_to_float")
def exp2(input: Meta) -> Meta:
    """2 ** input"""


@pointwise(promotion="int_to_float")
def expm1(input: Meta) -> Meta:
    """e ** input - 1, exact near 0"""


@pointwise(promotion="int_to_float")
def log(input: Meta) -> Meta:
    """The natural logarithm."""


@pointwise(promotion="int_to_float")
def log2(input: Meta) -> Meta:
    """The logarithm to base 2."""


@pointwise(promotion="int_to_float")
def log10(input: Meta) -> Meta:
    """The logarithm to base 10."""


@pointwise(promotion="int_to_float")
def log1p(input: Meta) -> Meta:
    """log(1 + input), exact near 0"""


@pointwise(promotion="int_to_float")
def sin(input: Meta) -> Meta:
    """The sine of an angle in radians."""


@pointwise(promotion="int_to_float")
def cos(input: Meta) -> Meta:
    """The cosine of an angle in radians."""


@pointwise(promotion="int_to_float")
def tan(input: Meta) -> Meta:
    """The tangent of an angle in radians."""


@pointwise(promotion="int_to_float")
def asin(input: Meta) -> Meta:
    """The angle whose sine is input."""


@pointwise(promotion="int_to_float")
def acos(input: Meta) -> Meta:
    """The angle whose cosine is input."""


@pointwise(promotion="int_to_float")
def atan(input: Meta) -> Meta:
    """The angle whose tangent is input."""


@pointwise(promotion="int_to_float", takes="bif")
def atan2(input: Meta, other: Meta) -> Meta:
    """The angle of the point (other, input), between -pi and pi"""


@pointwise(promotion="int_to_float")
def sinh(input: Meta) -> Meta:
    """The hyperbolic sine."""


@pointwise(promotion="int_to_float")
def cosh(input: Meta) -> Meta:
    """The hyperbolic cosine."""


@pointwise(promotion="int_to_float")
def tanh(input: Meta) -> Meta:
    """The hyperbolic tangent."""


@pointwise(takes="fc", out=False, inplace=False, method=False)
def _tanh_backward(gradient: Meta, result: Meta) -> Meta:
    """gradient * (1 - result ** 2)"""
    check_backward("_tanh_backward", gradient, result)


@pointwise(promotion="int_to_float")
def asinh(input: Meta) -> Meta:
    """The inverse hyperbolic sine."""


@pointwise(promotion="int_to_float")
def acosh(input: Meta) -> Meta:
    """The inverse hyperbolic cosine."""


@pointwise(promotion="int_to_float")
def atanh(input: Meta) -> Meta:
    """The inverse hyperbolic tangent."""


@pointwise(promotion="int_to_float")
def sigmoid(input: Meta) -> Meta:
    """1 / (1 + exp(-input))"""


@pointwise(takes="fc", out=False, inplace=False, method=False)
def _sigmoid_backward(gradient: Meta, result: Meta) -> Meta:
    """gradient * result * (1 - result)"""
    check_backward("_sigmoid_backward", gradient, result)


@pointwise(promotion="int_to_float", takes="bif")
def logit(input: Meta, eps: float | None = None) -> Meta:
    """log(input / (1 - input)), input clamped to [eps, 1 - eps] first"""


@pointwise(promotion="int_to_float", takes="bif")
def erf(input: Meta) -> Meta:
    """The error function."""


@pointwise(promotion="int_to_float", takes="bif")
def erfc(input: Meta) -> Meta:
    """1 - erf(input), exact where that is small"""


@pointwise(promotion="int_to_float", takes="bif")
def erfinv(input: Meta) -> Meta:
    """The inverse of the error function."""


@pointwise(promotion="int_to_float", takes="bif")
def lgamma(input: Meta) -> Meta:
    """The logarithm of the absolute value of the gamma function."""


@pointwise(promotion="int_to_float", takes="bif")
def digamma(input: Meta) -> Meta:
    """The derivative of lgamma."""


@pointwise(promotion="int_to_float", takes="bif", promotes=("input",), out=False, inplace=False, method=False)
def _polygamma(input: Meta, n: int) -> Meta:
    """The derivative number ``n`` of digamma."""


@pointwise(takes="fc")
def logaddexp(input: Meta, other: Meta) -> Meta:
    """log(exp(input) + exp(other))"""


@pointwise(promotion="int_to_float", takes="bif")
def xlogy(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """input * log(other), 0 where input is 0"""


@pointwise(takes="if")
def floor(input: Meta) -> Meta:
    """The largest integer that is not above."""


@pointwise(takes="if")
def ceil(input: Meta) -> Meta:
    """The smallest integer that is not below."""


@pointwise(takes="if")
def trunc(input: Meta) -> Meta:
    """Rounded towards zero."""


@pointwise(takes="f")
def frac(input: Meta) -> Meta:
    """input - trunc(input)"""


@pointwise(takes="if")
def round(input: Meta, *, decimals: int = 0) -> Meta:
    """Rounded to ``decimals`` places, halves to even"""
    if decimals and input.dtype.category < FLOAT:
        raise DTypeError(f"round: decimals are for floating-point types, not for {input}")


@pointwise(promotion="int_to_float", takes="bif")
def deg2rad(input: Meta) -> Meta:
    """Degrees as radians."""


@pointwise(promotion="int_to_float", takes="bif")
def rad2deg(input: Meta) -> Meta:
    """Radians as degrees."""


@pointwise
def nan_to_num(input: Meta, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Meta:
    """NaN and infinities replaced: by 0 and the type's extremes where nothing is given"""


alias("arcsin", asin)
alias("arccos", acos)
alias("arctan", atan)
alias("arctan2", atan2)
alias("arcsinh", asinh)
alias("arccosh", acosh)
alias("arctanh", atanh)
alias("fix", trunc)
