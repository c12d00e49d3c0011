"""Special functions beyond the elementary ones: gamma, zeta, entropy, normal distribution."""

from __future__ import annotations

import math

from server.engine import functional as F
from server.engine.array_library.bessel_functions.bessel import bessel
from server.engine.array_library.special_functions import gammainc, gammaincc, special
from server.engine.array_library.special_functions import polygamma as polygamma_of
from server.engine.registry import composite, implements
from server.engine.value import Value
from telegrad_protocol.ops import special as ops

from .complex import conj
from .derivatives import not_differentiable


def _sinc_backward(grad, input):
    angle = input * math.pi
    slope = (angle * F.cos(angle) - F.sin(angle)) / (angle * input)
    return F.where(F.eq(input, 0), 0.0, grad * conj(slope))


@implements(ops.sinc, input=_sinc_backward)
def sinc(xp, input, *, out):
    angle = input * math.pi
    is_zero = input == 0
    xp.divide(xp.sin(angle), xp.where(is_zero, 1, angle), out=out)
    xp.copyto(out, 1, where=is_zero)


@implements(ops.i0, input=lambda grad, input: grad * F.special_i1(input))
def i0(xp, input, *, out):
    bessel(xp, "i0", input, out)


@implements(ops._polygamma, input=lambda grad, input, n: grad * F._polygamma(input, n + 1))
def _polygamma(xp, input, n, *, out):
    polygamma_of(xp, input, n, out)


@implements(ops.polygamma, input=lambda grad, n, input: grad * F._polygamma(input, n + 1))
def polygamma(xp, n, input, *, out):
    polygamma_of(xp, input, n, out)


@composite(ops.mvlgamma)
def mvlgamma(input, p):
    constant = 0.25 * p * (p - 1) * math.log(math.pi)
    shifted = [F.lgamma(input - 0.5 * i if i else input) for i in range(p)]
    total = shifted[0]
    for term in shifted[1:]:
        total = total + term
    return F.contiguous(total + constant if constant else total)


def _density_of_gamma(grad, input, other):
    """grad * other ** (input - 1) * exp(-other) / gamma(input)"""
    return grad * F.exp((input - 1) * F.log(other) - other - F.lgamma(input))


@implements(ops.igamma, input=not_differentiable("igamma", "input"), other=_density_of_gamma)
def igamma(xp, input, other, *, out):
    gammainc(xp, input, other, out)


@implements(
    ops.igammac,
    input=not_differentiable("igammac", "input"),
    other=lambda grad, input, other: -_density_of_gamma(grad, input, other),
)
def igammac(xp, input, other, *, out):
    gammaincc(xp, input, other, out)


@implements(
    ops.zeta,
    input=not_differentiable("special.zeta", "input"),
    other=lambda grad, input, other: grad * -input * F.special_zeta(input + 1, other),
)
def zeta(xp, input, other, *, out):
    special(xp).zeta(*_arrays(xp, out, input, other), out=out)


def _arrays(xp, out, *operands):
    return [xp.asarray(operand, dtype=out.dtype) for operand in operands]


def _xlog1py_input(grad, input, other):
    logarithm = F.log1p(other) if other.__class__ is Value else math.log1p(other) if other > -1 else math.nan
    is_flat = F.eq(input, 0) if other.__class__ is not Value else F.logical_and(F.eq(input, 0), F.le(other, -1))
    if other.__class__ is not Value and other > -1:
        return grad * logarithm
    return F.where(is_flat, 0.0, grad * logarithm)


@implements(ops.xlog1py, input=_xlog1py_input, other=lambda grad, input, other: grad * input / (other + 1))
def xlog1py(xp, input, other, *, out):
    input, other = _arrays(xp, out, input, other)
    product = input * xp.log1p(other)
    xp.copyto(out, xp.where(xp.logical_and(input == 0, ~xp.isnan(other)), 0, product))


@implements(ops.entr, input=lambda grad, input: grad * (-F.log(input) - 1))
def entr(xp, input, *, out):
    special(xp).entr(input, out=out)


@implements(ops.erfcx, input=lambda grad, input, out: grad * (2 * input * out - 2 / math.sqrt(math.pi)))
def erfcx(xp, input, *, out):
    special(xp).erfcx(input, out=out)


_ROOT_2_PI = math.sqrt(2 * math.pi)


@implements(ops.ndtr, input=lambda grad, input: grad * F.exp(F.square(input) * -0.5) / _ROOT_2_PI)
def ndtr(xp, input, *, out):
    special(xp).ndtr(input, out=out)


@implements(ops.ndtri, input=lambda grad, out: grad * F.exp(F.square(out) * 0.5) * _ROOT_2_PI)
def ndtri(xp, input, *, out):
    special(xp).ndtri(input, out=out)


@implements(
    ops.log_ndtr, input=lambda grad, input: grad / F.special_erfcx(input * -math.sqrt(0.5)) * math.sqrt(2 / math.pi)
)
def log_ndtr(xp, input, *, out):
    special(xp).log_ndtr(input, out=out)


@composite(ops.special_softmax)
def special_softmax(input, dim, *, dtype):
    return F.softmax(input, dim, dtype)


@composite(ops.special_log_softmax)
def special_log_softmax(input, dim, *, dtype):
    return F.log_softmax(input, dim, dtype)
