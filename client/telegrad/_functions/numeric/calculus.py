"""Integrals and derivatives of sampled functions: ``trapezoid``, ``cumulative_trapezoid`` and ``gradient``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, ShapeError
from telegrad_protocol.layout import wrap_dim


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Return the integral of ``y`` along ``dim`` by the trapezoidal rule.

    The samples lie at ``x``, which has one dimension or broadcasts with ``y``, or else ``dx`` apart, by default 1.
    """
    return _areas("trapezoid", y, x, dx, dim).sum(dim)


def trapz(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Return the integral of ``y`` along ``dim`` by the trapezoidal rule, as ``trapezoid`` does."""
    return _areas("trapz", y, x, dx, dim).sum(dim)


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Return the integrals of ``y`` from the first sample to every later one, by the trapezoidal rule."""
    return _areas("cumulative_trapezoid", y, x, dx, dim).cumsum(dim)


def _areas(name: str, y: Tensor, x: Tensor | None, dx: Any, dim: int) -> Tensor:
    """Return the areas of the trapezoids between neighbours along ``dim``."""
    if x is not None and dx is not None:
        raise ArgumentError(f"{name}: give the positions x of the samples or their distance dx, not both")
    if isinstance(dx, (bool, complex)):
        raise ArgumentTypeError(f"{name}: dx must be a real number, not {dx!r}")
    at = wrap_dim(name, dim, y.ndim)
    if x is None:
        return _between(y, at) * (0.5 * (1 if dx is None else dx))
    if x.ndim == 1 and (y.ndim == 0 or x.shape[0] != y.shape[at]):
        raise ShapeError(f"{name}: {x._meta} does not have one position for each sample of {y._meta} along {dim}")
    x = x.reshape([-1 if d == at else 1 for d in range(y.ndim)]) if x.ndim == 1 else _aligned(x, y)
    return _steps(x, at + x.ndim - y.ndim) * _between(y, at) * 0.5


def _aligned(x: Tensor, y: Tensor) -> Tensor:
    return x.reshape([1] * (y.ndim - x.ndim) + list(x.shape)) if x.ndim < y.ndim else x


def _between(y: Tensor, at: int) -> Tensor:
    """Return the sums of neighbours along a dimension."""
    count = max(y.shape[at] - 1, 0)
    return y.narrow(at, min(1, y.shape[at]), count) + y.narrow(at, 0, count)


def _steps(x: Tensor, at: int) -> Tensor:
    """Return the differences of neighbours along a dimension."""
    count = max(x.shape[at] - 1, 0)
    return x.narrow(at, min(1, x.shape[at]), count) - x.narrow(at, 0, count)


def gradient(
    input: Tensor, *, spacing: Any = None, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """Return the derivatives of a sampled function along dimensions, all by default: central differences.

    ``spacing`` is the distance of samples, one for each dimension, or for each dimension a tensor of the positions.
    At the edges the differences are of order ``edge_order``, which is 1 or 2.
    """
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: torch.gradient only supports edge_order=1 and edge_order=2, got {edge_order}")
    dims = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    along = [wrap_dim("gradient", d, input.ndim) for d in dims]
    if len(set(along)) < len(along):
        twice = next(at for at in along if along.count(at) > 1)
        raise ArgumentError(f"gradient: dim {twice} appears multiple times in the list of dims {list(dims)}")
    spacings = _spacings(spacing, len(along))
    return tuple([_derivative(input, at, h, edge_order) for at, h in zip(along, spacings, strict=True)])


def _spacings(spacing: Any, count: int) -> list[Any]:
    if spacing is None or isinstance(spacing, (int, float, complex)):
        return [1 if spacing is None else spacing] * count
    listed = [spacing] if isinstance(spacing, Tensor) else list(spacing)
    if len(listed) != count:
        raise ArgumentError(
            "gradient: torch.gradient expected spacing to be unspecified, a scalar or a list of length equal to the "
            f"number of dimensions, got {len(listed)} for {count}"
        )
    return listed


def _derivative(y: Tensor, at: int, spacing: Any, edge_order: int) -> Tensor:
    length = y.shape[at]
    if length <= edge_order:
        raise ShapeError(
            f"gradient: torch.gradient expected each dimension size to be at least {edge_order + 1}, got "
            f"dimension {at} of {y._meta}"
        )
    if y.is_floating_point() and y.dtype.itemsize == 2:  # differences of close numbers, rounded once
        return _derivative(y.float(), at, spacing, edge_order).to(y.dtype)
    if not isinstance(spacing, Tensor):
        return _even(y, at, spacing, edge_order)
    if spacing.ndim != 1 or spacing.shape[0] != length:
        raise ShapeError(f"gradient: {spacing._meta} does not have one position for each of {length} samples")
    shape = [-1 if d == at else 1 for d in range(y.ndim)]
    return _uneven(y, at, _steps(spacing, 0).reshape(shape), edge_order)


def _even(y: Tensor, at: int, h: Any, edge_order: int) -> Tensor:
    length = y.shape[at]
    y0, y1, y2, y3 = (y.narrow(at, i, 1) for i in (0, 1, length - 2, length - 1))
    middle = (y.narrow(at, 2, length - 2) - y.narrow(at, 0, length - 2)) / (2 * h)
    if edge_order == 1:
        return _join([(y1 - y0) / h, middle, (y3 - y2) / h], at)
    third, before = y.narrow(at, 2, 1), y.narrow(at, length - 3, 1)
    return _join([(-1.5 * y0 + 2 * y1 - 0.5 * third) / h, middle, (1.5 * y3 - 2 * y2 + 0.5 * before) / h], at)


def _uneven(y: Tensor, at: int, steps: Tensor, edge_order: int) -> Tensor:
    """Return the derivative where neighbours lie ``steps`` apart."""
    length = y.shape[at]
    slopes = _steps(y, at) / steps
    left, right = steps.narrow(at, 0, length - 2), steps.narrow(at, 1, length - 2)
    before, after = slopes.narrow(at, 0, length - 2), slopes.narrow(at, 1, length - 2)
    middle = (right * before + left * after) / (left + right)
    first, last = slopes.narrow(at, 0, 1), slopes.narrow(at, length - 2, 1)
    if edge_order == 2:
        bend = (after - before) / (left + right)
        first = first - bend.narrow(at, 0, 1) * steps.narrow(at, 0, 1)
        last = last + bend.narrow(at, length - 3, 1) * steps.narrow(at, length - 2, 1)
    return _join([first, middle, last], at)


def _join(parts: list[Tensor], at: int) -> Tensor:
    return function("cat")(parts, at)  # type: ignore[no-any-return]
