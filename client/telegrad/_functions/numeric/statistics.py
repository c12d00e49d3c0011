"""Covariances, correlations and histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad import return_types
from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import float64, int64
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.memory_format import contiguous_format

from ..into import into


def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Return the covariances of variables, one in each row of (variables, observations).

    ``fweights`` says how often each observation was made, ``aweights`` how much it counts; ``correction`` is subtracted
    from the number of observations.
    """
    if input.ndim > 2:
        raise ShapeError(f"cov: expected input to have two or fewer dimensions, not {input._meta}")
    if input.dtype.category == 0:
        raise DTypeError("cov: bool elements have no covariance; convert them")
    rows = input if input.ndim == 2 else input.reshape(1, -1)
    weights = _weights(rows, fweights, aweights)
    if weights is None:
        count = rows.shape[1]
        mean = rows.sum(1) / count
        norm: Any = max(count - correction, 0)
    else:
        total = weights.sum()
        mean = (rows * weights).sum(1) / total
        share = 1 if aweights is None or not correction else (weights * aweights).sum() / total
        norm = (total - correction * share).clamp(min=0)
    centred = rows - mean.unsqueeze(1)
    weighted = centred if weights is None else centred * weights
    product = function("mm")(weighted, centred.t().conj())
    return (product / norm).squeeze()  # type: ignore[no-any-return]


def _weights(rows: Tensor, fweights: Tensor | None, aweights: Tensor | None) -> Tensor | None:
    for name, weights, category in (("fweights", fweights, 1), ("aweights", aweights, 2)):
        if weights is None:
            continue
        if weights.ndim > 1:
            raise ShapeError(f"cov: expected {name} to have one or fewer dimensions, got {weights._meta}")
        if weights.dtype.category != category:
            kind = "integral" if category == 1 else "floating point"
            raise DTypeError(f"cov: expected {name} to have {kind} dtype, got {weights._meta}")
        if weights.numel() != rows.shape[1]:
            raise ShapeError(
                f"cov: expected {name} to have the same numel as there are observations in the input, got "
                f"{weights.numel()} != {rows.shape[1]}"
            )
        if bool((weights < 0).any()):
            raise ArgumentError(f"cov: {name} cannot be negative")
    if fweights is None or aweights is None:
        return aweights if fweights is None else fweights
    return fweights * aweights


def corrcoef(input: Tensor) -> Tensor:
    """Return the correlation coefficients of variables, one in each row of (variables, observations)."""
    if input.ndim > 2:
        raise ShapeError(f"corrcoef: expected at most two dimensions, not {input._meta}")
    covariances = cov(input)
    if covariances.ndim == 0:
        return covariances / covariances
    deviation = covariances.diagonal().real.sqrt() if covariances.is_complex() else covariances.diagonal().sqrt()
    ratio = covariances / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if not ratio.is_complex():
        return ratio.clamp(-1, 1)
    return function("complex")(ratio.real.clamp(-1, 1), ratio.imag.clamp(-1, 1))  # type: ignore[no-any-return]


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None) -> Tensor:
    """Return how many elements lie in each of ``bins`` intervals of one length from ``min`` to ``max``.

    The last interval includes its end; if both ends are the same, the extremes of the elements are taken.
    """
    if bins <= 0:
        raise ArgumentError(f"histc: bins must be positive, not {bins}")
    if not (min - min == 0 and max - max == 0):
        raise ArgumentError(f"histc: the range from {min} to {max} is not finite")
    if min > max:
        raise ArgumentError(f"histc: min {min} must not be larger than max {max}")
    if input.dtype.category not in (1, 2):
        raise DTypeError(f"histc: not defined for {input.dtype.name}")
    flat = input.detach().reshape(-1)
    wide = flat.to(float64) if flat.dtype.itemsize > 4 or flat.dtype.category == 1 else flat.float()
    lowest, highest = _bounds(wide, min, max)
    position = ((wide - lowest) / (highest - lowest) * bins).floor().clamp(0, bins - 1)
    inside = (wide >= lowest) & (wide <= highest)
    counts = _count(position.where(inside, 0).to(int64), bins, inside.to(float64))
    return into("histc", counts.to(input.dtype), out)  # type: ignore[no-any-return]


def _bounds(values: Tensor, low: float, high: float) -> tuple[Any, Any]:
    """Return both ends of a histogram's range; the extremes of the elements if both are the same."""
    if low != high or not values.numel():
        return (low, high) if low != high else (low - 1, high + 1)
    lowest, highest = values.min(), values.max()
    is_point = lowest == highest
    if not bool((highest - lowest).isfinite()):
        raise ArgumentError(f"histc: the range from {lowest.item()} to {highest.item()} is not finite")
    return (lowest - 1).where(is_point, lowest), (highest + 1).where(is_point, highest)


def _count(positions: Tensor, bins: int, weights: Tensor) -> Tensor:
    zeros = weights.new_zeros(bins)
    return zeros.scatter_add(0, positions, weights)


def histogram(
    input: Tensor, bins: int | Tensor = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False, out: Any = None,
) -> Any:  # fmt: skip
    """Return the sum of weights, by default the number, of elements in each bin, and the edges of the bins.

    ``bins`` is the number of bins of one width or the ascending edges; with ``density`` the sums are divided by the
    total and by the width of the bin.
    """
    edges = bins if isinstance(bins, Tensor) else None
    if edges is not None and (range is not None or edges.ndim != 1 or edges.dtype is not input.dtype):
        raise ArgumentError("histogram: edges must be one line in the type of the elements, and need no range")
    values = input.reshape(-1, 1)
    weights = None if weight is None else _same_size("histogram", weight, input).reshape(-1)
    hist, (line,) = _histogram("histogram", values, [bins], range, weights, density)
    results = return_types.TYPES["histogram"](hist, line)
    return results if out is None else return_types.TYPES["histogram"](*into("histogram", results, out))


def histogramdd(
    input: Tensor, bins: Any, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> Any:  # fmt: skip
    """Return the histogram of points, the rows of the last dimension, and the edges of the bins of each coordinate."""
    if input.ndim < 2:
        raise ShapeError(f"histogramdd: expected points in at least two dimensions, not {input._meta}")
    width = input.shape[-1]
    listed = [bins] * width if isinstance(bins, int) else list(bins)
    if len(listed) != width:
        raise ArgumentError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input, got "
            f"{len(listed)} and {width}"
        )
    if weight is not None and list(weight.shape) != list(input.shape[:-1]):
        raise ShapeError(f"histogramdd: {weight._meta} does not have one weight for each point of {input._meta}")
    weights = None if weight is None else weight.reshape(-1)
    hist, edges = _histogram("histogramdd", input.reshape(-1, width), listed, range, weights, density)
    return return_types.TYPES["histogramdd"](hist, tuple(edges))


def _same_size(name: str, weight: Tensor, input: Tensor) -> Tensor:
    if weight.shape != input.shape:
        raise ShapeError(f"{name}: weight {weight._meta} must have the shape of {input._meta}")
    return weight


def _histogram(
    name: str, points: Tensor, bins: list[Any], limits: Sequence[float] | None, weight: Tensor | None, density: bool
) -> tuple[Tensor, list[Tensor]]:
    if not points.is_floating_point():
        raise DTypeError(f"{name}: expected floating-point elements, not {points._meta}")
    columns = points.detach().unbind(1)
    edges = [
        _edges(name, column, count, limits, at) for at, (column, count) in enumerate(zip(columns, bins, strict=True))
    ]
    sizes = [len(line) - 1 for line in edges]
    total, inside = points.new_zeros(points.shape[0], dtype=int64), None
    for column, line, size in zip(columns, edges, sizes, strict=True):
        place = function("searchsorted")(line, column.contiguous(), right=True) - 1
        place = (size - 1 + 0 * place).where(column == line[-1], place)
        within = (place >= 0) & (place < size)
        inside = within if inside is None else inside & within
        total = total * size + place.clamp(0, max(size - 1, 0))
    chosen = inside.to(points.dtype) if weight is None else weight.where(inside, 0)  # type: ignore[union-attr, arg-type]
    hist = _count(total, math.prod(sizes), chosen).reshape(sizes)
    return (_density(hist, edges) if density else hist), edges


def _edges(name: str, column: Tensor, bins: Any, limits: Sequence[float] | None, at: int) -> Tensor:
    if isinstance(bins, Tensor):
        return bins.detach().clone(memory_format=contiguous_format)
    if bins <= 0:
        raise ArgumentError(f"{name}: the number of bins must be positive, not {bins}")
    if limits is not None:
        low, high = limits[2 * at], limits[2 * at + 1]
    else:
        low, high = (column.min().item(), column.max().item()) if column.numel() else (0.0, 1.0)
    if not (low - low == 0 and high - high == 0) or low > high:
        raise ArgumentError(f"{name}: the range from {low} to {high} is not finite and ascending")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return function("linspace")(low, high, bins + 1, dtype=column.dtype, device=column.device)  # type: ignore[no-any-return]


def _density(hist: Tensor, edges: list[Tensor]) -> Tensor:
    result = hist / hist.sum()
    for at, line in enumerate(edges):
        widths = (line[1:] - line[:-1]).reshape([-1 if d == at else 1 for d in range(len(edges))])
        result = result / widths
    return result


METHODS: dict[str, Any] = {"cov": cov, "corrcoef": corrcoef, "histc": histc, "histogram": histogram}
