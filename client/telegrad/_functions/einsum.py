"""``einsum`` and ``tensordot``: sums of products by index letters, as transposes and batched matrix products.

Operands are contracted in pairs, in the order of ``contraction_order``. Each keeps its letters with it; ``...`` stands
for unnamed letters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_letters
from typing import Any, NamedTuple

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, ShapeError

from .cast_as_one import cast_as_one
from .contraction_order import contraction_order
from .into import into

_UNNAMED = "0123456789"


class _Term(NamedTuple):
    tensor: Tensor
    letters: str

    def sizes(self) -> dict[str, int]:
        return dict(zip(self.letters, self.tensor.shape, strict=True))


@cast_as_one
def einsum(*args: Any) -> Tensor:
    """Return the sum of products that an equation describes, such as ``einsum("bij,bjk->bik", x, y)``.

    Letters may be given as lists of numbers below 52 instead: ``einsum(x, [0, 1, 2], y, [0, 2, 3], [0, 1, 3])``.
    """
    if not args or not isinstance(args[0], (str, Tensor)):
        raise ArgumentTypeError("einsum: expected an equation and operands, or operands each with a list of numbers")
    equation, *given = args if isinstance(args[0], str) else _from_sublists(args)
    tensors = list(given[0]) if len(given) == 1 and isinstance(given[0], (list, tuple)) else list(given)
    inputs, output = _parse(equation.replace(" ", ""), tensors)
    operands = enumerate(zip(tensors, inputs, strict=True))
    terms = [_diagonal(number, _Term(tensor, letters)) for number, (tensor, letters) in operands]
    _check_sizes(terms)
    sizes = tuple(sorted({letter: size for term in terms for letter, size in sorted(term.sizes().items())}.items()))
    for first, second in contraction_order(tuple([term.letters for term in terms]), output, sizes):
        b, a = terms.pop(second), terms.pop(first)
        terms.append(_contract(a, b, set(output).union(*[term.letters for term in terms])))
    return _arrange(_sum_out(terms[0], set(output)), output)


def _from_sublists(args: Sequence[Any]) -> list[Any]:
    """Return the equation that lists of numbers after each operand stand for, and the operands."""
    pairs = args[:-1] if len(args) % 2 else args
    equation = ",".join(map(_letters, pairs[1::2]))
    return [f"{equation}->{_letters(args[-1])}" if len(args) % 2 else equation, *pairs[::2]]


def _letters(sublist: Any) -> str:
    if not isinstance(sublist, (list, tuple)):
        raise ArgumentTypeError(f"einsum: expected a list of numbers after each operand, not {type(sublist).__name__}")
    if not all(item is Ellipsis or (isinstance(item, int) and 0 <= item < len(ascii_letters)) for item in sublist):
        raise ArgumentError("einsum(): subscript in subscript list is not within the valid range [0, 52)")
    return "".join("..." if item is Ellipsis else ascii_letters[item] for item in sublist)


def _parse(equation: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    left, arrow, right = equation.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(tensors):
        amount = "fewer" if len(inputs) > len(tensors) else "more"
        raise ShapeError(f"einsum(): {amount} operands were provided than specified in the equation")
    _check_letters(equation, inputs, right)
    operands = enumerate(zip(inputs, tensors, strict=True))
    named = [_expand(number, letters, tensor) for number, (letters, tensor) in operands]
    unnamed = max((set(n) & set(_UNNAMED) for n in named), key=len)
    ellipsis = "".join(sorted(unnamed, reverse=True))
    if not arrow:
        joined = "".join(named)
        return named, ellipsis + "".join(sorted(c for c in set(joined) - unnamed if joined.count(c) == 1))
    output = right.replace("...", ellipsis)
    for letter in output:
        if output.count(letter) > 1:
            raise ShapeError(f"einsum(): output subscript {letter} appears more than once in the output")
        if not any(letter in letters for letters in named):
            raise ShapeError(
                f"einsum(): output subscript {letter} does not appear in the equation for any input operand"
            )
    return named, output


def _check_letters(equation: str, inputs: Sequence[str], output: str) -> None:
    """Refuse signs other than letters and one ``...`` for each operand."""
    for place, sign in enumerate(equation):
        if sign not in ascii_letters and sign not in ",.->":
            raise ShapeError(
                f"einsum(): invalid subscript given at index {place} in the equation string, subscripts must be in "
                "[a-zA-Z]"
            )
    for number, letters in enumerate(inputs):
        if letters.count("...") > 1:
            raise ShapeError(f"einsum(): found '.' for operand {number} for which an ellipsis was already found")
        if "." in letters.replace("...", ""):
            raise ShapeError(f"einsum(): found '.' for operand {number} that is not part of any ellipsis")
    if output.count("...") > 1:
        raise ShapeError("einsum(): found '.' for output but an ellipsis (...) was already found")
    if "." in output.replace("...", ""):
        raise ShapeError("einsum(): found '.' for output that is not part of any ellipsis (...)")


def _expand(number: int, letters: str, tensor: Tensor) -> str:
    """Return one letter per dimension of an operand; dimensions that ``...`` stands for get digits, the last one 0."""
    count = len(letters.replace("...", ""))
    surplus = tensor.ndim - count
    if "..." in letters and surplus < 0:
        raise ShapeError(
            f"einsum(): the number of subscripts in the equation ({count}) is more than the number of dimensions "
            f"({tensor.ndim}) for operand {number}"
        )
    if "..." not in letters and surplus:
        raise ShapeError(
            f"einsum(): the number of subscripts in the equation ({count}) does not match the number of dimensions "
            f"({tensor.ndim}) for operand {number} and no ellipsis was given"
        )
    return letters.replace("...", _UNNAMED[:surplus][::-1])


def _diagonal(number: int, term: _Term) -> _Term:
    """Return the term without repeated letters: dimensions of the same letter become their diagonal."""
    tensor, letters = term
    for letter in sorted(set(letters)):
        while letters.count(letter) > 1:
            first, second = letters.index(letter), letters.rindex(letter)
            sizes = tensor.shape[second], tensor.shape[first]
            if sizes[0] != sizes[1]:
                raise ShapeError(
                    f"einsum(): subscript {letter} is repeated for operand {number} but the sizes don't match, "
                    f"{sizes[0]} != {sizes[1]}"
                )
            tensor = tensor.diagonal(0, first, second)
            letters = "".join(c for at, c in enumerate(letters) if at not in (first, second)) + letter
    return _Term(tensor, letters)


def _check_sizes(terms: Sequence[_Term]) -> None:
    known: dict[str, int] = {}
    for number, term in enumerate(terms):
        for letter, size in term.sizes().items():
            if known.setdefault(letter, size) not in (size, 1) and size != 1:
                raise ShapeError(
                    f"einsum(): subscript {letter} has size {size} for operand {number} which does not broadcast with "
                    f"previously seen size {known[letter]}"
                )
            known[letter] = max(known[letter], size)


def _sum_out(term: _Term, needed: set[str]) -> _Term:
    gone = tuple(at for at, letter in enumerate(term.letters) if letter not in needed)
    if not gone:
        return term
    return _Term(term.tensor.sum(gone), "".join(c for c in term.letters if c in needed))


def _contract(a: _Term, b: _Term, needed: set[str]) -> _Term:
    """Return the product of two terms, summed over the letters that are not ``needed``."""
    a, b = _sum_out(a, needed | set(b.letters)), _sum_out(b, needed | set(a.letters))
    shared = [c for c in a.letters if c in b.letters]
    if any(a.sizes()[c] != b.sizes()[c] for c in shared):
        return _multiply(a, b, needed)
    batch = "".join(c for c in shared if c in needed)
    summed = "".join(c for c in shared if c not in needed)
    if not summed:
        return _multiply(a, b, needed)
    rows = "".join(c for c in a.letters if c not in shared)
    columns = "".join(c for c in b.letters if c not in shared)
    left = _grouped(a, batch, rows, summed)
    right = _grouped(b, batch, summed, columns)
    sizes = a.sizes() | b.sizes()
    letters = batch + rows + columns
    if not letters:
        return _Term(function("dot")(left.reshape(-1), right.reshape(-1)), "")
    product = left.bmm(right) if batch else function("mm")(left.select(0, 0), right.select(0, 0))
    return _Term(product.reshape([sizes[c] for c in letters]), letters)


def _grouped(term: _Term, *groups: str) -> Tensor:
    """Return the term's tensor with one dimension per group of letters, in this order."""
    sizes = term.sizes()
    shape = [math.prod(sizes[c] for c in group) for group in groups]
    return _arrange(term, "".join(groups)).reshape(shape)


def _multiply(a: _Term, b: _Term, needed: set[str]) -> _Term:
    """Return the product of two terms by broadcasting: for letters that are not summed, or of size 1 in one of them."""
    letters = a.letters + "".join(c for c in b.letters if c not in a.letters)
    return _sum_out(_Term(function("mul")(_spread(a, letters), _spread(b, letters)), letters), needed)


def _spread(term: _Term, letters: str) -> Tensor:
    arranged = _arrange(term, "".join(c for c in letters if c in term.letters))
    sizes = term.sizes()
    return arranged.reshape([sizes.get(c, 1) for c in letters])


def _arrange(term: _Term, letters: str) -> Tensor:
    order = [term.letters.index(c) for c in letters]
    return term.tensor if order == sorted(order) else term.tensor.permute(order)


def _summed_where_single(a: Tensor, ours: Sequence[int], b: Tensor, theirs: Sequence[int]) -> Tensor:
    """Return ``a`` summed over its dimensions that are paired with dimensions of size 1 of ``b``."""
    pairs = zip(ours, theirs, strict=False)
    repeated = [i for i, j in pairs if b.shape[j] == 1 and a.shape[i] != 1]
    return a.sum(repeated, keepdim=True, dtype=a.dtype) if repeated else a


@cast_as_one
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    """Return the sum of products over the last ``dims`` dimensions of ``a`` and the first of ``b``.

    ``dims`` may also be two lists: dimensions of ``a`` and those of ``b`` that they are paired with.
    """
    if isinstance(dims, int):
        dims = range(a.ndim - dims, a.ndim), range(dims)
    ours, theirs = ([d % max(t.ndim, 1) for d in listed] for t, listed in zip((a, b), dims, strict=True))
    a, b = _summed_where_single(a, ours, b, theirs), _summed_where_single(b, theirs, a, ours)
    if len(ours) != len(theirs) or any(a.shape[i] != b.shape[j] for i, j in zip(ours, theirs, strict=True)):
        raise ShapeError(f"tensordot: dimensions {ours} of {a._meta} and {theirs} of {b._meta} do not match")
    rows, columns = [d for d in range(a.ndim) if d not in ours], [d for d in range(b.ndim) if d not in theirs]
    inner = math.prod(a.shape[d] for d in ours)
    left = a.permute([*rows, *ours]).reshape(math.prod(a.shape[d] for d in rows), inner)
    right = b.permute([*theirs, *columns]).reshape(inner, math.prod(b.shape[d] for d in columns))
    product = function("mm")(left, right)
    result = product.reshape([*(a.shape[d] for d in rows), *(b.shape[d] for d in columns)])
    return into("tensordot", result, out)  # type: ignore[no-any-return]
