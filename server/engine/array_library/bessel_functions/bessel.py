"""Bessel functions of orders 0 and 1: SciPy's on the host, and on a GPU CuPy's where these are right.

CuPy computes scaled functions as products of a power of e and a function that overflows, and gives limits at infinity
where SciPy and PyTorch give NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..special_functions import special

_SCALED = {"i0e": ("i0", 0), "i1e": ("i1", 1), "k0e": ("k0", 0), "k1e": ("k1", 1)}
"""By the name of a scaled function, the name of the function that is scaled, and the order."""
_NAN_AT_INFINITY = frozenset(("j0", "j1", "y0", "y1", "i0", "i1"))
_FAR = 500.0
"""From here on six terms of the asymptotic series give double precision; up to here exp(x) does not overflow."""
_TERMS = 6


def bessel(xp: Any, name: str, input: Any, out: Any) -> None:
    """Write the Bessel function that has this name in SciPy."""
    if xp is np:
        getattr(special(np), name)(input, out=out)
    elif name in _SCALED:
        out[...] = scaled(xp, name, input)
    else:
        getattr(special(xp), name)(input, out=out)
        if name in _NAN_AT_INFINITY:
            xp.copyto(out, math.nan, where=xp.isinf(input))


def scaled(xp: Any, name: str, input: Any) -> Any:
    """exp(-abs(x)) I(x) or exp(x) K(x) in double precision, by the asymptotic series where x is large."""
    plain, order = _SCALED[name]
    is_growing = plain[0] == "i"
    x = xp.asarray(input, dtype="float64")
    size = xp.abs(x)
    near = xp.clip(x, -_FAR, _FAR)
    close = getattr(special(xp), plain)(near) * xp.exp(-xp.abs(near) if is_growing else near)
    far = xp.where(size < _FAR, _FAR, size)
    series = _asymptotic(1 / far, order, -1 if is_growing else 1)
    series = series * xp.sqrt((0.5 / math.pi if is_growing else 0.5 * math.pi) / far)
    if not is_growing:
        series = xp.where(x < 0, math.nan, series)
    elif order:
        series = xp.copysign(series, x)
    return xp.where(size < _FAR, close, series)


def _asymptotic(inverse: Any, order: int, sign: int) -> Any:
    """1 + s a (1 + s b (1 + ...)), where a, b, ... are (4 order ** 2 - (2 k - 1) ** 2) / (8 k x), k from 1 on."""
    total = 1.0
    for k in range(_TERMS, 0, -1):
        total = 1 + inverse * (sign * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k)) * total
    return total
