"""Contracts of losses. ``size_average`` and ``reduce`` are PyTorch's former names for ``reduction``."""

from __future__ import annotations

from typing import Any

from telegrad_protocol.dtypes import DType, bool_, float32, int64, promote_types, uint8
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import Size, broadcast_shapes, wrap_dim
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import op, pointwise, pointwise_meta

REDUCTIONS = ("none", "mean", "sum")


def reduction_of(name: str, reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """Return the reduction that is meant, with PyTorch's former arguments taken into account."""
    if size_average is not None or reduce is not None:
        return "none" if reduce is False else "sum" if size_average is False else "mean"
    if reduction not in REDUCTIONS:
        raise ArgumentError(f"{name}: {reduction} is not a valid value for reduction, which is 'none', 'mean' or 'sum'")
    return reduction


def _check_floating(name: str, input: Meta) -> None:
    if not input.dtype.is_floating_point:
        raise DTypeError(f"{name}: expected a floating point type, got {input}")


def _class_count(name: str, input: Meta, weight: Meta | None) -> int:
    if input.ndim == 0:
        raise ShapeError(f"{name}: expected (C) or (N, C, ...), got {input}")
    classes = input.shape[0 if input.ndim == 1 else 1]
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"{name}: weight must hold one element for each of the {classes} classes, got {weight}")
    return classes


def _unmatched(input: Meta, target: Meta) -> str:
    """Return the words that PyTorch has for batches of two sizes, which programs look for."""
    if not (input.ndim > 1 and target.ndim and input.shape[0] != target.shape[0]):
        return ""
    return f": Expected input batch_size ({input.shape[0]}) to match target batch_size ({target.shape[0]})"


def _check_classes(name: str, input: Meta, target: Meta, weight: Meta | None) -> None:
    _check_floating(name, input)
    _class_count(name, input, weight)
    if target.dtype not in (int64, uint8):
        raise DTypeError(f"{name}: class indices must be int64 or uint8, got {target}")
    expected = () if input.ndim == 1 else (input.shape[0], *input.shape[2:])
    if target.shape != expected:
        raise ArgumentError(
            f"{name}: target {target} must have the shape {list(expected)} for input {input}{_unmatched(input, target)}"
        )
    if weight is not None and weight.dtype is not input.dtype:
        raise DTypeError(f"{name}: weight {weight} must have the type of {input}")


@op(module="nn.functional", method=False, out=False, no_grad=("weight",))
def cross_entropy(
    input: Meta, target: Meta, weight: Meta | None = None, size_average: bool | None = None, ignore_index: int = -100,
    reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Meta:  # fmt: skip
    """Compute the negative log-likelihood of ``target``, class indices or probabilities, under softmax(input)."""
    kind = reduction_of("cross_entropy", reduction, size_average, reduce)
    _check_smoothing(label_smoothing)
    if has_probabilities(input, target):
        _class_count("cross_entropy", input, weight)
        _check_floating("cross_entropy", input)
        _check_floating("cross_entropy", target)
        if ignore_index >= 0:
            raise ShapeError(f"cross_entropy: ignore_index does not go with a target of probabilities, {target}")
        shape = () if input.ndim == 1 else (input.shape[0], *input.shape[2:])
    else:
        _check_classes("cross_entropy", input, target, weight)
        shape = target.shape
    return input.like(shape if kind == "none" else ())


def _check_smoothing(label_smoothing: float) -> None:
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"cross_entropy: label_smoothing must be between 0 and 1, got {label_smoothing}")


def has_probabilities(input: Meta, target: Meta) -> bool:
    """Tell whether ``target`` holds a probability per class instead of the index of one."""
    return input.shape == target.shape


@op(module="nn.functional", method=False, out=False, no_grad=("weight",))
def nll_loss(
    input: Meta, target: Meta, weight: Meta | None = None, size_average: bool | None = None, ignore_index: int = -100,
    reduce: bool | None = None, reduction: str = "mean",
) -> Meta:  # fmt: skip
    """Compute the negative log-likelihood of the classes ``target`` from log-probabilities."""
    kind = reduction_of("nll_loss", reduction, size_average, reduce)
    _check_classes("nll_loss", input, target, weight)
    return input.like(target.shape if kind == "none" else ())


@op(out=False, method=False, no_grad=("target", "weight"), returns=("output", "total_weight"))
def _nll_loss_forward(
    input: Meta, target: Meta, weight: Meta | None, reduction: str, ignore_index: int
) -> tuple[Meta, Meta]:  # fmt: skip
    """Compute ``nll_loss``, and the sum of the weights that a mean is divided by."""
    _check_classes("nll_loss", input, target, weight)
    return input.like(target.shape if reduction == "none" else ()), input.like(())


@op(out=False, method=False, no_grad=("target", "weight", "total_weight"))
def _nll_loss_backward(
    grad_output: Meta, target: Meta, weight: Meta | None, total_weight: Meta, size: Size, reduction: str,
    ignore_index: int,
) -> Meta:  # fmt: skip
    """Compute the gradient of ``nll_loss`` by the log-probabilities, which have the shape ``size``."""
    gradient = grad_output.like(size)
    _check_classes("_nll_loss_backward", gradient, target, weight)
    if grad_output.shape != (target.shape if reduction == "none" else ()):
        raise ShapeError(f"_nll_loss_backward: gradient {grad_output} does not fit the target {target}")
    return gradient


@op(
    out=False, method=False, no_grad=("target", "weight"), returns=("loss", "log_sum", "total_weight"),
)  # fmt: skip
def _cross_entropy(
    input: Meta, target: Meta, weight: Meta | None, reduction: str, ignore_index: int, label_smoothing: float,
    dtype: DType | None = None,
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    """Compute ``cross_entropy`` of class indices in one pass over the input, which backward reads again.

    Beside the loss what backward needs: the logarithm of each sum of exponentials, and what a mean was divided by
    (1 where none was taken). ``dtype`` is the loss's, the input's by default.
    """
    _check_classes("cross_entropy", input, target, weight)
    wide = float32 if input.dtype.itemsize == 2 else input.dtype
    if dtype not in (None, input.dtype, wide):
        raise DTypeError(f"cross_entropy: the loss of {input} cannot be of type {dtype.name}")
    loss = input.like(target.shape if reduction == "none" else (), dtype)
    return loss, target.like(dtype=wide), target.like((), dtype=wide)


@op(out=False, method=False)
def _cross_entropy_in_float32(
    input: Meta, target: Meta, reduction: str, ignore_index: int, label_smoothing: float
) -> Meta:  # fmt: skip
    """Compute ``cross_entropy`` of class indices in float32 without converting the logits, for autocast."""
    _check_smoothing(label_smoothing)
    _check_classes("cross_entropy", input, target, None)
    return input.like(target.shape if reduction == "none" else (), float32)


@op(out=False, method=False, no_grad=("target", "weight", "log_sum", "total_weight"))
def _cross_entropy_backward(
    grad_loss: Meta, input: Meta, target: Meta, weight: Meta | None, log_sum: Meta, total_weight: Meta,
    reduction: str, ignore_index: int, label_smoothing: float,
) -> Meta:  # fmt: skip
    """Compute the gradient of ``_cross_entropy`` by its input."""
    _check_classes("cross_entropy", input, target, weight)
    _check_floating("cross_entropy", grad_loss)
    if grad_loss.shape != (target.shape if reduction == "none" else ()):
        raise ShapeError(f"cross_entropy: gradient {grad_loss} does not fit the target {target}")
    if log_sum.shape != target.shape or total_weight.shape != () or not log_sum.dtype.is_floating_point:
        raise ShapeError(f"cross_entropy: {log_sum} and {total_weight} are not of a loss of {input} and {target}")
    return input.like()


@op(out=False, method=False, no_grad=("target",), returns=("loss", "probabilities"))
def _softmax_cross_entropy(input: Meta, target: Meta, reduction: str, ignore_index: int) -> tuple[Meta, Meta]:
    """Compute ``cross_entropy`` of a matrix and class indices in one pass, and the softmax that backward needs."""
    _check_classes("cross_entropy", input, target, None)
    if input.ndim != 2:
        raise ShapeError(f"_softmax_cross_entropy: expected (N, C), got {input}")
    return input.like(target.shape if reduction == "none" else ()), input.like()


@op(out=False, method=False, no_grad=("probabilities", "target"))
def _softmax_cross_entropy_backward(
    grad_loss: Meta, input: Meta, probabilities: Meta, target: Meta, reduction: str, ignore_index: int
) -> Meta:  # fmt: skip
    """Compute (probabilities - one_hot(target)) * grad_loss, over the number of targets where a mean was taken."""
    _check_classes("cross_entropy", probabilities, target, None)
    if grad_loss.shape != (target.shape if reduction == "none" else ()) or input.shape != probabilities.shape:
        raise ShapeError(f"cross_entropy: gradient {grad_loss} does not fit {probabilities} and {target}")
    return probabilities.like()


@pointwise(inplace=False, out=False, method=False, takes="ifc")
def _squared_error(input: Meta, target: Meta) -> Meta:
    """Compute (input - target) ** 2."""


@pointwise(inplace=False, out=False, method=False, takes="fc")
def _huber_error(input: Meta, target: Meta, delta: float) -> Meta:
    """Compute d ** 2 / 2 for |d| up to ``delta``, and delta * (|d| - delta / 2) beyond, with d = input - target."""


@pointwise(inplace=False, out=False, method=False, takes="f")
def _bce(input: Meta, target: Meta) -> Meta:
    """Compute -target * log(input) - (1 - target) * log(1 - input), with logarithms of at least -100."""


@pointwise(inplace=False, out=False, method=False, takes="f")
def _bce_with_logits(input: Meta, target: Meta) -> Meta:
    """Compute the binary cross-entropy of sigmoid(input) without overflow."""


def _elementwise(
    name: str, error: Any, input: Meta, target: Meta, kind: str, weight: Meta | None = None,
    extra: tuple[float, ...] = (),
) -> Meta:  # fmt: skip
    """Return the meta of a loss that reduces an element-wise error."""
    loss = pointwise_meta(error, (input, target, *extra))
    if loss.dtype is bool_:
        raise DTypeError(f"{name}: not defined for bool, got {input} and {target}")
    if weight is not None:
        loss = loss.like(broadcast_shapes(name, loss.shape, weight.shape))
    if kind == "mean" and not loss.dtype.is_differentiable:
        raise DTypeError(f"{name}: expected a floating point type, got {input} and {target}")
    return loss if kind == "none" else loss.like(())


@op(module="nn.functional", method=False, out=False)
def mse_loss(
    input: Meta, target: Meta, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    weight: Meta | None = None,
) -> Meta:  # fmt: skip
    """Compute the mean squared error: (input - target) ** 2, reduced."""
    kind = reduction_of("mse_loss", reduction, size_average, reduce)
    return _elementwise("mse_loss", _squared_error, input, target, kind, weight)


@op(module="nn.functional", method=False, out=False)
def l1_loss(
    input: Meta, target: Meta, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    weight: Meta | None = None,
) -> Meta:  # fmt: skip
    """Compute the mean absolute error: |input - target|, reduced."""
    kind = reduction_of("l1_loss", reduction, size_average, reduce)
    loss = _elementwise("l1_loss", _squared_error, input, target, kind, weight)
    return loss.like(dtype=loss.dtype.to_real(), strides=loss.strides)


@op(module="nn.functional", method=False, out=False)
def smooth_l1_loss(
    input: Meta, target: Meta, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    beta: float = 1.0,
) -> Meta:  # fmt: skip
    """Compute d ** 2 / (2 * beta) for |d| < beta, else |d| - beta / 2, with d = input - target, reduced."""
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    kind = reduction_of("smooth_l1_loss", reduction, size_average, reduce)
    return _elementwise("smooth_l1_loss", _squared_error, input, target, kind)


@op(module="nn.functional", method=False, out=False)
def huber_loss(
    input: Meta, target: Meta, reduction: str = "mean", delta: float = 1.0, weight: Meta | None = None
) -> Meta:  # fmt: skip
    """Compute d ** 2 / 2 for |d| <= delta, else delta * (|d| - delta / 2), with d = input - target, reduced."""
    if delta <= 0:
        raise ArgumentError(f"huber_loss: huber_loss does not support non-positive values for delta, got {delta}")
    kind = reduction_of("huber_loss", reduction, None, None)
    return _elementwise("huber_loss", _huber_error, input, target, kind, weight, (delta,))


@op(module="nn.functional", method=False, out=False)
def binary_cross_entropy(
    input: Meta, target: Meta, weight: Meta | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Meta:  # fmt: skip
    """Compute the cross-entropy of probabilities against target probabilities of one class, reduced."""
    kind = reduction_of("binary_cross_entropy", reduction, size_average, reduce)
    _check_floating("binary_cross_entropy", input)
    if input.shape != target.shape:
        raise ArgumentError(f"binary_cross_entropy: target {target} does not have the shape of input {input}")
    return _elementwise("binary_cross_entropy", _bce, input, target, kind, weight)


@op(module="nn.functional", method=False, out=False)
def binary_cross_entropy_with_logits(
    input: Meta, target: Meta, weight: Meta | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean", pos_weight: Meta | None = None,
) -> Meta:  # fmt: skip
    """Compute ``binary_cross_entropy`` of sigmoid(input); ``pos_weight`` multiplies the loss of positive targets."""
    name = "binary_cross_entropy_with_logits"
    kind = reduction_of(name, reduction, size_average, reduce)
    _check_floating(name, input)
    if input.shape != target.shape:
        raise ArgumentError(f"{name}: target {target} does not have the shape of input {input}")
    if pos_weight is not None:
        broadcast_shapes(name, input.shape, pos_weight.shape)
    return _elementwise(name, _bce_with_logits, input, target, kind, weight)


@op(module="nn.functional", method=False, out=False)
def kl_div(
    input: Meta, target: Meta, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    log_target: bool = False,
) -> Meta:  # fmt: skip
    """Compute the Kullback-Leibler divergence of ``target`` from the log-probabilities ``input``, reduced."""
    kind = "sum" if reduction == "batchmean" else reduction_of("kl_div", reduction, size_average, reduce)
    return _elementwise("kl_div", _squared_error, input, target, kind)


@op(module="nn.functional", method=False, out=False)
def cosine_similarity(x1: Meta, x2: Meta, dim: int = 1, eps: float = 1e-8) -> Meta:
    """Compute x1 . x2 / (max(|x1|, eps) * max(|x2|, eps)) along a dimension."""
    shape = broadcast_shapes("cosine_similarity", x1.shape, x2.shape)
    at = wrap_dim("cosine_similarity", dim, len(shape))
    product = pointwise_meta(_squared_error, (x1, x2)).like(dtype=promote_types(x1.dtype, x2.dtype))
    _check_floating("cosine_similarity", product)
    return product.like((*shape[:at], *shape[at + 1 :]))
