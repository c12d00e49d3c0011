"""Losses: element-wise errors and their reduction, negative log-likelihood, and cross-entropy.

Shapes in docstrings: (samples, classes, elements), where elements counts a sample's targets.
"""

from __future__ import annotations

import numpy as np

from server.engine import functional as F
from server.engine import keys
from server.engine.array_library.indexing import check_index, sum_over
from server.engine.registry import composite, implements
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.layout import broadcast_shapes
from telegrad_protocol.ops.layers import losses as ops


@composite(ops.cross_entropy)
def cross_entropy(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing):
    kind = ops.reduction_of("cross_entropy", reduction, size_average, reduce)
    if ops.has_probabilities(input.meta, target.meta):
        log_probabilities = F.log_softmax(input, 0 if input.ndim == 1 else 1)
        return _cross_entropy_of_probabilities(log_probabilities, target, weight, kind, label_smoothing)
    is_plain = input.ndim == 2 and weight is None and label_smoothing == 0
    if is_plain and input.backend.key == keys.CPU:  # there an exponential costs more than reading it from memory
        return F._softmax_cross_entropy(input, target, kind, ignore_index)[0]
    return F._cross_entropy(input, target, weight, kind, ignore_index, label_smoothing)[0]


@composite(ops._cross_entropy_in_float32)
def _cross_entropy_in_float32(input, target, reduction, ignore_index, label_smoothing):
    return F._cross_entropy(input, target, None, reduction, ignore_index, label_smoothing, dtypes.float32)[0]


def _class_weighted(log_probabilities, weight):
    """Each class's log-probability times the weight of the class."""
    if weight is None:
        return log_probabilities
    shape = (-1,) if log_probabilities.ndim == 1 else (1, -1, *(1 for _ in log_probabilities.shape[2:]))
    return F.mul(log_probabilities, F.reshape(weight, shape))


def _cross_entropy_of_probabilities(log_probabilities, target, weight, kind, label_smoothing):
    dim = 0 if log_probabilities.ndim == 1 else 1
    classes = max(log_probabilities.shape[dim], 1)
    if label_smoothing > 0:
        target = F.add(F.mul(target, 1 - label_smoothing), label_smoothing / classes)
    product = F.neg(F.mul(_class_weighted(log_probabilities, weight), target))
    if kind == "none":
        return F.sum(product, dim)
    total = F.sum(product)
    return total if kind == "sum" else F.div(total, log_probabilities.numel / classes)


@composite(ops.nll_loss)
def nll_loss(input, target, weight, size_average, ignore_index, reduce, reduction):
    kind = ops.reduction_of("nll_loss", reduction, size_average, reduce)
    return F._nll_loss_forward(input, target, weight, kind, ignore_index)[0]


def _class_layout(shape):
    """(samples, classes, elements per sample) of a tensor of log-probabilities."""
    if len(shape) == 1:
        return 1, shape[0], 1
    inner = 1
    for size in shape[2:]:
        inner *= size
    return shape[0], shape[1], inner


def _positions(xp, shape, target, ignore_index):
    """Flat indices of the targets' classes in the input, the classes, and a mask of the targets that count."""
    samples, classes, inner = _class_layout(shape)
    target = target.reshape(samples, inner).astype(np.int64, copy=False)
    counted = target != ignore_index
    target = xp.where(counted, target, 0)
    check_index("nll_loss", target[counted], classes, f"{classes} classes")
    starts = xp.arange(samples)[:, None] * (classes * inner) + xp.arange(inner)
    return starts + target * inner, target, counted


@implements(
    ops._nll_loss_forward,
    input=lambda grad_output, input_meta, target, weight, total_weight, reduction, ignore_index: F._nll_loss_backward(
        grad_output, target, weight, total_weight, input_meta.shape, reduction, ignore_index
    ),
)
def _nll_loss_forward(xp, input, target, weight, reduction, ignore_index, *, out):
    loss, total = out
    positions, classes, counted = _positions(xp, input.shape, target, ignore_index)
    scale = counted.astype(input.dtype) if weight is None else xp.where(counted, weight[classes], 0)
    picked = -xp.take(input.reshape(-1), positions) if input.size else xp.zeros(positions.shape, input.dtype)
    losses = xp.where(counted, picked * scale, 0)
    total[...] = xp.sum(scale)
    if reduction == "none":
        loss[...] = losses.reshape(loss.shape)
    else:
        loss[...] = xp.sum(losses)
        if reduction == "mean":
            loss /= total


@implements(
    ops._nll_loss_backward,
    grad_output=lambda grad, target, weight, reduction, ignore_index: F._nll_loss_forward(
        grad, target, weight, reduction, ignore_index
    )[0],
)
def _nll_loss_backward(xp, grad_output, target, weight, total_weight, size, reduction, ignore_index, *, out):
    out[...] = 0
    if not out.size:
        return
    positions, classes, counted = _positions(xp, size, target, ignore_index)
    scale = counted.astype(out.dtype) if weight is None else xp.where(counted, weight[classes], 0)
    grad = grad_output.reshape(classes.shape) if reduction == "none" else grad_output
    if reduction == "mean":
        grad = grad / total_weight
    result = out if out.flags.c_contiguous else xp.zeros(out.shape, out.dtype)
    result.reshape(-1)[positions] = xp.where(counted, -grad * scale, 0)
    if result is not out:
        out[...] = result


@implements(
    ops._softmax_cross_entropy,
    input=lambda grad_loss, input, probabilities, target, reduction, ignore_index: F._softmax_cross_entropy_backward(
        grad_loss, input, probabilities, target, reduction, ignore_index
    ),
)
def _softmax_cross_entropy(xp, input, target, reduction, ignore_index, *, out):
    loss, probabilities = out
    positions, _, counted = _positions(xp, input.shape, target, ignore_index)
    shifted = input - xp.amax(input, axis=1, keepdims=True) if input.size else input
    picked = xp.take(shifted.reshape(-1), positions[:, 0]) if input.size else xp.zeros(len(input), input.dtype)
    powers = xp.exp(shifted)
    sums = xp.sum(powers, axis=1)
    xp.divide(powers, sums[:, None], out=probabilities)
    losses = xp.where(counted[:, 0], xp.log(sums) - picked, 0)
    if reduction == "none":
        loss[...] = losses
    else:
        loss[...] = xp.sum(losses)
        if reduction == "mean":
            loss /= xp.sum(counted)


@implements(
    ops._cross_entropy,
    input=lambda grad_loss, input, target, weight, log_sum, total_weight, reduction, ignore_index, label_smoothing: (
        F._cross_entropy_backward(
            grad_loss, input, target, weight, log_sum, total_weight, reduction, ignore_index, label_smoothing
        )
    ),
)
def _cross_entropy(xp, input, target, weight, reduction, ignore_index, label_smoothing, dtype, *, out):
    loss, log_sum, total = out
    logits = input.reshape(_class_layout(input.shape))
    positions, scale, smoothing = _targets_and_weights(xp, logits, target, weight, ignore_index, label_smoothing)
    largest = xp.amax(logits, axis=1, keepdims=True) if logits.size else xp.zeros((len(logits), 1, logits.shape[2]))
    log_of_sum = xp.log(sum_over(xp, xp.exp(logits - largest), 1, True))
    log_sum[...] = (largest + log_of_sum).reshape(log_sum.shape)
    picked = xp.take(logits.reshape(-1), positions) if logits.size else log_sum.reshape(positions.shape)
    own = log_of_sum[:, 0] + (largest[:, 0] - picked)  # log_sum has fewer digits left where ``largest`` is large
    losses = xp.where(scale != 0, own * scale, 0)
    counted = target.reshape(positions.shape) != ignore_index
    if label_smoothing:
        smooth = sum_over(xp, (log_of_sum + (largest - logits)) * smoothing, 1)
        losses = (1 - label_smoothing) * losses + xp.where(counted, smooth, 0)
    total[...] = xp.sum(scale) if reduction == "mean" else 1
    loss[...] = losses.reshape(loss.shape) if reduction == "none" else xp.sum(losses) / total


def _targets_and_weights(xp, logits, target, weight, ignore_index, label_smoothing):
    """Flat indices of the targets' classes, the weight of every target, and the smoothing weight of every class."""
    positions, classes, counted = _positions(xp, logits.shape, target, ignore_index)
    scale = counted.astype(logits.dtype) if weight is None else xp.where(counted, weight[classes], 0)
    count = max(logits.shape[1], 1)
    smoothing = xp.full((1, 1), label_smoothing / count, logits.dtype)
    return positions, scale, smoothing if weight is None else smoothing * weight[:, None]


def _target_scales(grad_loss, input, target, weight, total_weight, reduction, ignore_index, label_smoothing):
    """The factor of every target's softmax in the gradient of the input."""
    ones = F.full(input.shape, -1.0, dtype=input.dtype, device=input.device)
    own = F._nll_loss_forward(ones, target, weight, "none", ignore_index)[0]
    if label_smoothing:
        counted = F._nll_loss_forward(ones, target, None, "none", ignore_index)[0]
        smoothing = label_smoothing if weight is None else F.mul(F.mean(weight), label_smoothing)
        own = F.add(F.mul(own, 1 - label_smoothing), F.mul(counted, smoothing))
    return F.mul(own, F.div(grad_loss, total_weight))


def _cross_entropy_double_backward(
    grad, grad_loss, input, target, weight, total_weight, reduction, ignore_index, label_smoothing
):  # fmt: skip
    dim = 0 if input.ndim == 1 else 1
    scales = _target_scales(grad_loss, input, target, weight, total_weight, reduction, ignore_index, label_smoothing)
    return F._softmax_backward_data(F.mul(grad, F.unsqueeze(scales, dim)), F.softmax(input, dim), dim, grad.dtype)


def _cross_entropy_grad_loss(
    grad, grad_loss, input, target, weight, log_sum, total_weight, reduction, ignore_index, label_smoothing
):  # fmt: skip
    unit = F._cross_entropy_backward(
        F.ones_like(grad_loss), input, target, weight, log_sum, total_weight, reduction, ignore_index, label_smoothing
    )
    product = F.mul(grad, unit)
    return F.sum(product, 0 if input.ndim == 1 else 1) if reduction == "none" else F.sum(product)


@implements(
    ops._cross_entropy_backward,
    grad_loss=_cross_entropy_grad_loss,
    input=_cross_entropy_double_backward,  # this includes what goes through log_sum
)
def _cross_entropy_backward(
    xp, grad_loss, input, target, weight, log_sum, total_weight, reduction, ignore_index, label_smoothing, *, out
):  # fmt: skip
    logits = input.reshape(_class_layout(input.shape))
    positions, scale, smoothing = _targets_and_weights(xp, logits, target, weight, ignore_index, label_smoothing)
    if not logits.size:
        return
    grads = xp.broadcast_to((grad_loss / total_weight).reshape(-1, 1), (positions.size, 1)).reshape(positions.shape)
    counted = target.reshape(positions.shape) != ignore_index
    own = (1 - label_smoothing) * scale
    spread = xp.where(counted, own + xp.sum(smoothing) * (1 if smoothing.size > 1 else logits.shape[1]), 0)
    gradient = xp.exp(logits - log_sum.reshape(positions.shape)[:, None]) * spread[:, None]
    gradient -= xp.where(counted[:, None], smoothing, 0)
    gradient = xp.ascontiguousarray(gradient)
    gradient.reshape(-1)[positions] -= own
    out[...] = xp.where(counted[:, None], gradient * grads[:, None], 0).reshape(out.shape)


def _softmax_cross_entropy_double_backward(grad, grad_loss, probabilities, target, reduction, ignore_index):
    """The derivative of ``_softmax_cross_entropy_backward`` by the logits, through the probabilities."""
    counted = F.ne(target, ignore_index)
    scale = F.mul(counted, F.div(grad_loss, F.sum(counted)) if reduction == "mean" else grad_loss)
    return F._softmax_backward_data(F.mul(grad, F.unsqueeze(scale, 1)), probabilities, 1, grad.dtype)


def _softmax_cross_entropy_grad_loss(grad, grad_loss, input, probabilities, target, reduction, ignore_index):
    unit = F._softmax_cross_entropy_backward(
        F.ones_like(grad_loss), input, probabilities, target, reduction, ignore_index
    )
    return F.sum(F.mul(grad, unit), 1) if reduction == "none" else F.sum(F.mul(grad, unit))


@implements(
    ops._softmax_cross_entropy_backward,
    grad_loss=_softmax_cross_entropy_grad_loss,
    input=_softmax_cross_entropy_double_backward,  # this includes what goes through the probabilities
)
def _softmax_cross_entropy_backward(xp, grad_loss, input, probabilities, target, reduction, ignore_index, *, out):
    positions, _, counted = _positions(xp, probabilities.shape, target, ignore_index)
    scale = xp.where(counted[:, 0], grad_loss, 0).astype(out.dtype)
    if reduction == "mean":
        scale /= xp.sum(counted)
    xp.multiply(probabilities, scale[:, None], out=out)
    if out.size:
        flat = out.reshape(-1)
        flat[positions[:, 0]] -= scale


def _reduced(losses, kind):
    """The losses, their sum, or their mean."""
    return losses if kind == "none" else F.sum(losses) if kind == "sum" else F.mean(losses)


def _weighted_reduction(losses, weight, kind):
    """The losses reduced with a weight per element; a mean is divided by the sum of the weights."""
    if weight is None:
        return _reduced(losses, kind)
    weighted = F.mul(losses, weight)
    return F.div(F.sum(weighted), F.sum(weight)) if kind == "mean" else _reduced(weighted, kind)


def _squared_error_backward(grad, input, target):
    difference = F.sub(input, target)
    return F.mul(F.mul(grad, 2), F.conj(difference) if difference.dtype.is_complex else difference)


@implements(
    ops._squared_error,
    input=_squared_error_backward,
    target=lambda grad, input, target: _squared_error_backward(grad, target, input),
)
def _squared_error(xp, input, target, *, out):
    xp.subtract(input, target, out=out)
    xp.multiply(out, out, out=out)


def _huber_backward(grad, input, target, delta):
    # The derivative of hardtanh is 0 at both bounds, as PyTorch's second derivative of the loss is; that of clamp is 1.
    return F.mul(F.hardtanh(F.sub(input, target), -delta, delta), grad)


@implements(
    ops._huber_error,
    input=_huber_backward,
    target=lambda grad, input, target, delta: _huber_backward(grad, target, input, delta),
)
def _huber_error(xp, input, target, delta, *, out):
    size = xp.abs(input - target)
    out[...] = xp.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))


def _bce_backward(grad, input, target):
    spread = F.clamp(F.mul(F.sub(1, input), input), min=1e-12)
    return F.div(F.mul(grad, F.sub(input, target)), spread)


def _bce_target_backward(grad, input):
    return F.mul(grad, F.sub(F.clamp(F.log1p(F.neg(input)), min=-100), F.clamp(F.log(input), min=-100)))


NO_PROBABILITIES = "binary_cross_entropy: all elements of {} should be between 0 and 1"


@implements(ops._bce, input=_bce_backward, target=_bce_target_backward)
def _bce(xp, input, target, *, out):
    for name, numbers in (("input", input), ("target", target)):
        if numbers.size and not bool(xp.all((numbers >= 0) & (numbers <= 1))):
            raise ArgumentError(NO_PROBABILITIES.format(name))
    positive, negative = xp.maximum(xp.log(input), -100), xp.maximum(xp.log1p(-input), -100)
    out[...] = (target - 1) * negative - target * positive


@implements(
    ops._bce_with_logits,
    input=lambda grad, input, target: F.mul(grad, F.sub(F.sigmoid(input), target)),
    target=lambda grad, input: F.neg(F.mul(grad, input)),
)
def _bce_with_logits(xp, input, target, *, out):
    out[...] = xp.maximum(input, 0) - input * target + xp.log1p(xp.exp(-xp.abs(input)))


@composite(ops.mse_loss)
def mse_loss(input, target, size_average, reduce, reduction, weight):
    kind = ops.reduction_of("mse_loss", reduction, size_average, reduce)
    return _weighted_reduction(F._squared_error(input, target), weight, kind)


@composite(ops.l1_loss)
def l1_loss(input, target, size_average, reduce, reduction, weight):
    kind = ops.reduction_of("l1_loss", reduction, size_average, reduce)
    return _weighted_reduction(F.abs(F.sub(input, target)), weight, kind)


@composite(ops.smooth_l1_loss)
def smooth_l1_loss(input, target, size_average, reduce, reduction, beta):
    kind = ops.reduction_of("smooth_l1_loss", reduction, size_average, reduce)
    error = F._huber_error(input, target, beta) if beta else F.abs(F.sub(input, target))
    return _reduced(error if beta in (0, 1) else F.div(error, beta), kind)


@composite(ops.huber_loss)
def huber_loss(input, target, reduction, delta, weight):
    return _weighted_reduction(
        F._huber_error(input, target, delta), weight, ops.reduction_of("huber_loss", reduction, None, None)
    )


@composite(ops.binary_cross_entropy)
def binary_cross_entropy(input, target, weight, size_average, reduce, reduction):
    kind = ops.reduction_of("binary_cross_entropy", reduction, size_average, reduce)
    losses = F._bce(input, target)
    return _reduced(losses if weight is None else F.mul(losses, weight), kind)


@composite(ops.binary_cross_entropy_with_logits)
def binary_cross_entropy_with_logits(input, target, weight, size_average, reduce, reduction, pos_weight):
    kind = ops.reduction_of("binary_cross_entropy_with_logits", reduction, size_average, reduce)
    losses = F._bce_with_logits(input, target)
    if pos_weight is not None:
        of_positives = F._bce_with_logits(input, F.ones_like(input))
        losses = F.add(losses, F.mul(F.mul(F.sub(pos_weight, 1), target), of_positives))
    return _reduced(losses if weight is None else F.mul(losses, weight), kind)


@composite(ops.kl_div)
def kl_div(input, target, size_average, reduce, reduction, log_target):
    if log_target:
        losses = F.mul(F.exp(target), F.sub(target, input))
    else:
        losses = F.sub(F.xlogy(target, target), F.mul(target, input))
    if reduction == "batchmean":
        return F.div(F.sum(losses), input.shape[0]) if input.ndim else F.sum(losses)
    return _reduced(losses, ops.reduction_of("kl_div", reduction, size_average, reduce))


@composite(ops.cosine_similarity)
def cosine_similarity(x1, x2, dim, eps):
    shape = broadcast_shapes("cosine_similarity", x1.shape, x2.shape)
    dtype = ops.cosine_similarity.rule(x1.meta, x2.meta, dim, eps).dtype
    x1, x2 = (F.expand(x if x.dtype is dtype else F._to_copy(x, dtype=dtype), shape) for x in (x1, x2))
    norms = [F.clamp(F.norm(x, 2, dim, True), min=eps) for x in (x1, x2)]
    return F.sum(F.mul(F.div(x1, norms[0]), F.div(x2, norms[1])), dim)
