"""Gradients of layers, as passes under ``jacrev`` and in the tangents of gradients compute them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor

from ..case import Case, Operand, dim_of, rule
from .products import multiplied


def _rows(tensor: Tensor, kept: int = 1) -> Tensor:
    """Return (batch, rows, ...) of a tensor with the batch first, whose last ``kept`` dimensions are those of a row."""
    shape = tensor.shape
    lead = len(shape) - kept
    return tensor.reshape(shape[0], math.prod(shape[1:lead]), *shape[lead:])


@rule("_linear_backward")
def _linear_backward(case: Case) -> Any:
    grad, x, weight, bias = case.args
    gradients = [] if weight is None else [multiplied(grad, weight)]
    rows = _rows(grad.front)
    if x is not None:
        gradients.append(function("matmul")(rows.transpose(1, 2), _rows(x.front)))
    if bias:
        gradients.append(rows.sum(1))
    return tuple(gradients)


def _weighted(grad: Operand, weight: Operand | None, ndim: int) -> tuple[Tensor, Tensor | None]:
    """Return the gradient and the weight that all elements share, or the gradient times weights of their own."""
    if weight is None or not weight.is_batched:
        return grad.front, None if weight is None else weight.tensor
    return grad.front * weight.lifted(ndim), None


def _by_parameters(normalized: Tensor, grad: Tensor, shape: Sequence[int], dtype: Any) -> tuple[Tensor, Tensor]:
    """Return the gradients by weight and bias, which are summed over rows."""
    rows = _rows(grad, len(shape))
    return (_rows(normalized, len(shape)) * rows).sum(1).to(dtype), rows.sum(1).to(dtype)


@rule("_layer_norm_backward")
def _layer_norm_backward(case: Case) -> Any:
    grad, x, mean, rstd, weight = case.args
    scaled, shared = _weighted(grad, weight, x.ndim)
    return case.call(scaled, x.front, mean.front, rstd.front, shared)


@rule("_layer_norm_weight_backward")
def _layer_norm_weight_backward(case: Case) -> Any:
    grad, x, mean, rstd, shape = case.args
    return _by_parameters((x.front - mean.front) * rstd.front, grad.front, shape, x.meta.dtype)[0]


@rule("_layer_norm_gradients")
def _layer_norm_gradients(case: Case) -> Any:
    grad, x, mean, rstd, weight, shape = case.args
    scaled, shared = _weighted(grad, weight, x.ndim)
    by_input = function("_layer_norm_backward")(scaled, x.front, mean.front, rstd.front, shared)
    normalized = (x.front - mean.front) * rstd.front
    return (by_input, *_by_parameters(normalized, grad.front, shape, (weight or x).meta.dtype))


@rule("_rms_norm_gradients")
def _rms_norm_gradients(case: Case) -> Any:
    grad, x, rstd, weight, shape = case.args
    scaled, shared = _weighted(grad, weight, x.ndim)
    by_input = case.call(scaled, x.front, rstd.front, shared, shape)[0]
    return by_input, _by_parameters(x.front * rstd.front, grad.front, shape, (weight or x).meta.dtype)[0]


@rule("_linear_recurrence")
def _linear_recurrence(case: Case) -> Any:
    decay, x, dim = case.args
    return case.call(decay.front, x.front, dim_of(dim, x.ndim))
