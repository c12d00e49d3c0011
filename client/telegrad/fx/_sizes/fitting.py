"""Finds how an integer depends on sizes, given what it was at several of them.

Tried in turn: a sum of products of symbols; the floor of one over a divisor; one in which a symbol is divided first, as
in ``2 * (time // 2) * batch``; of one symbol also a square, and what is left over by a division.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from telegrad_protocol.errors import ProgramError
from telegrad_protocol.exported.sizes import Floor, Formula, Size, Term

Point = tuple[int, ...]
"""A size for each symbol."""
Factor = str | Floor
MAX_JOINT: Final = 4
"""An integer depends on at most so many symbols."""
_DIVISORS: Final = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 48)
_MOST_OVER: Final = 1 << 16
_FARTHEST: Final = 512
"""A floor's next steps are looked for so far from the example."""
_BENDS: Final = 4
"""So many sizes before or behind a step are looked at on either side, which is two steps."""


class Fit:
    """What is known of one integer: its ``values`` by point. ``value_at`` records at another point."""

    def __init__(
        self, names: Sequence[str], values: Mapping[Point, int], base: Point, moved: Sequence[Point],
        value_at: Callable[[Point], int],
    ) -> None:  # fmt: skip
        self._names, self._values, self._base, self._moved, self._value_at = names, values, base, moved, value_at
        self._depends = [i for i in range(len(names)) if len({value for _, value in self._alone(i)}) > 1]

    def size(self) -> Size | None:
        """Return the size that has these values; None where none is found."""
        if len(set(self._values.values())) == 1:
            return self._values[self._base]
        if not self._depends or len(self._depends) > MAX_JOINT:
            return None
        fitting = filter(self._has_all_values, self._candidates())
        return next((candidate for candidate in fitting if self._has_steps(candidate)), None)

    def _alone(self, index: int) -> list[tuple[int, int]]:
        """Return sizes of one symbol and values, where all others are those of the example."""
        rest = self._base[:index] + self._base[index + 1 :]
        return sorted(
            [(p[index], value) for p, value in self._values.items() if p[:index] + p[index + 1 :] == rest]
        )  # fmt: skip

    def _has_all_values(self, candidate: Formula) -> bool:
        names = self._names
        return all([candidate.value(dict(zip(names, p, strict=True))) == v for p, v in self._values.items()])

    def _has_steps(self, candidate: Formula) -> bool:
        """Whether the integer steps where a floor next does, on either side: the sizes known may lie between steps."""
        if candidate.over == 1 and not any([isinstance(factor, Floor) for term in candidate.sum for factor in term]):
            return True
        return all([self._has_step(candidate, index, sign) for index in self._depends for sign in (1, -1)])

    def _has_step(self, candidate: Formula, index: int, sign: int) -> bool:
        base = self._base[index]

        def at(size: int) -> Point:
            return (*self._base[:index], size, *self._base[index + 1 :])

        def told(size: int) -> int:
            return candidate.value(dict(zip(self._names, at(size), strict=True)))

        far = base + sign * _FARTHEST if sign > 0 else max(base - _FARTHEST, 1)
        bends = (size for size in range(base, far, sign) if told(size - 1) + told(size + 1) != 2 * told(size))
        near = {size for bend in itertools.islice(bends, _BENDS) for size in (bend - 1, bend, bend + 1)}
        return all([self._is(at(size), told(size)) for size in near])

    def _is(self, point: Point, told: int) -> bool:
        """Whether the integer is what is told; also where the program is not for that point."""
        try:
            return self._value_at(point) == told
        except ProgramError:
            return True

    def _candidates(self) -> Iterator[Formula]:
        whole: dict[int, Factor] = {i: self._names[i] for i in self._depends}
        yield from self._multilinear(whole)
        if len(self._depends) == 1:
            yield from self._square(self._depends[0])
        divided = [[self._names[i], *self._divided(i)] for i in self._depends]
        for chosen in itertools.islice(itertools.product(*divided), 1, 4096):
            yield from self._multilinear(dict(zip(self._depends, chosen, strict=True)))
        if len(self._depends) == 1:
            yield from self._left_over(self._depends[0])

    def _multilinear(self, factors: Mapping[int, Factor]) -> Iterator[Formula]:
        """Yield the sum of products of these factors that has the values at the corners around the example."""
        slopes: dict[tuple[int, ...], Fraction] = {}
        steps = {i: (_at(f, self._base[i]), _at(f, self._moved[i][i])) for i, f in factors.items()}
        if any([before == after for before, after in steps.values()]):
            return
        for subset in _subsets(self._depends):
            total = Fraction(0)
            for corner in _subsets(subset):
                point = tuple([self._moved[i][i] if i in corner else size for i, size in enumerate(self._base)])
                total += (-1) ** (len(subset) - len(corner)) * self._value_at(point)
            slopes[subset] = total / math.prod([steps[i][1] - steps[i][0] for i in subset])
        terms: dict[tuple[int, ...], Fraction] = dict.fromkeys(slopes, Fraction(0))
        for subset, slope in slopes.items():  # slope * product of (factor - its first value), multiplied out
            for kept in _subsets(subset):
                terms[kept] += slope * math.prod([-steps[i][0] for i in subset if i not in kept])
        yield from _formulas(terms, factors)

    def _divided(self, index: int) -> list[Factor]:
        """Return the quotients of a symbol of which the integer is a multiple and a constant, all others unchanged."""
        known = self._alone(index)
        return [
            Floor(self._names[index], over, plus)
            for over in _DIVISORS
            for plus in range(over)
            if _is_linear([((size + plus) // over, value) for size, value in known])
        ]

    def _square(self, index: int) -> Iterator[Formula]:
        known = self._alone(index)
        if len(known) > 3:
            (a, fa), (b, fb), (c, fc) = known[:3]
            first, second = Fraction(fb - fa, b - a), Fraction(fc - fb, c - b)
            square = (second - first) / (c - a)
            linear = first - square * (a + b)
            name = self._names[index]
            terms = [((name, name), square), ((name,), linear), ((), fa - linear * a - square * a * a)]
            yield from _sum_of(terms)

    def _left_over(self, index: int) -> Iterator[Formula]:
        """Yield multiples of a symbol and of a quotient of it, such as what fills it up to a multiple of 8."""
        known = self._alone(index)
        for over in _DIVISORS:
            for plus in range(over):
                solved = _solved([(size, (size + plus) // over, value) for size, value in known])
                if solved is not None:
                    name = self._names[index]
                    factors: list[tuple[Factor, ...]] = [(name,), (Floor(name, over, plus),), ()]
                    yield from _sum_of(list(zip(factors, solved, strict=True)))


def _at(factor: Factor, size: int) -> int:
    return (size + factor.plus) // factor.over if isinstance(factor, Floor) else size


def _subsets(items: Sequence[int]) -> list[tuple[int, ...]]:
    return [s for n in range(len(items) + 1) for s in itertools.combinations(items, n)]


def _formulas(terms: Mapping[tuple[int, ...], Fraction], factors: Mapping[int, Factor]) -> Iterator[Formula]:
    over = math.lcm(*[number.denominator for subset, number in terms.items() if subset])
    if over > _MOST_OVER:
        return
    whole: list[Term] = [
        (int(number * over), *[factors[i] for i in subset]) for subset, number in terms.items() if subset and number
    ]
    constant = math.floor(terms[()] * over)
    for offset in [constant] if over == 1 else range(constant - over, constant + over + 1):
        last: list[Term] = [(offset,)] if offset else []
        yield Formula((*whole, *last), over)


def _sum_of(terms: Sequence[tuple[tuple[Factor, ...], Fraction]]) -> Iterator[Formula]:
    """Yield the sum of products, where all their numbers are integers."""
    if all([number.denominator == 1 for _, number in terms]):
        yield Formula(tuple([(int(number), *factors) for factors, number in terms if number]))


def _is_linear(known: Sequence[tuple[int, int]]) -> bool:
    (x, fx), (y, fy) = known[0], known[-1]
    return x != y and all([(f - fx) * (y - x) == (fy - fx) * (u - x) for u, f in known])


def _solved(known: Sequence[tuple[int, int, int]]) -> tuple[Fraction, Fraction, Fraction] | None:
    """Return the numbers with which two columns and a constant add up to the third; None if there are none."""
    (a, u, f), rest = known[0], known[1:]
    for first, second in itertools.combinations(rest, 2):
        (b, v, g), (c, w, h) = first, second
        determinant = (b - a) * (w - u) - (c - a) * (v - u)
        if determinant:
            alpha = Fraction((g - f) * (w - u) - (h - f) * (v - u), determinant)
            beta = Fraction((b - a) * (h - f) - (c - a) * (g - f), determinant)
            return alpha, beta, f - alpha * a - beta * u
    return None
