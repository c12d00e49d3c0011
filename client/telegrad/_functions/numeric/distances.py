"""Distances between vectors, and vectors shortened to a length: ``cdist``, ``pdist`` and ``renorm``."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import wrap_dim

from ..cast_as_one import cast_as_one
from ..gradients import with_zero_derivative
from ..into import into

_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
_MOST_ROWS = 25
"""With more rows, Euclidean distances are computed from a product of matrices unless the program says otherwise."""


@cast_as_one
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = _MODES[0]) -> Tensor:
    """Return the distances, in the norm of order ``p``, of all rows: (..., n, d) and (..., m, d) -> (..., n, m)."""
    mode = _MODES[0] if compute_mode is None else compute_mode
    if mode not in _MODES:
        raise ArgumentError(f"cdist: compute_mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist: {x1._meta} and {x2._meta} are not lines of vectors of one length")
    if not (x1.is_floating_point() and x2.is_floating_point()):
        raise DTypeError(f"cdist: expected floating-point elements, not {x1._meta} and {x2._meta}")
    if not p >= 0:
        raise ArgumentError(f"cdist: p must not be negative, got {p}")
    is_long = max(x1.shape[-2], x2.shape[-2]) > _MOST_ROWS
    if p == 2 and (mode == _MODES[1] or (mode == _MODES[0] and is_long)):
        return _by_product(x1, x2)
    x1, x2 = with_zero_derivative(x1), with_zero_derivative(x2)
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _norm(difference: Tensor, p: float) -> Tensor:
    if not difference.shape[-1]:
        return difference.sum(-1)
    return function("linalg_vector_norm")(difference, float(p), [-1])  # type: ignore[no-any-return]


def _by_product(x1: Tensor, x2: Tensor) -> Tensor:
    """Return Euclidean distances from the squares and products of the vectors."""
    squares = (x1 * x1).sum(-1, True) + (x2 * x2).sum(-1).unsqueeze(-2)
    squared = (squares - 2 * x1.matmul(x2.transpose(-2, -1))).clamp(min=0)
    is_zero = squared == 0  # at which the root has no derivative
    return squared.masked_fill(is_zero, 1).sqrt().masked_fill(is_zero, 0)


@cast_as_one
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Return the distances between the rows of a matrix, of each pair once, in the norm of order ``p``."""
    if input.ndim != 2:
        raise ShapeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not p >= 0:
        raise ArgumentError(f"pdist only supports non-negative p values, got {p}")
    count = input.shape[0]
    pairs = function("ones")(count, count, device=input.device).triu(1).nonzero()
    first, second = pairs.unbind(1)
    input = with_zero_derivative(input)
    return _norm(input.index_select(0, first) - input.index_select(0, second), p)


@cast_as_one
def renorm(input: Tensor, p: float, dim: int, maxnorm: float, *, out: Tensor | None = None) -> Tensor:
    """Shorten the parts along ``dim`` whose norm of order ``p`` exceeds ``maxnorm`` to that norm."""
    return into("renorm", input * _factors("renorm", input, p, dim, maxnorm), out)  # type: ignore[no-any-return]


def renorm_(self: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Shorten the parts along ``dim`` whose norm of order ``p`` exceeds ``maxnorm``, in place."""
    return self.mul_(_factors("renorm_", self, p, dim, maxnorm))


def _factors(name: str, input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    if input.ndim < 2:
        raise ShapeError(f"{name}: input needs at least 2 dimensions, got {input.ndim} dimensions in {input._meta}")
    if not p > 0 or maxnorm < 0:
        raise ArgumentError(f"{name}: p must be positive and maxnorm not negative, got {p} and {maxnorm}")
    at = wrap_dim(name, dim, input.ndim)
    others = [d for d in range(input.ndim) if d != at]
    wide = input.float() if input.dtype.itemsize == 2 else input
    length = function("linalg_vector_norm")(wide, float(p), others, True)
    return function("where")(length > maxnorm, maxnorm / (length + 1e-7), 1.0).to(input.dtype)  # type: ignore[no-any-return]


METHODS: dict[str, Any] = {"renorm": renorm, "renorm_": renorm_}
