"""Box-Muller's transform on the host, in float64 with one rounding at the end. Knows arrays only.

NumPy's sine and cosine of float64 take one element at a time; here both are polynomials in the square of the angle.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

Array = Any
MOST_PAIRS: Final = 1 << 14
"""Pairs of numbers that are made at once: the scratch memory stays in a core's cache."""

# sin(pi t / 2) / t and cos(pi t / 2) / (1 - t ** 2) in powers of t ** 2 on [0, 1], the highest first, interpolated at
# Chebyshev's points: errors of 2e-16 and 1e-14, relative also where the functions are 0.
_SINE: Final = (
    -6.449471237809134e-10, 5.688318064017795e-08, -3.5988107063136794e-06, 1.604411695631063e-04,
    -4.681754131447062e-03, 7.969262624568337e-02, -6.459640975062232e-01, 1.5707963267948963,
)  # fmt: skip
_COSINE: Final = (
    6.097371808029308e-09, -4.6445960072842387e-07, 2.473706801214836e-05, -8.945229256598436e-04,
    1.9968957752752623e-02, -2.337005501354123e-01, 9.999999999999922e-01,
)  # fmt: skip


@cache
def _scratch() -> Array:
    return np.empty((6, MOST_PAIRS))


def fill(words: Array, out: Array) -> None:
    """Write standard normal numbers made from pairs of uint32 words: the radius from the first, then the angle.

    ``out`` is a float32 vector, at most as long as ``words``.
    """
    pairs = words.reshape(-1, 2)
    radius, turn, square, sine, cosine, rest = (row[: len(pairs)] for row in _scratch())
    _radii(pairs[:, 0], radius)
    np.multiply(pairs.view(np.int32)[:, 1], 2.0**-31, out=turn)  # an angle in half turns, from -1 to 1
    np.multiply(turn, turn, out=square)
    _polynomial(_SINE, square, sine)
    sine *= turn
    _polynomial(_COSINE, square, cosine)
    cosine *= np.subtract(1, turn, out=rest)
    cosine *= np.add(turn, 1, out=rest)
    cosine *= sine  # half of the sine of the doubled angle
    cosine *= radius
    cosine *= 2
    sine *= sine  # half of one minus the cosine of the doubled angle
    sine *= -2
    sine += 1
    sine *= radius
    _interleave(sine, cosine, out)


def _radii(words: Array, out: Array) -> None:
    """sqrt(-2 log u), u from the words in the middle of their intervals"""
    # With the highest bit flipped, a word as a signed integer is 2 ** 31 less: that conversion is vectorised.
    np.copyto(out, np.bitwise_xor(words, np.uint32(1 << 31)).view(np.int32))
    out += 2.0**31 + 0.5
    out *= 2.0**-32
    np.log(out, out=out)
    out *= -2
    np.sqrt(out, out=out)


def _polynomial(coefficients: tuple[float, ...], x: Array, out: Array) -> None:
    np.multiply(x, coefficients[0], out=out)
    for coefficient in coefficients[1:-1]:
        out += coefficient
        out *= x
    out += coefficients[-1]


def _interleave(first: Array, second: Array, out: Array) -> None:
    count = len(out) // 2
    np.copyto(out[: 2 * count : 2], first[:count], casting="same_kind")
    np.copyto(out[1 : 2 * count : 2], second[:count], casting="same_kind")
    if len(out) % 2:
        out[-1] = first[count]
