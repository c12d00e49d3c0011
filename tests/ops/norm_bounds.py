"""How far a layer normalization that is computed in floating point may be from the exact one, by its roundings.

Every operation rounds by at most ``u`` of its result. The error of the mean is one of the elements before their mean is
taken off, so that it is large for rows whose elements are nearly equal: they are divided by their small deviation.
Everything here is in float64, and a bound has the shape of what it bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

EPS = 1e-5
ROUNDING = {torch.float32: 2.0**-24, torch.float64: 2.0**-53, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
SMALLEST = {torch.float32: 2.0**-149, torch.float64: 0.0, torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134}


def _summing(count: int) -> float:
    """Return the roundings of a sum: a few, and those of its terms, whose signs are random."""
    return float(16 + 2 * count**0.5)


def layer_norm_bounds(
    x: torch.Tensor, grad: torch.Tensor, parameters: Sequence[torch.Tensor], dtype: torch.dtype
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return bounds of the result's error, and of those of the gradients of the input and of both parameters.

    ``x`` and ``grad`` are rows by elements. Half precision is computed in float32, and results are rounded.
    """
    u = ROUNDING[dtype if dtype is torch.float64 else torch.float32]
    sums, mean, rstd = u * _summing(x.shape[1]), x.mean(1, keepdim=True), (x.var(1, False, True) + EPS) ** -0.5
    normal = (x - mean) * rstd
    weight, bias = (p.double() for p in parameters) if parameters else (torch.ones(()).double(), torch.zeros(()))
    shift = sums * x.abs().mean(1, keepdim=True)
    stretch = sums + shift.square() * rstd.square()  # of the deviation, relatively
    of_normal = rstd * shift + normal.abs() * (stretch + 4 * u)
    result = of_normal * weight.abs() + 4 * u * ((normal * weight).abs() + bias.abs())

    scaled = grad * weight
    along, sizes = (scaled * normal).mean(1, keepdim=True), scaled.abs() + scaled.abs().mean(1, keepdim=True)
    of_along = (scaled.abs() * of_normal).mean(1, keepdim=True) + sums * (scaled * normal).abs().mean(1, keepdim=True)
    terms = sums * sizes + of_normal * along.abs() + normal.abs() * (of_along + sums * along.abs())
    exact = scaled - scaled.mean(1, keepdim=True) - normal * along
    gradients = [rstd * (terms + (stretch + 4 * u) * exact.abs())]
    if parameters:
        rows = u * _summing(x.shape[0])
        gradients += [(grad.abs() * (of_normal + rows * normal.abs())).sum(0), rows * grad.abs().sum(0)]
        exacts = [rstd * exact, (grad * normal).sum(0), grad.sum(0)]
    else:
        exacts = [rstd * exact]
    rounded = [bound + _rounded(value, bound, dtype) for bound, value in zip(gradients, exacts, strict=True)]
    return result + _rounded(normal * weight + bias, result, dtype), rounded


def _rounded(exact: torch.Tensor, bound: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return how far the rounding of a result to its type may be from it."""
    return ROUNDING[dtype] * (exact.abs() + bound) + SMALLEST[dtype]
