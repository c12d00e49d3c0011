"""Convolutions: the batch becomes a part of the samples, or of the channels in groups where weights differ."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor

from ..case import Case, Operand, rule


def _with_samples(x: Operand, is_single: bool) -> Tensor:
    """Return the input as (batch, samples, channels, ...)."""
    return x.front.unsqueeze(1) if is_single else x.front


def _convolved(case: Case, dims: int) -> Any:
    x, weight, bias = case.args[:3]
    is_single = x.ndim == dims + 1
    if not weight.is_batched:
        shared = bias.tensor if bias is not None and not bias.is_batched else None
        tensor = _with_samples(x, is_single)
        result = case.call(tensor.flatten(0, 1), weight.tensor, shared, *case.args[3:])
        result = result.unflatten(0, (case.size, -1))
        bias = None if shared is not None else bias
    else:
        result = _grouped(case, x, weight, is_single)
    if bias is not None:
        result = result + bias.front.reshape(case.size, 1, -1, *(1,) * dims)
    return result.squeeze(1) if is_single else result


def _grouped(case: Case, x: Operand, weight: Operand, is_single: bool) -> Tensor:
    """Return the convolution of each element's input with its own weights: those are groups of one convolution."""
    place = [param.name for param in case.op.params].index("groups")
    rest = list(case.args[3:])
    groups = case.args[place]
    if x.is_batched or groups > 1 or is_transposed_of(case):
        tensor = _with_samples(x, is_single).movedim(0, 1).flatten(1, 2)
        rest[place - 3] = groups * case.size
    else:
        tensor = x.tensor.unsqueeze(0) if is_single else x.tensor
    result = case.call(tensor, weight.tensor.flatten(0, 1), None, *rest)
    return result.unflatten(1, (case.size, -1)).movedim(1, 0)  # type: ignore[no-any-return]


def is_transposed_of(case: Case) -> bool:
    """Return whether a convolution is a transposed one."""
    return "transpose" in case.name or (case.name == "convolution" and case.named("transposed"))


@rule("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution")
def _convolution(case: Case) -> Any:
    return _convolved(case, case.args[1].ndim - 2)


@rule("_convolution_weight_backward")
def _weight_backward(case: Case) -> Any:
    grad, x, size, stride, padding, dilation, groups, _ = case.args
    tensors = [operand.front.movedim(0, 1).flatten(1, 2) for operand in (grad, x)]
    result = case.call(*tensors, size, stride, padding, dilation, groups * case.size, False)
    return result.unflatten(0, (case.size, -1))


@rule("im2col")
def _im2col(case: Case) -> Any:
    x, *rest = case.args
    if x.ndim == 3:
        return case.call(x.front, *rest)
    return case.call(x.front.flatten(0, 1), *rest).unflatten(0, (case.size, -1))


@rule("fold")
def _fold(case: Case) -> Any:
    x, *rest = case.args
    if x.ndim == 2:
        return case.call(x.front, *rest)
    return case.call(x.front.flatten(0, 1), *rest).unflatten(0, (case.size, -1))
