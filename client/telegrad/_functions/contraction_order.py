"""The order in which the operands of ``einsum`` are multiplied: the one with the fewest products of numbers."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations
from typing import TypeAlias

Letters: TypeAlias = frozenset[str]
Steps: TypeAlias = tuple[tuple[int, int], ...]
_MOST_SEARCHED = 5
"""With more operands than so many, the cheapest pair is taken at each step; with fewer, all orders are compared."""


@lru_cache(maxsize=1024)
def contraction_order(operands: tuple[str, ...], output: str, sizes: tuple[tuple[str, int], ...]) -> Steps:
    """Return pairs of positions to contract, the smaller first; a result takes the place behind all that is left.

    ``operands`` and ``output`` are letters of dimensions, ``sizes`` has the size of each letter.
    """
    return _search([frozenset(letters) for letters in operands], frozenset(output), dict(sizes))[1]


def _search(terms: list[Letters], output: Letters, sizes: dict[str, int]) -> tuple[int, Steps]:
    """Return the least number of products, and the order that has it."""
    if len(terms) < 2:
        return 0, ()
    pairs = list(combinations(range(len(terms)), 2))
    costs = [math.prod([sizes[letter] for letter in terms[i] | terms[j]]) for i, j in pairs]
    if len(terms) == 2:
        return costs[0], ((0, 1),)
    chosen = zip(costs, pairs, strict=True) if len(terms) <= _MOST_SEARCHED else [min(zip(costs, pairs, strict=True))]
    best: tuple[int, Steps] | None = None
    for cost, (i, j) in chosen:
        if best is not None and cost >= best[0]:
            continue
        rest = [term for at, term in enumerate(terms) if at not in (i, j)]
        needed = output.union(*rest)
        total, steps = _search([*rest, (terms[i] | terms[j]) & needed], output, sizes)
        if best is None or cost + total < best[0]:
            best = cost + total, ((i, j), *steps)
    assert best is not None
    return best
