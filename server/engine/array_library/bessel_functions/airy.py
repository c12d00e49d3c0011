"""The Airy function Ai: SciPy's on the host; on a GPU, whose library lacks it, by series and by an integral.

Near 0 the two Maclaurin series are summed. Elsewhere, with zeta = 2/3 z ** (3/2), Ai(z) is exp(-zeta) / (sqrt(pi)
48 ** (1/6) gamma(5/6) zeta ** (1/6)) times the integral of (2 + t / zeta) ** (-1/6) t ** (-1/6) exp(-t) over t > 0,
which a generalised Gauss-Laguerre rule evaluates (Gil, Segura, Temme, "Computing complex Airy functions by numerical
quadrature", 2002).
Negative arguments follow from Ai(-x) = exp(i pi/3) Ai(x exp(i pi/3)) + its conjugate.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ..special_functions import special

_NODES = 40
_NEAR = 2.5
"""Up to this distance from 0 the series are summed."""
_TERMS = 30
_AT_ZERO = 0.355028053887817239
_SLOPE_AT_ZERO = -0.258819403792806798


def airy_ai(xp: Any, input: Any, out: Any) -> None:
    """Write Ai(input) into ``out``."""
    if xp is np:
        out[...] = special(xp).airy(input)[0]
        return
    out[...] = airy_by_quadrature(xp, input.astype("float64"))


def airy_by_quadrature(xp: Any, x: Any) -> Any:
    """Return Ai of an array of doubles, in the array library's own operations."""
    distant = xp.where(xp.abs(x) > _NEAR, x, 5.0)
    size = xp.abs(distant)
    right = _integral(xp, size.astype("complex128")).real
    turn = np.exp(1j * np.pi / 3)
    left = 2 * (turn * _integral(xp, size * turn)).real
    far = xp.where(distant > 0, right, left)
    result = xp.where(xp.abs(x) > _NEAR, far, _series(xp, xp.where(xp.abs(x) > _NEAR, 0.0, x)))
    return xp.where(xp.isinf(x), math.nan, result)


def _series(xp: Any, x: Any) -> Any:
    cube = x * x * x
    even, odd = xp.ones_like(x), x
    total, slope = xp.ones_like(x), x
    for k in range(1, _TERMS):
        even = even * cube / (3 * k * (3 * k - 1))
        odd = odd * cube / (3 * k * (3 * k + 1))
        total, slope = total + even, slope + odd
    return _AT_ZERO * total + _SLOPE_AT_ZERO * slope


@functools.cache
def _rule() -> tuple[Any, Any]:
    nodes, weights = special(np).roots_genlaguerre(_NODES, -1 / 6)
    return nodes.tolist(), weights.tolist()


def _integral(xp: Any, z: Any) -> Any:
    zeta = 2 / 3 * z * xp.sqrt(z)
    total = xp.zeros_like(zeta)
    for node, weight in zip(*_rule(), strict=True):
        total = total + weight * (2 + node / zeta) ** (-1 / 6)
    scale = math.sqrt(math.pi) * 48 ** (1 / 6) * math.gamma(5 / 6)
    return xp.exp(-zeta) * zeta ** (-1 / 6) * total / scale
