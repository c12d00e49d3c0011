"""Operations that put tensors together."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function

from ..case import Case, dim_of, rule


@rule("cat", "concat", "concatenate")
def _cat(case: Case) -> Any:
    tensors, dim = case.args
    ndim = max([operand.ndim for operand in tensors])
    kept = (
        [operand for operand in tensors if operand.ndim == ndim] if ndim > 1 else tensors
    )  # empty ones may be left out
    return function("cat")([operand.front for operand in kept], dim_of(dim, ndim))


@rule("stack")
def _stack(case: Case) -> Any:
    tensors, dim = case.args
    return function("stack")([operand.front for operand in tensors], dim_of(dim, tensors[0].ndim + 1))


@rule("hstack", "vstack", "dstack")
def _stacked_along(case: Case) -> Any:
    least = {"hstack": 1, "vstack": 2, "dstack": 3}[case.name]
    tensors = []
    for operand in case.args[0]:
        tensor = operand.front
        if operand.ndim < least:
            tensor = tensor.reshape(case.size, *_at_least(operand.shape, least))
        tensors.append(tensor)
    if case.name == "hstack":
        return function("cat")(tensors, 1 if tensors[0].ndim == 2 else 2)
    return function("cat")(tensors, 1 if case.name == "vstack" else 3)


def _at_least(shape: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Return the shape that ``atleast_1d`` and its kin give."""
    if not shape:
        return (1,) * ndim
    if len(shape) == 1 and ndim > 1:
        return (1, shape[0], 1)[:ndim]
    return (*shape, 1) if ndim == 3 else shape


@rule("select_scatter", "slice_scatter")
def _scattered(case: Case) -> Any:
    x, source, *rest = case.args
    place = [param.name for param in case.op.params].index("dim") - 2
    rest[place] = dim_of(rest[place], x.ndim)
    return case.call(x.front, source.front, *rest)


@rule("diagonal_scatter")
def _diagonal_scatter(case: Case) -> Any:
    x, source, offset, first, second = case.args
    return case.call(x.front, source.front, offset, dim_of(first, x.ndim), dim_of(second, x.ndim))
