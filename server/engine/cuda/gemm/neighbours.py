"""Algorithms of matrix products by neighbourhood: what cuBLASLt proposed for sizes near those that are wanted now.

To ask its heuristic costs a host twenty times as much as to launch a product. Neighbours agree in types, layouts,
epilogue and alignment, and their sizes differ by less than a half. An algorithm is taken over where cuBLASLt says that
it can compute the new sizes. Knows nothing of values or launches.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Final

from . import used_products
from .cublaslt import Algorithm, Problem, Product, Side

MOST_KEPT: Final = 1 << 13
"""So many neighbourhoods have an algorithm that is remembered; beyond that all are forgotten, and asked for again."""
_EXACT: Final = 8
"""Sizes up to this one are neighbours of themselves only."""
_ACCESS_BYTES: Final = 16
_KNOWN: dict[Hashable, Algorithm] = {}


class Algorithms:
    """Finds the algorithm of a product: a neighbour's where it ``borrows``, which ``borrowed`` counts; else its own."""

    __slots__ = ("_borrows", "borrowed")

    def __init__(self, borrows: bool) -> None:
        self._borrows = borrows
        self.borrowed = 0

    def first(self, device: int, product: Product, problem: Problem) -> Algorithm | None:
        """The algorithm to take; None if cuBLASLt cannot compute the product."""
        place = (device, neighbourhood(problem))
        known = _KNOWN.get(place) if self._borrows else None
        if known is not None:
            checked = product.checked(known)
            if checked is not None:
                self.borrowed += 1
                return checked
        proposed = product.algorithms(1)
        if not proposed:
            return None
        if place not in _KNOWN:
            used_products.note(device, problem, proposed[0])
        _remember(place, proposed[0])
        return proposed[0]


def remember(device: int, problem: Problem, algorithm: Algorithm) -> None:
    """Know an algorithm for the neighbours of a product, unless one was found meanwhile."""
    place = device, neighbourhood(problem)
    if place not in _KNOWN:
        _remember(place, algorithm)


def _remember(place: Hashable, algorithm: Algorithm) -> None:
    if len(_KNOWN) >= MOST_KEPT:
        _KNOWN.clear()
    _KNOWN[place] = algorithm


def neighbourhood(problem: Problem) -> Hashable:
    """What the product has in common with its neighbours."""
    a, b, c, d, transposes_a, transposes_b, batch, compute, epilogue, reductions, _, beta, bias_alignment = problem
    result = _traits(d)
    return (
        _traits(a), _traits(b), result if c is d else _traits(c), result, _rounded(d.rows), _rounded(d.columns),
        _rounded(a.rows if transposes_a else a.columns), _rounded(batch), transposes_a, transposes_b, compute,
        epilogue, reductions, beta != 0, bias_alignment,
    )  # fmt: skip


def _traits(side: Side) -> tuple[Hashable, ...]:
    """Type and alignments: of the first element, and of the columns."""
    return side.dtype, side.alignment, math.gcd(side.leading * side.dtype.itemsize, _ACCESS_BYTES)


def _rounded(size: int) -> int:
    """The size down to a power of two, or to one and a half times that."""
    if size <= _EXACT:
        return size
    shift = size.bit_length() - 2
    return size >> shift << shift
