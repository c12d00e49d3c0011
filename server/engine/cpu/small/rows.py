"""Softmax and losses of few rows in single precision."""

from __future__ import annotations

import math
from collections.abc import Callable

from server.engine.in_c.small import Loop
from server.engine.operators import Request
from telegrad_protocol import dtypes
from telegrad_protocol.layout import wrap_dim
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op, losses, reduce, softmax

from .layouts import argument, is_small, result
from .registering import small

_REDUCTIONS = ("none", "mean", "sum")
"""By the numbers that loops know them by."""


def _are_rows(*metas: Meta) -> bool:
    """Whether all are few elements in single precision, one behind the other."""
    return is_small(*metas) and all([meta.is_contiguous and meta.dtype is dtypes.float32 for meta in metas])


def _along(shape: tuple[int, ...], dim: int) -> list[int]:
    """How many groups of rows lie along a dimension, the elements of a row, and how many rows lie side by side."""
    if not shape:
        return [1, 1, 1]
    at = wrap_dim("softmax", dim, len(shape))
    return [math.prod(shape[:at]), shape[at], math.prod(shape[at + 1 :])]


def _rows(name: str, operands: int, place: int) -> Callable[[Request], Loop | None]:
    """Loops over rows of so many operands; the argument in a place is their dimension."""

    def factory(request: Request) -> Loop | None:
        given, out, dim = request.args[:operands], request.outs[0], request.args[place]
        if not _are_rows(*given, out) or not isinstance(dim, int):
            return None
        places = [argument(number, meta) for number, meta in enumerate(given)]
        return Loop(name, (*places, result(0, out)), _along(given[0].shape, dim))

    return factory


_TABLE: dict[str, tuple[Op, int, int]] = {
    "softmax_rows": (softmax.softmax, 1, 1),
    "log_softmax_rows": (softmax.log_softmax, 1, 1),
    "softmax_backward_rows": (softmax._softmax_backward_data, 2, 2),
    "log_softmax_backward_rows": (softmax._log_softmax_backward_data, 2, 2),
}
for _name, (_contract, _operands, _place) in _TABLE.items():
    small(_contract)(_rows(_name, _operands, _place))


@small(reduce.logsumexp)
def logsumexp(request: Request) -> Loop | None:
    """The logarithm of the sum of exponentials along one dimension."""
    input, out, dim = request.args[0], request.outs[0], request.args[1]
    dim = dim[0] if isinstance(dim, tuple) and len(dim) == 1 else dim
    if not _are_rows(input, out) or not isinstance(dim, int):
        return None
    return Loop("logsumexp_rows", (argument(0, input), result(0, out)), _along(input.shape, dim))


def _targets(scores: tuple[int, ...], target: Meta, reduction: str, ignored: int) -> list[int] | None:
    """What loops are told of a matrix of scores and a class for each row; None for anything else."""
    is_plain = target.dtype is dtypes.int64 and target.is_contiguous and is_small(target)
    if len(scores) != 2 or target.ndim != 1 or not is_plain or reduction not in _REDUCTIONS:
        return None
    return [*scores, _REDUCTIONS.index(reduction), ignored]


@small(losses._softmax_cross_entropy)
def cross_entropy(request: Request) -> Loop | None:
    """Losses, and the softmax of the scores."""
    input, target, reduction, ignored = request.args
    numbers = _targets(input.shape, target, reduction, ignored)
    if numbers is None or not _are_rows(input, *request.outs):
        return None
    places = argument(0, input), argument(1, target), result(0, request.outs[0]), result(1, request.outs[1])
    return Loop("cross_entropy_rows", places, numbers)


@small(losses._softmax_cross_entropy_backward)
def cross_entropy_backward(request: Request) -> Loop | None:
    """The gradient of the scores."""
    grad, _, probabilities, target, reduction, ignored = request.args
    numbers = _targets(probabilities.shape, target, reduction, ignored)
    if numbers is None or not _are_rows(grad, probabilities, request.outs[0]):
        return None
    places = argument(0, grad), argument(2, probabilities), argument(3, target), result(0, request.outs[0])
    return Loop("cross_entropy_backward_rows", places, numbers)


@small(losses._nll_loss_forward)
def nll_loss(request: Request) -> Loop | None:
    """Losses, and how many samples there are."""
    input, target, weight, reduction, ignored = request.args
    numbers = _targets(input.shape, target, reduction, ignored) if weight is None else None
    if numbers is None or not _are_rows(input, *request.outs):
        return None
    places = argument(0, input), argument(1, target), result(0, request.outs[0]), result(1, request.outs[1])
    return Loop("nll_rows", places, numbers)


@small(losses._nll_loss_backward)
def nll_loss_backward(request: Request) -> Loop | None:
    """The gradient of the logarithms of probabilities."""
    grad, target, weight, _, size, reduction, ignored = request.args
    numbers = _targets(tuple(size), target, reduction, ignored) if weight is None else None
    if numbers is None or not _are_rows(grad, request.outs[0]):
        return None
    places = argument(0, grad), argument(1, target), result(0, request.outs[0])
    return Loop("nll_backward_rows", places, numbers)
