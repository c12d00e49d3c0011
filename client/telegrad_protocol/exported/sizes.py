"""Integers in a program that depend on the sizes of its inputs: sums of products of symbols, over a divisor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from telegrad_protocol.errors import ProgramError

MAX_TERMS = 64
MAX_FACTORS = 8
LARGEST = 2**62
"""Beyond this no size, stride or offset makes sense."""


class Floor(Struct, frozen=True, forbid_unknown_fields=True):
    """``(name + plus)//over``, as a factor of a term."""

    name: Annotated[str, Meta(min_length=1, max_length=512)]
    over: Annotated[int, Meta(ge=2, le=1 << 16)]
    plus: Annotated[int, Meta(ge=0, le=1 << 16)] = 0

    def __str__(self) -> str:
        return f"(({self.name} + {self.plus})//{self.over})" if self.plus else f"({self.name}//{self.over})"


Term: TypeAlias = Annotated[tuple[int | str | Floor, ...], Meta(min_length=1, max_length=MAX_FACTORS)]


class Formula(Struct, frozen=True, forbid_unknown_fields=True):
    """The floor of a sum of terms over a divisor; a term is an integer and the symbols, or floors, that it multiplies.

    ``Formula(((4, "batch", "length"), (1,)), 2)`` is ``(4*batch*length + 1)//2``.
    """

    sum: Annotated[tuple[Term, ...], Meta(max_length=MAX_TERMS)]
    over: Annotated[int, Meta(ge=1, le=1 << 32)] = 1

    def value(self, sizes: Mapping[str, int]) -> int:
        """Return the integer for these sizes of the symbols; ProgramError where it is beyond all sizes."""
        result = sum([_product(term, sizes) for term in self.sum]) // self.over
        if abs(result) > LARGEST:
            raise ProgramError(f"the size {self} is {result}, which is beyond what any memory holds")
        return result

    def names(self) -> Iterator[str]:
        """Yield the symbols that occur, some of them more than once."""
        for _, *factors in self.sum:
            for factor in factors:
                yield factor.name if isinstance(factor, Floor) else str(factor)

    def check(self) -> Formula:
        """Return this, if its terms are integers followed by names; ProgramError otherwise."""
        for number, *factors in self.sum:
            if type(number) is not int or abs(number) > LARGEST or any([type(factor) is int for factor in factors]):
                raise ProgramError(f"a size of the program has the malformed term {[number, *factors]}")
        return self

    def __str__(self) -> str:
        terms = [_shown(term) for term in self.sum] or ["0"]
        text = " + ".join(terms).replace("+ -", "- ")
        return text if self.over == 1 else f"({text})//{self.over}" if len(terms) > 1 else f"{text}//{self.over}"


def _product(term: Term, sizes: Mapping[str, int]) -> int:
    number, *factors = term
    result = constant_of(number)
    for factor in factors:
        result *= _factor(factor, sizes)
    return result


def constant_of(number: int | str | Floor) -> int:
    """Return the integer that a term begins with."""
    if isinstance(number, int):
        return number
    raise ProgramError(f"a term of a size must begin with an integer, not {number}")


def _factor(factor: int | str | Floor, sizes: Mapping[str, int]) -> int:
    if isinstance(factor, Floor):
        return (sizes[factor.name] + factor.plus) // factor.over
    return sizes[str(factor)]


def _shown(term: Term) -> str:
    number, *factors = term
    text = "*".join(map(str, factors))
    if not factors:
        return str(number)
    return text if number == 1 else f"-{text}" if number == -1 else f"{number}*{text}"


Size: TypeAlias = int | Formula


def symbol(name: str) -> Formula:
    """Return the size that a symbol alone is."""
    return Formula(((1, name),))


def is_symbol(size: Size) -> bool:
    """Whether a size is a symbol alone."""
    if not isinstance(size, Formula) or size.over != 1 or len(size.sum) != 1:
        return False
    number, *factors = size.sum[0]
    return number == 1 and len(factors) == 1 and isinstance(factors[0], str)


def size_at(size: Size, sizes: Mapping[str, int]) -> int:
    """Return a size for these sizes of the symbols."""
    return size.value(sizes) if isinstance(size, Formula) else size


def shape_at(shape: tuple[Size, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape for these sizes of the symbols."""
    return tuple([size_at(size, sizes) for size in shape])
