"""Numbers of Poisson distributions, drawn with whole arrays: the same on NumPy and CuPy for the same generator.

Small rates are drawn by inversion of the distribution function. Large ones by transformed rejection: W. Hörmann, The
transformed rejection method for generating Poisson random variables (Insurance: Mathematics and Economics 12, 1993).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from server.engine import random

_LARGE: Final = 10.0
_FLOAT64: Final = np.dtype(np.float64)


def draw(xp: Any, generator: random.Generator, rates: Any) -> Any:
    """Return one number per rate, as float64; NaN for rates that are negative or NaN."""
    flat = rates.reshape(-1)
    numbers = xp.full(flat.shape, np.nan)
    small = (flat >= 0) & (flat < _LARGE)
    numbers[small] = _by_inversion(xp, generator, flat[small])
    large = flat >= _LARGE
    numbers[large] = _by_rejection(xp, generator, flat[large])
    return numbers.reshape(rates.shape)


def _by_inversion(xp: Any, generator: random.Generator, rates: Any) -> Any:
    """Count how many steps of the distribution function lie below a uniform number."""
    drawn = random.uniform(xp, generator, rates.size, _FLOAT64)
    numbers, probability = xp.zeros(rates.shape), xp.exp(-rates)
    below = probability.copy()
    for number in range(1, 64):  # at a rate of 10, the probability of more is 1e-30
        is_above = drawn > below
        if not is_above.any():
            break
        numbers += is_above
        probability *= rates / number
        below += probability
    return numbers


def _by_rejection(xp: Any, generator: random.Generator, rates: Any) -> Any:
    numbers = xp.full(rates.shape, np.inf)
    left = xp.nonzero(xp.isfinite(rates))[0]
    while left.size:
        candidates, is_accepted = _candidates(xp, generator, rates[left])
        numbers[left[is_accepted]] = candidates[is_accepted]
        left = left[~is_accepted]
    return numbers


def _candidates(xp: Any, generator: random.Generator, rates: Any) -> tuple[Any, Any]:
    """Return a candidate for each rate, and which are accepted."""
    centred = random.uniform(xp, generator, rates.size, _FLOAT64) - 0.5
    drawn = random.uniform(xp, generator, rates.size, _FLOAT64)
    b = 0.931 + 2.53 * xp.sqrt(rates)
    a = -0.059 + 0.02483 * b
    distance = 0.5 - xp.abs(centred)
    candidates = xp.floor((2 * a / distance + b) * centred + rates + 0.43)
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    is_quick = (distance >= 0.07) & (drawn <= 0.9277 - 3.6224 / (b - 2))
    possible = (candidates >= 0) & ((distance >= 0.013) | (drawn <= distance))
    counted = xp.maximum(candidates, 0.0)
    height = xp.log(drawn) + xp.log(inverse_alpha) - xp.log(a / (distance * distance) + b)
    is_below = height <= counted * xp.log(rates) - rates - _log_factorial(xp, counted)
    return candidates, is_quick | (possible & is_below)


def _log_factorial(xp: Any, numbers: Any) -> Any:
    """Return log(n!) by Stirling's series of log Gamma, at n + 8 where it is exact to 1e-12."""
    shifted, product = numbers + 8, xp.ones(numbers.shape)
    for step in range(1, 8):
        product *= numbers + step
    inverse = 1 / shifted
    series = inverse * (1 / 12 - inverse**2 * (1 / 360 - inverse**2 * (1 / 1260 - inverse**2 / 1680)))
    return (shifted - 0.5) * xp.log(shifted) - shifted + 0.5 * np.log(2 * np.pi) + series - xp.log(product)
