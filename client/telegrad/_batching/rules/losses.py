"""Losses of classes: computed for all samples of the batch, and reduced for each element of it."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor

from ..case import Case, Operand, rule


@rule("cross_entropy", "nll_loss")
def _classes(case: Case) -> Any:
    x, target, weight = case.args[:3]
    is_old = case.named("size_average") is not None or case.named("reduce") is not None
    if is_old or (weight is not None and weight.is_batched):
        return NotImplemented
    reduction, ignored = case.named("reduction"), case.named("ignore_index")
    inputs, targets = [operand.front if x.ndim == 1 else operand.front.flatten(0, 1) for operand in (x, target)]
    weights = None if weight is None else weight.tensor
    smoothing = {} if case.name == "nll_loss" else {"label_smoothing": case.named("label_smoothing")}
    losses = function(case.name)(inputs, targets, weights, ignore_index=ignored, reduction="none", **smoothing)
    if reduction == "none":
        return losses if x.ndim == 1 else losses.unflatten(0, (case.size, -1))
    totals = losses.reshape(case.size, -1).sum(1)
    return totals if reduction == "sum" else totals / _counts(case, x, target, weights, ignored)


def _counts(case: Case, x: Operand, target: Operand, weights: Tensor | None, ignored: int) -> Any:
    """Return what the sum of losses of each element is divided by: the weight of what is not ignored."""
    if target.meta.dtype.is_floating_point:  # probabilities of classes
        count = 1
        for place, size in enumerate(x.shape):
            count *= size if x.ndim == 1 or place != 1 else 1
        return count if x.ndim > 1 else 1
    targets = target.front.reshape(case.size, -1)
    is_counted = function("ne")(targets, ignored)
    if weights is None:
        return is_counted.sum(1).to(x.meta.dtype)
    chosen = weights[function("where")(is_counted, targets, 0)]
    return function("where")(is_counted, chosen, 0).sum(1)
