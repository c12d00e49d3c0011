"""The sizes of a program's symbols, as the shapes of its inputs tell them."""

from __future__ import annotations

from collections.abc import Mapping

from telegrad_protocol.errors import ShapeError

from .description import Input, ProgramDescription
from .sizes import Formula, Size, constant_of


def sizes_of(program: ProgramDescription, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the size of each symbol, given the shapes of all inputs by name.

    Raises ShapeError for shapes that the program does not take, which names the input and the dimension.
    """
    sizes: dict[str, int] = {}
    for tensor in program.inputs:
        shape = shapes[tensor.name]
        if len(shape) != len(tensor.shape):
            raise ShapeError(f"input {tensor.name!r}: expected {tensor}, got the shape {list(shape)}")
        for wanted, given in zip(tensor.shape, shape, strict=True):
            _solve(wanted, given, sizes)
    for tensor in program.inputs:
        _compare(tensor, shapes[tensor.name], sizes)
    for symbol in program.symbols:
        size = sizes[symbol.name]
        if size < symbol.min or (symbol.max is not None and size > symbol.max):
            most = "" if symbol.max is None else f" to {symbol.max}"
            raise ShapeError(f"the size {symbol.name} is {size}; the program takes sizes from {symbol.min}{most}")
    return sizes


def _solve(wanted: Size, given: int, sizes: dict[str, int]) -> None:
    """Note the symbol that a dimension tells, if it is a multiple of one and a constant."""
    if not isinstance(wanted, Formula):
        return
    terms = [term for term in wanted.sum if len(term) > 1]
    if len(terms) == 1 and len(terms[0]) == 2 and isinstance(terms[0][1], str):
        number, name = terms[0][0], terms[0][1]
        rest = sum([constant_of(term[0]) for term in wanted.sum if len(term) == 1])
        sizes.setdefault(str(name), (given * wanted.over - rest) // (constant_of(number) or 1))


def _compare(tensor: Input, shape: tuple[int, ...], sizes: Mapping[str, int]) -> None:
    for dim, (wanted, given) in enumerate(zip(tensor.shape, shape, strict=True)):
        if isinstance(wanted, Formula):
            unknown = set(wanted.names()) - sizes.keys()
            if unknown or wanted.value(sizes) != given:
                known = "" if unknown else f" = {wanted.value(sizes)}"
                raise ShapeError(f"input {tensor.name!r}: dimension {dim} must be {wanted}{known}, not {given}")
        elif wanted != given:
            raise ShapeError(
                f"input {tensor.name!r}: dimension {dim} must be {wanted}, not {given}; the program takes {tensor}"
            )
