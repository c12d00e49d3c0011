"""What the compiled loops of Fourier transforms are given for a length: its factors, and tables of roots of unity."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

Array = Any
_RADICES = (13, 11, 8, 7, 5, 4, 3, 2)
_ENDS = (8, 5, 4, 3)
_MOST_ALONE = 16
"""The longest transform that is one pass of a radix, of which there are passes for no other lengths."""
_MOST_PRIME, _MOST_ALONE_PRIME = 61, 89
"""The largest radix of a pass, and of one that is a transform by itself; passes have room for so many slots."""
_KEPT = 64 << 20
"""The most bytes of tables that are kept for later transforms."""


class Tables(NamedTuple):
    """Factors of the passes, addresses of tables, and the arrays that these are in."""

    factors: Array
    addresses: Array
    arrays: tuple[Array, ...]


def is_smooth(n: int) -> bool:
    """Whether a length has factors for which there are passes only."""
    return largest_prime(n) <= _MOST_PRIME


def is_one_pass(n: int) -> bool:
    """Whether a length is a prime number whose transform is one pass: as fast as a convolution, and more exact."""
    return _MOST_PRIME < n <= _MOST_ALONE_PRIME and largest_prime(n) == n


@lru_cache(maxsize=1024)
def largest_prime(n: int) -> int:
    """The largest prime factor of a length; 1 of 1."""
    largest, prime = 1, 2
    while prime * prime <= n:
        while n % prime == 0:
            largest, n = prime, n // prime
        prime += 1
    return max(largest, n)


@lru_cache(maxsize=1024)
def factors_of(n: int) -> tuple[int, ...]:
    """The radices of the passes for a smooth length: at both ends those with which signals are read and written."""
    if n <= _MOST_ALONE:
        return (n,) if n > 1 else ()
    factors = []
    for radix in (*_primes(), *_RADICES):
        while n % radix == 0 and not (radix == 8 and n % 16 == 0 and n % 32 and n % 64):
            factors.append(radix)
            n //= radix
    ends = sorted([radix for radix in factors if radix in _ENDS], reverse=True)[:2][::-1]
    for radix in ends:
        factors.remove(radix)
    return (*ends[:1], *factors, *ends[1:])


@lru_cache(maxsize=1)
def _primes() -> tuple[int, ...]:
    """The radices that have no instructions of their own."""
    return tuple([n for n in range(_MOST_ALONE + 1, _MOST_ALONE_PRIME + 1) if largest_prime(n) == n])


@lru_cache(maxsize=1024)
def convolution_length(n: int) -> int:
    """The length of the transforms by whose product one of ``n`` elements is computed (Bluestein)."""
    length = 2 * n - 1
    while largest_prime(length) > 7:
        length += 1
    return length


@lru_cache(maxsize=1024)
def matrix_of(n: int, lanes: int, most: int) -> tuple[int, int] | None:
    """About as many rows as columns, at most so many, whose product is a length; multiples of ``lanes`` if may be.

    The largest prime factor is one of the number of columns, which is the length of a convolution if it is not smooth.
    """
    prime = largest_prime(n)
    if prime > _MOST_PRIME:
        lengths = [prime * d for d in range(1, most // prime // 2) if n // prime % d == 0]
        shapes = [(n // c, c) for c in lengths if convolution_length(c) <= most and lanes // 2 <= n // c <= most]
        shapes = [shape for shape in shapes if is_smooth(shape[0])]
        return min(shapes, key=lambda shape: abs(math.log2(shape[0] / shape[1])), default=None)
    root, best = math.isqrt(n), None
    for rows in range(max(2, root // 4), min(4 * root, n // 2) + 1):
        if n % rows == 0:
            columns = n // rows
            waste = (-rows % lanes / rows + 1) * (-columns % lanes / columns + 1)
            cost = waste * (len(factors_of(rows)) + len(factors_of(columns)) + abs(math.log2(rows / columns)) / 4)
            best = min(best or (math.inf, 0, 0), (cost, rows, columns))
    return None if best is None else best[1:]


def roots(numerators: Array, n: int) -> Array:
    """exp(-2 pi i k / n) in double precision: angles are at most an eighth of a turn, so that they are exact enough."""
    eighths = 8 * (numerators % n)
    octant = eighths // n
    rest = eighths - octant * n
    is_odd = octant % 2 == 1
    angle = np.where(is_odd, n - rest, rest) * (math.pi / 4 / n)
    cosine, sine = np.cos(angle), np.sin(angle)
    octant = (octant + 1) // 2 % 4
    a, b = np.where(is_odd, cosine, cosine), np.where(is_odd, -sine, sine)
    result = np.empty(np.shape(numerators), np.complex128)
    result.real = np.choose(octant, (a, -b, -a, b))
    result.imag = -np.choose(octant, (b, a, -b, -a))
    return result


def _twiddles(factors: Sequence[int]) -> Array:
    """The factors of passes, (length, radix - 1) numbers for each; for large ones behind cosines and sines."""
    parts, length = [np.empty(0, np.complex128)], 1
    for radix in factors:
        if radix > _MOST_ALONE:
            turns = np.arange(1, radix // 2 + 1)
            parts.append(roots(np.multiply.outer(turns, turns), radix).conj().reshape(-1))
        if length > 1 or radix > _MOST_ALONE:
            numerators = np.arange(length)[:, None] * np.arange(1, radix)
            parts.append(roots(numerators, length * radix).reshape(-1))
        length *= radix
    return np.concatenate(parts)


def _tables(factors: Sequence[int], dtype: Any, *arrays: Array | None) -> Tables:
    kept = tuple([np.ascontiguousarray(array, dtype) for array in arrays if array is not None])
    given = iter(kept)
    addresses = [0 if array is None else next(given).ctypes.data for array in arrays]
    return Tables(np.array(factors, np.int64), np.array(addresses, np.int64), kept)


def half_roots(n: int, lanes: int) -> Array:
    """exp(-2 pi i k / 2 n) for the first half of n, and a vector behind it."""
    return roots(np.arange(n // 2 + 1 + lanes), 2 * n)


def convolution(n: int, padded: int) -> tuple[Array, Array, Array]:
    """What a signal of ``n`` elements, the transform of the other side, and the result are multiplied by."""
    chirp = roots(np.arange(n) ** 2 % (2 * n), 2 * n)
    kernel = np.zeros(padded, np.complex128)
    kernel[:n] = chirp.conj()
    kernel[padded - n + 1 :] = chirp[:0:-1].conj()
    return chirp, np.fft.fft(kernel) / padded, chirp.conj()


def _lanes_tables(n: int, padded: int, is_complex: bool, lanes: int, dtype: Any) -> Tables:
    halves = None if is_complex else half_roots(n, lanes)
    factors = factors_of(padded)
    rest = convolution(n, padded) if padded > n else ()
    return _tables(factors, dtype, _twiddles(factors), halves, *rest)


def _long_tables(rows: int, columns: int, is_complex: bool, lanes: int, dtype: Any) -> Tables:
    n, groups = rows * columns, -(-columns // lanes)
    between = np.zeros((groups, rows, 2, lanes), dtype.char.lower())
    for group in range(groups):  # a part at a time, in little memory
        turned = roots(np.arange(rows)[:, None] * np.arange(group * lanes, (group + 1) * lanes), n)
        between[group, :, 0], between[group, :, 1] = turned.real, turned.imag
    padded = columns if is_smooth(columns) else convolution_length(columns)
    first, second = factors_of(rows), factors_of(padded)
    halves, steps = None if is_complex else half_roots(n, lanes), _twiddles(second)
    rest = (steps, None, *convolution(columns, padded)) if padded > columns else ()
    tables = _tables((*first, *second), dtype, _twiddles(first), halves, steps, None, *rest)
    tables.addresses[3] = between.ctypes.data
    return tables._replace(arrays=(*tables.arrays, between))


_kept: OrderedDict[Any, Tables] = OrderedDict()


def tables(make: Callable[..., Tables], *key: Any) -> Tables:
    """What ``make`` makes of the key, which is kept; those that were not used for longest are given up first."""
    known = _kept.get((make, *key))
    if known is None:
        known = _kept[make, *key] = make(*key)
        while len(_kept) > 1 and sum([array.nbytes for each in _kept.values() for array in each.arrays]) > _KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end((make, *key))
    return known


def lanes_tables(n: int, padded: int, is_complex: bool, lanes: int, dtype: Any) -> Tables:
    """Those of signals of ``n`` complex numbers, one in each lane: of passes, of halves and of the convolution."""
    return tables(_lanes_tables, n, padded, is_complex, lanes, dtype)


def long_tables(rows: int, columns: int, is_complex: bool, lanes: int, dtype: Any) -> Tables:
    """Those of long signals: of columns, of halves, of rows, and between columns and rows."""
    return tables(_long_tables, rows, columns, is_complex, lanes, dtype)
