"""Contracts of Bessel and Airy functions, and of orthogonal polynomials, all in ``special``."""

from __future__ import annotations

from telegrad_protocol.meta import Meta

from .contract import Op, Scalar, pointwise
from .special import real_function

_ORDINARY = "Compute the Bessel function of the {} kind of order {}."
_MODIFIED = "Compute the modified Bessel function of the {} kind of order {}{}."

airy_ai = real_function("airy_ai", "Compute the Airy function Ai.")
bessel_j0 = real_function("bessel_j0", _ORDINARY.format("first", 0))
bessel_j1 = real_function("bessel_j1", _ORDINARY.format("first", 1))
bessel_y0 = real_function("bessel_y0", _ORDINARY.format("second", 0))
bessel_y1 = real_function("bessel_y1", _ORDINARY.format("second", 1))
i0e = real_function("i0e", _MODIFIED.format("first", 0, ", times exp(-abs(input))"))
i1 = real_function("i1", _MODIFIED.format("first", 1, ""))
i1e = real_function("i1e", _MODIFIED.format("first", 1, ", times exp(-abs(input))"))
modified_bessel_i0 = real_function("modified_bessel_i0", _MODIFIED.format("first", 0, ""))
modified_bessel_i1 = real_function("modified_bessel_i1", _MODIFIED.format("first", 1, ""))
modified_bessel_k0 = real_function("modified_bessel_k0", _MODIFIED.format("second", 0, ""))
modified_bessel_k1 = real_function("modified_bessel_k1", _MODIFIED.format("second", 1, ""))
scaled_modified_bessel_k0 = real_function(
    "scaled_modified_bessel_k0", _MODIFIED.format("second", 0, ", times exp(input)")
)
scaled_modified_bessel_k1 = real_function(
    "scaled_modified_bessel_k1", _MODIFIED.format("second", 1, ", times exp(input)")
)
spherical_bessel_j0 = real_function(
    "spherical_bessel_j0", "Compute the spherical Bessel function of the first kind of order 0."
)


def _polynomial(name: str, described: str) -> Op:
    def rule(input: Meta | Scalar, n: Meta | Scalar) -> Meta: ...

    rule.__doc__ = f"Compute the {described} polynomial of degree ``n``; it is 0 for negative degrees."
    return pointwise(
        name=f"special_{name}", promotion="int_to_float", takes="bif", inplace=False, method=False, module="special"
    )(rule)


chebyshev_polynomial_t = _polynomial("chebyshev_polynomial_t", "Chebyshev (first kind)")
chebyshev_polynomial_u = _polynomial("chebyshev_polynomial_u", "Chebyshev (second kind)")
chebyshev_polynomial_v = _polynomial("chebyshev_polynomial_v", "Chebyshev (third kind)")
chebyshev_polynomial_w = _polynomial("chebyshev_polynomial_w", "Chebyshev (fourth kind)")
shifted_chebyshev_polynomial_t = _polynomial("shifted_chebyshev_polynomial_t", "shifted Chebyshev (first kind)")
shifted_chebyshev_polynomial_u = _polynomial("shifted_chebyshev_polynomial_u", "shifted Chebyshev (second kind)")
shifted_chebyshev_polynomial_v = _polynomial("shifted_chebyshev_polynomial_v", "shifted Chebyshev (third kind)")
shifted_chebyshev_polynomial_w = _polynomial("shifted_chebyshev_polynomial_w", "shifted Chebyshev (fourth kind)")
hermite_polynomial_h = _polynomial("hermite_polynomial_h", "physicist's Hermite")
hermite_polynomial_he = _polynomial("hermite_polynomial_he", "probabilist's Hermite")
laguerre_polynomial_l = _polynomial("laguerre_polynomial_l", "Laguerre")
legendre_polynomial_p = _polynomial("legendre_polynomial_p", "Legendre")
