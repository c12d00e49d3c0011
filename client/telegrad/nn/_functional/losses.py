"""Losses that are compositions of other operations, which ``nn.functional`` re-exports."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from telegrad._functions.cast_as_one import cast_as_one
from telegrad._functions.creation import tensor
from telegrad._functions.gradients import with_zero_derivative
from telegrad._ops.functions import function
from telegrad._session.catching.prompt_errors import check_where_caught
from telegrad._session.own_code import note
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import int64
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError

from .half_precision import computed_in_float32

Flag = bool | None
_FILLED = "Expected non-empty vector or matrix with optional 0-dim batch size"


def reduction_of(size_average: Flag, reduce: Flag, reduction: str) -> str:
    """Return the reduction that is meant, with PyTorch's former pair of flags taken into account."""
    if size_average is not None or reduce is not None:
        kind = "none" if reduce is False else "sum" if size_average is False else "mean"
        note(f"size_average and reduce args will be deprecated, please use reduction='{kind}' instead.")
        return kind
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentError(f"{reduction} is not a valid value for reduction")
    return reduction


def _reduced(loss: Any, size_average: Flag, reduce: Flag, reduction: str) -> Tensor:
    kind = reduction_of(size_average, reduce, reduction)
    return loss if kind == "none" else loss.mean() if kind == "mean" else loss.sum()  # type: ignore[no-any-return]


@cast_as_one
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: bool | None = None,
    eps: float = 1e-8, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The negative log-likelihood of counts; ``full`` adds Stirling's approximation of log(target!)."""
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return _reduced(loss, size_average, reduce, reduction)


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """The negative log-likelihood of normal distributions with means ``input`` and variances ``var``."""
    variance: Tensor = var if isinstance(var, Tensor) else function("ones_like")(input) * var
    if variance.shape != input.shape:
        if input.shape[:-1] == variance.shape:
            variance = variance.unsqueeze(-1)
        elif any(a != b and b != 1 for a, b in zip(input.shape, variance.shape, strict=False)):
            raise ArgumentError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentError(f"{reduction} is not valid")
    if not isinstance(var, Tensor):
        _check_variance(var < 0)
    elif var.device.type != "meta":
        check_where_caught(lambda: _check_variance(bool((var.detach() < 0).any())))
    least = variance.detach().clamp(min=eps)
    clamped = variance + (least - variance.detach())
    loss = 0.5 * (clamped.log() + (input - target) ** 2 / clamped)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, None, None, reduction)


def _check_variance(is_negative: bool) -> None:
    if is_negative:
        raise ArgumentError("gaussian_nll_loss: var has negative entry/entries")


@cast_as_one
@computed_in_float32
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """input where target is 1, max(0, margin - input) where it is -1"""
    near = function("where")(target == 1, input, 0)
    far = function("where")(target == -1, (margin - input).clamp(min=0), 0)
    rest = function("where")((target == 1) | (target == -1), 0, input + (margin - input).clamp(min=0))
    return _reduced(near + far + rest, size_average, reduce, reduction)


@cast_as_one
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, -target * (input1 - input2) + margin)"""
    if not input1.ndim == input2.ndim == target.ndim:
        raise ShapeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return _reduced((-target * (input1 - input2) + float(margin)).clamp(min=0), size_average, reduce, reduction)


@cast_as_one
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """log(1 + exp(-target * input))"""
    margin = -target * input
    return _reduced(function("logaddexp")(margin, margin.new_zeros(())), size_average, reduce, reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The mean over classes of the binary cross entropy of sigmoid(input)."""
    log_sigmoid = function("logsigmoid")
    loss = -(target * log_sigmoid(input) + (1 - target) * log_sigmoid(-input))
    loss = loss if weight is None else loss * weight
    return _reduced(loss.sum(-1) / input.shape[-1], size_average, reduce, reduction)


@cast_as_one
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The mean over classes of max(0, margin - input[target] + input[class]) ** p, without the target's own."""
    if p not in (1, 2):
        raise ArgumentError("only p == 1 and p == 2 supported")
    reduction_of(size_average, reduce, reduction)
    if weight is not None and weight.ndim != 1:
        raise ArgumentError("weight must be one-dimensional")
    input = input.reshape(1) if input.ndim == 0 else input
    if input.ndim > 2 or not input.shape[-1]:
        raise ShapeError(f"multi_margin_loss: {_FILLED}, but got: {list(input.shape)}")
    scores, classes = (input, target) if input.ndim == 2 else (input.unsqueeze(0), target.reshape(1))
    if classes.shape != scores.shape[:1]:
        raise ShapeError(f"multi_margin_loss: inconsistent target size {target._meta} for {input._meta}")
    column = classes.unsqueeze(1)
    scores = with_zero_derivative(scores)
    terms = (margin - scores.gather(1, column) + scores).clamp(min=0)
    terms = terms if p == 1 else terms * terms
    if weight is not None:
        terms = terms * weight.index_select(0, classes).unsqueeze(1)
    loss = terms.scatter(1, column, 0.0).sum(1) / scores.shape[1]
    return _reduced(loss.reshape(target.shape), size_average, reduce, reduction)


@cast_as_one
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, 1 - input[j] + input[i]) over classes j that are targets and i that are not, divided by their number.

    ``target`` lists classes; the list ends at the first -1.
    """
    reduction_of(size_average, reduce, reduction)
    if input.ndim > 2 or (input.ndim and not input.shape[-1]):
        raise ShapeError(f"multilabel_margin_loss: {_FILLED}, but got: {list(input.shape)}")
    if target.shape != input.shape and (target.ndim or input.numel() != 1):
        wrong = f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}"
        raise ShapeError(f"multilabel_margin_loss: {wrong}")
    if target.dtype is not int64:
        raise DTypeError(f"multilabel_margin_loss: target must be int64, got {target._meta}")
    input, target = (t.reshape(1) if t.ndim == 0 else t for t in (input, target))
    scores, classes = (input, target) if input.ndim == 2 else (input.unsqueeze(0), target.unsqueeze(0))
    scores = with_zero_derivative(scores)
    is_listed = (classes < 0).cumsum(1) == 0
    listed = classes.clamp(min=0)
    is_target = function("zeros_like")(scores).scatter_add(1, listed, is_listed.to(scores.dtype)) > 0
    margins = (1 - scores.gather(1, listed).unsqueeze(2) + scores.unsqueeze(1)).clamp(min=0)
    counts = is_listed.unsqueeze(2) & is_target.logical_not().unsqueeze(1)
    loss = margins.masked_fill(counts.logical_not(), 0).sum((1, 2)) / scores.shape[1]
    return _reduced(loss if input.ndim == 2 else loss.squeeze(0), size_average, reduce, reduction)


@cast_as_one
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """1 - cos(input1, input2) where target is 1, max(0, cos - margin) where it is -1"""
    if target.ndim not in (0, 1) or target.ndim + 1 != input1.ndim or target.ndim + 1 != input2.ndim:
        raise ShapeError(
            f"cosine_embedding_loss: {target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found "
            f"inputs with sizes {list(input1.shape)} and {list(input2.shape)}."
        )
    epsilon = 1e-12
    product = (input1 * input2).sum(-1)
    cosine = product / (((input1 * input1).sum(-1) + epsilon) * ((input2 * input2).sum(-1) + epsilon)).sqrt()
    near = function("where")(target == 1, 1 - cosine, 0)
    far = function("where")(target == -1, (cosine - margin).clamp(min=0), 0)
    return _reduced(near + far, size_average, reduce, reduction)


@cast_as_one
def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: str = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """The negative log-likelihood of labellings of unknown alignment: (t, n, c) or (t, c) log-probabilities.

    ``targets`` are padded (n, s), or all in a row; for the latter, lengths that are tensors are read once.
    """
    is_batched = log_probs.ndim == 3
    probs = log_probs if is_batched else log_probs.unsqueeze(1)
    batch, device = probs.shape[1], probs.device
    lengths = []
    for name, given in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        listed = given if isinstance(given, Tensor) else tensor(list(given) if is_batched else given, dtype=int64)
        if listed.dtype.is_differentiable:
            raise DTypeError(f"ctc_loss: {name} must be integral, got {listed._meta}")
        if listed.numel() != batch:
            raise ShapeError(f"ctc_loss: {name} must be of size batch_size, which is {batch}, got {listed._meta}")
        lengths.append(listed.to(device, int64).reshape(batch))
    if targets.ndim == 1 and is_batched:
        targets = _padded_labels(targets, target_lengths, blank)
    padded = targets.to(device, int64).reshape(batch, -1)
    loss = function("_ctc_loss")(probs, padded, *lengths, blank, zero_infinity)[0]
    if reduction == "mean":
        return (loss / lengths[1].clamp(min=1).to(loss.dtype)).mean()  # type: ignore[no-any-return]
    return _reduced(loss if is_batched else loss.squeeze(0), None, None, reduction)


def _padded_labels(targets: Tensor, lengths: Any, blank: int) -> Tensor:
    """Return labels that follow each other without gaps as one row per sequence."""
    numbers = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    if sum(numbers) != targets.shape[0]:
        raise ShapeError(
            f"ctc_loss: Expected tensor to have size {sum(numbers)} at dimension 0, but got size {targets.shape[0]}: "
            "targets in a row are as many as target_lengths say"
        )
    starts = [sum(numbers[:place]) for place in range(len(numbers))]
    width = max([*numbers, 1])
    rows = [[start + min(k, max(n - 1, 0)) for k in range(width)] for start, n in zip(starts, numbers, strict=True)]
    last = max(targets.shape[0] - 1, 0)
    positions = tensor([[min(place, last) for place in row] for row in rows], dtype=int64, device=targets.device)
    if not targets.shape[0]:
        return function("full")((len(numbers), width), blank, dtype=targets.dtype, device=targets.device)  # type: ignore[no-any-return]
    return targets.index_select(0, positions.reshape(-1)).reshape(len(numbers), width)


@cast_as_one
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, |anchor - positive| - |anchor - negative| + margin) with p-norms over the last dimension"""
    if margin <= 0:
        raise ArgumentError(f"margin must be greater than 0, got {margin}")

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return a.sub(b).add(eps).norm(p, -1)

    kind = reduction_of(size_average, reduce, reduction)
    return _triplet(anchor, positive, negative, distance, margin, swap, kind)


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0, swap: bool = False,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``triplet_margin_loss`` with another distance; the Euclidean one by default."""
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ArgumentError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            f"The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    return _triplet(anchor, positive, negative, distance_function or _euclidean, margin, swap, reduction)


def _euclidean(a: Tensor, b: Tensor) -> Tensor:
    return a.sub(b).add(1e-6).norm(2, -1)


def _triplet(
    anchor: Tensor, positive: Tensor, negative: Tensor, distance: Callable[[Tensor, Tensor], Tensor], margin: float,
    swap: bool, reduction: str,
) -> Tensor:  # fmt: skip
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = function("minimum")(far, distance(positive, negative))
    return _reduced((near - far + margin).clamp(min=0), None, None, reduction)


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
    weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None,
    label_smoothing: float = 0.0, options: Any = None,
) -> Tensor:  # fmt: skip
    """Cross entropy of the logits ``linear(input, linear_weight, linear_bias)``; ``options`` choose nothing here.

    With a weight of (c, k1, k2, ..., features) the logits are (..., c, k1, k2, ...).
    """
    _check_linear(input, linear_weight, target, linear_bias, ignore_index)
    logits = input.matmul(linear_weight.flatten(0, -2).t())
    if linear_weight.ndim > 2:
        logits = logits.unflatten(-1, tuple(linear_weight.shape[:-1]))
    if linear_bias is not None:
        logits = logits + linear_bias
    index = -100 if ignore_index is None else ignore_index
    return function("cross_entropy")(  # type: ignore[no-any-return]
        logits, target, weight, ignore_index=index, reduction=reduction, label_smoothing=label_smoothing
    )


def _check_linear(
    input: Tensor, linear_weight: Tensor, target: Tensor, linear_bias: Tensor | None, ignore_index: int | None
) -> None:
    problem = ""
    if input.ndim not in (1, 2):
        problem = "input must have one or two dimensions"
    elif linear_weight.ndim < 2:
        problem = "linear_weight must have two or more dimensions"
    elif input.shape[-1] != linear_weight.shape[-1]:
        problem = "input and linear_weight must have the same number of features"
    elif linear_weight.ndim > 2 and input.ndim == 1:
        problem = "such a linear_weight requires input of (N, features)"
    elif linear_bias is not None and linear_bias.shape != linear_weight.shape[:-1]:
        problem = f"linear_bias must have shape {list(linear_weight.shape[:-1])}"
    elif ignore_index is not None and target.is_floating_point():
        problem = "ignore_index does not go with a target of probabilities"
    if problem:
        operands = ", ".join(str(t._meta) for t in (input, linear_weight, target, linear_bias) if t is not None)
        raise ShapeError(f"linear_cross_entropy: {problem}, with operands {operands}")
