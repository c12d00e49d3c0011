"""Normalizations that return their statistics, under the names that PyTorch's dispatcher has for them."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ShapeError

from .into import into

Three = tuple[Tensor, Tensor, Tensor]


def _statistics_dtype(input: Tensor, weight: Tensor | None) -> DType:
    """Return the type of the statistics: the parameters', which may be wider than the input's."""
    return input.dtype if weight is None else weight.dtype


def native_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Three:
    """``layer_norm``, with the mean and the reciprocal standard deviation of every row, which have no gradient."""
    result, mean, rstd = function("_layer_norm")(input, tuple(normalized_shape), weight, bias, eps)
    dtype = _statistics_dtype(input, weight)
    return result, mean.detach().to(dtype), rstd.detach().to(dtype)


def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> Three:
    """``group_norm``, with the mean and the reciprocal standard deviation of every group: (N, group)."""
    if input.numel() != N * C * HxW or input.shape[:2] != (N, C):
        raise ShapeError(f"native_group_norm: {input._meta} is not one of N={N}, C={C}, HxW={HxW}")
    result = function("group_norm")(input, group, weight, bias, eps)
    groups = input.reshape(N, group, C // group * HxW)
    mean = groups.mean(-1)
    rstd = (groups.var(-1, correction=0) + eps).rsqrt()
    dtype = _statistics_dtype(input, weight)
    return result, mean.to(dtype), rstd.to(dtype)


def native_batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float, *, out: Any = None,
) -> Three:  # fmt: skip
    """``batch_norm``, with the batch's mean and reciprocal standard deviation; these are empty outside of training."""
    if training:
        result, mean, var, rstd = function("_batch_norm")(input, weight, bias, eps)
        count = input.numel() // input.shape[1]
        with no_grad():
            for running, statistic in ((running_mean, mean), (running_var, var * (count / max(count - 1, 1)))):
                if running is not None:
                    running.mul_(1 - momentum).add_(statistic.detach(), alpha=momentum)
        dtype = _statistics_dtype(input, weight)
        results = (result, mean.detach().to(dtype), rstd.detach().to(dtype))
    else:
        result = function("batch_norm")(input, running_mean, running_var, weight, bias, False, momentum, eps)
        results = (result, input.new_empty(0), input.new_empty(0))
    return into("native_batch_norm", results, out)  # type: ignore[no-any-return]
