"""Contracts of special functions beyond the elementary ones: gamma, zeta, entropy, normal distribution."""

from __future__ import annotations

from telegrad_protocol.dtypes import FLOAT, DType, bool_, get_default_dtype
from telegrad_protocol.errors import ArgumentError, DTypeError
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import softmax

from . import elementary, reduce
from .contract import Op, Scalar, alias, op, pointwise

_MOST_DIMENSIONS = 10_000
"""Each dimension of a multivariate gamma function is a pass over the input."""


def real_function(name: str, doc: str) -> Op:
    """Declare a function ``special.<name>`` of real numbers, which has neither a method nor an in-place form."""

    def rule(input: Meta) -> Meta: ...

    rule.__doc__ = doc
    return pointwise(
        name=f"special_{name}", promotion="int_to_float", takes="bif", inplace=False, method=False, module="special"
    )(rule)


@pointwise(promotion="int_to_float")
def sinc(input: Meta) -> Meta:
    """Compute sin(pi * input) / (pi * input), which is 1 at 0."""


@pointwise(promotion="int_to_float", takes="bif")
def i0(input: Meta) -> Meta:
    """Compute the modified Bessel function of the first kind of order 0."""


def _check_order(n: int) -> None:
    if n < 0:
        raise ArgumentError(f"polygamma: the order must not be negative, got {n}")


@pointwise(promotion="int_to_float", takes="bif", promotes=("input",), out=False)
def _polygamma(input: Meta, n: int) -> Meta:
    """Compute derivative number ``n`` of ``digamma``."""
    _check_order(n)


@pointwise(promotion="int_to_float", takes="bif", promotes=("input",), inplace=False, method=False)
def polygamma(n: int, input: Meta) -> Meta:
    """Compute derivative number ``n`` of ``digamma``."""
    _check_order(n)


@op(inplace=True)
def mvlgamma(input: Meta, p: int) -> Meta:
    """Compute the logarithm of the multivariate gamma function of dimension ``p``."""
    if p < 1:
        raise ArgumentError(f"mvlgamma: the dimension p must be at least 1, got {p}")
    if p > _MOST_DIMENSIONS:
        raise ArgumentError(f"mvlgamma: the dimension p may be at most {_MOST_DIMENSIONS}, got {p}")
    if input.dtype is bool_ or input.dtype.is_complex:
        raise DTypeError(f"mvlgamma: The input tensor may not be a boolean tensor, nor a complex one, got {input}")
    return input.like(dtype=input.dtype if input.dtype.category >= FLOAT else get_default_dtype())


@pointwise(takes="f")
def igamma(input: Meta, other: Meta) -> Meta:
    """Compute the regularized lower incomplete gamma function of order ``input`` at ``other``."""


@pointwise(takes="f")
def igammac(input: Meta, other: Meta) -> Meta:
    """Compute the regularized upper incomplete gamma function of order ``input`` at ``other``."""


@pointwise(name="special_zeta", promotion="int_to_float", takes="bif", inplace=False, method=False, module="special")
def zeta(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Compute the Hurwitz zeta function: the sum of (k + other) ** -input over k = 0, 1, ..."""


@pointwise(name="special_xlog1py", promotion="int_to_float", takes="bif", inplace=False, method=False, module="special")
def xlog1py(input: Meta | Scalar, other: Meta | Scalar) -> Meta:
    """Compute input * log1p(other), which is 0 where input is 0."""


entr = real_function("entr", "Compute -input * log(input); 0 at 0, and -inf for negative numbers.")
erfcx = real_function("erfcx", "Compute the scaled complementary error function: exp(input ** 2) * erfc(input).")
ndtr = real_function("ndtr", "Compute the distribution function of the standard normal distribution.")
ndtri = real_function("ndtri", "Compute the inverse of ``ndtr``.")
log_ndtr = real_function("log_ndtr", "Compute the logarithm of ``ndtr``, exact where that is small.")

_ELSEWHERE = {
    "exp2": elementary.exp2, "expm1": elementary.expm1, "log1p": elementary.log1p, "expit": elementary.sigmoid,
    "logit": elementary.logit, "erf": elementary.erf, "erfc": elementary.erfc, "erfinv": elementary.erfinv,
    "gammaln": elementary.lgamma, "digamma": elementary.digamma, "psi": elementary.digamma,
    "xlogy": elementary.xlogy, "round": elementary.round, "logsumexp": reduce.logsumexp, "sinc": sinc, "i0": i0,
    "polygamma": polygamma, "multigammaln": mvlgamma, "gammainc": igamma, "gammaincc": igammac,
}  # fmt: skip
"""Functions of ``special`` that have a name of their own outside of it."""

for _name, _op in _ELSEWHERE.items():
    alias(f"special_{_name}", _op)


@op(name="special_softmax", method=False, out=False, module="special")
def special_softmax(input: Meta, dim: int, *, dtype: DType | None = None) -> Meta:
    """Compute exp(input) / sum(exp(input)) along a dimension; with ``dtype`` input is converted first."""
    return softmax.normalized("softmax", input, dim, dtype)


@op(name="special_log_softmax", method=False, out=False, module="special")
def special_log_softmax(input: Meta, dim: int, *, dtype: DType | None = None) -> Meta:
    """Compute log(softmax(input)) without overflow; with ``dtype`` input is converted first."""
    return softmax.normalized("log_softmax", input, dim, dtype)
