"""Bessel and Airy functions, and orthogonal polynomials of any degree."""

from __future__ import annotations

import math

from server.engine import functional as F
from server.engine.array_library.bessel_functions.airy import airy_ai as airy_ai_of
from server.engine.array_library.bessel_functions.bessel import bessel
from server.engine.registry import implements
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.ops import bessel as ops

from .derivatives import not_differentiable


def _where_zero(input, at_zero, elsewhere):
    """A number where the input is 0, and elsewhere a function of the input, which does not see the zeros."""
    is_zero = F.eq(input, 0)
    return F.where(is_zero, at_zero, elsewhere(F.where(is_zero, 1.0, input)))


@implements(ops.airy_ai, input=not_differentiable("special.airy_ai", "input"))
def airy_ai(xp, input, *, out):
    airy_ai_of(xp, input, out)


def _i1_backward(grad, input, out):
    return grad * _where_zero(input, 0.5, lambda x: F.i0(x) - out / x)


def _i1e_backward(grad, input, out):
    return grad * _where_zero(input, 0.5, lambda x: F.special_i0e(x) - out * (F.sgn(x) + 1 / x))


_FUNCTIONS = {
    ops.bessel_j0: ("j0", lambda grad, input: -grad * F.special_bessel_j1(input)),
    ops.bessel_j1: (
        "j1", lambda grad, input, out: grad * _where_zero(input, 0.5, lambda x: F.special_bessel_j0(x) - out / x)
    ),
    ops.bessel_y0: ("y0", lambda grad, input: -grad * F.special_bessel_y1(input)),
    ops.bessel_y1: ("y1", lambda grad, input, out: grad * (F.special_bessel_y0(input) - out / input)),
    ops.i0e: ("i0e", lambda grad, input, out: grad * (F.special_i1e(input) - F.sgn(input) * out)),
    ops.i1: ("i1", _i1_backward),
    ops.i1e: ("i1e", _i1e_backward),
    ops.modified_bessel_i0: ("i0", lambda grad, input: grad * F.special_modified_bessel_i1(input)),
    ops.modified_bessel_i1: ("i1", _i1_backward),
    ops.modified_bessel_k0: ("k0", lambda grad, input: -grad * F.special_modified_bessel_k1(input)),
    ops.modified_bessel_k1: (
        "k1", lambda grad, input, out: -grad * (F.special_modified_bessel_k0(input) + out / input)
    ),
    ops.scaled_modified_bessel_k0: (
        "k0e", lambda grad, input, out: grad * (out - F.special_scaled_modified_bessel_k1(input))
    ),
    ops.scaled_modified_bessel_k1: (
        "k1e", lambda grad, input, out: grad * (out - F.special_scaled_modified_bessel_k0(input) - out / input)
    ),
}  # fmt: skip
"""The name in SciPy's and CuPy's modules of special functions, and the derivative formula."""


def _register(op, name, formula):
    @implements(op, input=formula)
    def run(xp, input, *, out):
        bessel(xp, name, input, out)


for _op, (_name, _formula) in _FUNCTIONS.items():
    _register(_op, _name, _formula)


def _spherical_backward(grad, input, out):
    return grad * _where_zero(input, 0.0, lambda x: (F.cos(x) - out) / x)


@implements(ops.spherical_bessel_j0, input=_spherical_backward)
def spherical_bessel_j0(xp, input, *, out):
    is_zero = input == 0
    xp.divide(xp.sin(input), xp.where(is_zero, 1, input), out=out)
    xp.copyto(out, 1, where=is_zero)
    xp.copyto(out, 0, where=xp.isinf(input))


_MANY_STEPS = 64
"""Chebyshev polynomials of higher degrees than this are computed by trigonometry instead of by recurrence."""
_MOST_STEPS = 1 << 16
"""The highest degree of the other polynomials: every degree is a pass over the whole tensor."""


def _polynomials(xp, x, degree, largest, first, step):
    """Evaluate polynomials by p[k+1] = step(k, p[k], p[k-1]), where p[0] is 1 and p[1] is ``first``."""
    before, current = xp.ones_like(x), first
    result = xp.where(degree == 0, 1.0, xp.where(degree == 1, first, 0.0))
    for k in range(1, largest):
        before, current = current, step(k, current, before)
        result = xp.where(degree == k + 1, current, result)
    return result


def _register_chebyshev(op, kind, is_shifted):
    first = {"t": lambda x: x, "u": lambda x: 2 * x, "v": lambda x: 2 * x - 1, "w": lambda x: 2 * x + 1}[kind]

    @implements(op, input=not_differentiable(op.public, "input"), n=not_differentiable(op.public, "n"))
    def run(xp, input, n, *, out):
        x, degree, largest = _operands(xp, input, n, out)
        x = 2 * x - 1 if is_shifted else x
        if largest > _MANY_STEPS:
            result = _by_angle(xp, kind, x, degree)
        else:
            result = _polynomials(xp, x, degree, largest, first(x), lambda k, p, q: 2 * x * p - q)
        out[...] = result


def _by_angle(xp, kind, x, degree):
    """Evaluate Chebyshev polynomials at x = cos(angle), where angles beyond [-1, 1] are complex."""
    angle = xp.arccos(x.astype("complex128"))
    parity = 1.0 - 2.0 * (degree % 2)
    half = (degree + 0.5) * angle
    numerator, denominator, right, left = {
        "t": lambda: (xp.cos(degree * angle), 1.0, 1.0, parity),
        "u": lambda: (xp.sin((degree + 1) * angle), xp.sin(angle), degree + 1.0, parity * (degree + 1)),
        "v": lambda: (xp.cos(half), xp.cos(angle / 2), 1.0, parity * (2 * degree + 1)),
        "w": lambda: (xp.sin(half), xp.sin(angle / 2), 2.0 * degree + 1, parity),
    }[kind]()
    result = (numerator / denominator).real
    result = xp.where(x == 1, right, xp.where(x == -1, left, result))
    return xp.where(degree < 0, 0.0, result)


def _operands(xp, input, n, out):
    """The operands in double precision, the degree truncated to an integer, and the largest degree."""
    x, degree = xp.broadcast_arrays(xp.asarray(input, dtype="float64"), xp.trunc(xp.asarray(n, dtype="float64")))
    largest = int(xp.max(xp.where(xp.isfinite(degree), degree, 0))) if degree.size else 0
    return x, degree, largest


for _kind in "tuvw":
    _register_chebyshev(getattr(ops, f"chebyshev_polynomial_{_kind}"), _kind, False)
    _register_chebyshev(getattr(ops, f"shifted_chebyshev_polynomial_{_kind}"), _kind, True)

_HERMITE_LIMITS = {"f": 128, "d": 512}
"""Beyond these degrees PyTorch gives NaN, since the recurrence overflows."""

_RECURRENCES = {
    ops.hermite_polynomial_h: (lambda x: 2 * x, lambda x, k, p, q: 2 * (x * p - k * q), _HERMITE_LIMITS),
    ops.hermite_polynomial_he: (lambda x: x, lambda x, k, p, q: x * p - k * q, _HERMITE_LIMITS),
    ops.laguerre_polynomial_l: (lambda x: 1 - x, lambda x, k, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1), None),
    ops.legendre_polynomial_p: (lambda x: x, lambda x, k, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1), None),
}
"""By operation: the polynomial of degree 1, the recurrence, and the degrees that are defined by type."""


def _register_recurrence(op, first, step, limits):
    @implements(op, input=not_differentiable(op.public, "input"), n=not_differentiable(op.public, "n"))
    def run(xp, input, n, *, out):
        x, degree, largest = _operands(xp, input, n, out)
        limit = limits[out.dtype.char] if limits else math.inf
        if min(largest, limit) > _MOST_STEPS:
            raise ArgumentError(f"{op.public}: degree {largest} is too high, the highest is {_MOST_STEPS}")
        result = _polynomials(xp, x, degree, min(largest, limit), first(x), lambda k, p, q: step(x, k, p, q))
        out[...] = xp.where(degree > limit, math.nan, result)


for _op, (_first, _step, _limits) in _RECURRENCES.items():
    _register_recurrence(_op, _first, _step, _limits)
