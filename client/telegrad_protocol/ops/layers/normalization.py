"""Contracts of normalization: over the last dimensions, over groups of channels, over the batch."""

from __future__ import annotations

import math

from telegrad_protocol.dtypes import float32
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import Size, result_strides, wrap_dims
from telegrad_protocol.memory_format import channels_last_strides, is_channels_last
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import Scalar, op
from telegrad_protocol.ops.rules import check_backward


def _check_layer(name: str, input: Meta, normalized_shape: Size, *affine: Meta | None) -> None:
    if not input.dtype.is_floating_point:
        raise DTypeError(f"{name}: expected a floating point type, got {input}")
    if not normalized_shape:
        raise ShapeError(
            f"{name}: Expected normalized_shape to be at least 1-dimensional, got {list(normalized_shape)}"
        )
    if input.shape[-len(normalized_shape) :] != normalized_shape or input.ndim < len(normalized_shape):
        given = f"Given normalized_shape={list(normalized_shape)}"
        raise ShapeError(f"{name}: {given}, expected input with shape [*, ...] that ends in it, got {input}")
    for what, parameter in zip(("weight", "bias"), affine, strict=False):
        if parameter is not None and parameter.shape != normalized_shape:
            shape = f"{list(normalized_shape)}, but got {parameter}"
            raise ShapeError(f"{name}: Expected {what} to be of same shape as normalized_shape {shape}")


@op(module="nn.functional", method=False, out=False)
def layer_norm(
    input: Meta, normalized_shape: Size, weight: Meta | None = None, bias: Meta | None = None, eps: float = 1e-5
) -> Meta:  # fmt: skip
    """Compute (input - mean) / sqrt(var + eps) * weight + bias over the last dimensions."""
    _check_layer("layer_norm", input, normalized_shape, weight, bias)
    return input.like()


@op(out=False, method=False, returns=("out", "mean", "rstd"))
def _layer_norm(
    input: Meta, normalized_shape: Size, weight: Meta | None, bias: Meta | None, eps: float
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    """Compute ``layer_norm``, and the mean and the reciprocal standard deviation that backward needs."""
    _check_layer("_layer_norm", input, normalized_shape, weight, bias)
    lead = input.ndim - len(normalized_shape)
    dtype = float32 if input.dtype.itemsize == 2 else input.dtype
    statistic = input.like((*input.shape[:lead], *(1 for _ in normalized_shape)), dtype=dtype)
    return input.like(), statistic, statistic


@op(out=False, method=False)
def _layer_norm_backward(grad_out: Meta, input: Meta, mean: Meta, rstd: Meta, weight: Meta | None) -> Meta:
    """Compute the gradient of ``_layer_norm`` by its input."""
    _check_statistics("_layer_norm_backward", grad_out, input, mean, rstd)
    parts = weight.ndim if weight is not None else 0
    if weight is not None and (parts > input.ndim or weight.shape != input.shape[input.ndim - parts :]):
        raise ShapeError(f"_layer_norm_backward: weight {weight} is not one for {input}")
    if any(mean.shape[input.ndim - parts :][d] != 1 for d in range(parts)):
        raise ShapeError(f"_layer_norm_backward: statistics {mean} do not go with weight {weight}")
    return input.like()


def _check_statistics(name: str, grad_out: Meta, input: Meta, mean: Meta, rstd: Meta) -> None:
    """Refuse what a forward pass cannot have given: statistics have one element per row of the input."""
    check_backward(name, grad_out, input)
    if not all(m.dtype.is_floating_point for m in (grad_out, input, mean, rstd)):
        raise DTypeError(f"{name}: expected floating point types, got {grad_out}, {input}, {mean} and {rstd}")
    shapes = [(*input.shape[:lead], *(1,) * (input.ndim - lead)) for lead in range(input.ndim)]
    if mean.shape not in shapes or rstd.shape != mean.shape:
        raise ShapeError(f"{name}: {mean} and {rstd} are not the statistics of rows of {input}")


@op(out=False, method=False)
def _layer_norm_weight_backward(grad_out: Meta, input: Meta, mean: Meta, rstd: Meta, normalized_shape: Size) -> Meta:
    """Compute the gradient of ``_layer_norm`` by its weight: the sum over rows of grad_out * (input - mean) * rstd."""
    _check_statistics("_layer_norm_weight_backward", grad_out, input, mean, rstd)
    _check_layer("_layer_norm_weight_backward", input, normalized_shape)
    _check_normalized("_layer_norm_weight_backward", input, mean, normalized_shape)
    return input.like(normalized_shape)


@op(out=False, method=False, returns=("grad_input", "grad_weight", "grad_bias"))
def _layer_norm_gradients(
    grad_out: Meta, input: Meta, mean: Meta, rstd: Meta, weight: Meta | None, normalized_shape: Size
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    """Compute all gradients of ``_layer_norm`` in one pass; parameters' gradients have the weight's type."""
    _check_statistics("_layer_norm_gradients", grad_out, input, mean, rstd)
    _check_layer("_layer_norm_gradients", input, normalized_shape, weight)
    _check_normalized("_layer_norm_gradients", input, mean, normalized_shape)
    parameter = (weight or input).like(normalized_shape)
    return input.like(), parameter, parameter


def _check_normalized(name: str, input: Meta, statistic: Meta, normalized_shape: Size) -> None:
    if statistic.shape != (*input.shape[: input.ndim - len(normalized_shape)], *(1,) * len(normalized_shape)):
        raise ShapeError(f"{name}: statistics {statistic} are not over normalized_shape {list(normalized_shape)}")


@op(out=False, method=False, returns=("out", "rstd"))
def _rms_norm(input: Meta, normalized_shape: Size, weight: Meta | None, eps: float) -> tuple[Meta, Meta]:
    """Compute ``rms_norm``, and the reciprocal root of the mean square that backward needs."""
    _check_layer("_rms_norm", input, normalized_shape, weight)
    lead = input.ndim - len(normalized_shape)
    dtype = float32 if input.dtype.itemsize == 2 else input.dtype
    return input.like(), input.like((*input.shape[:lead], *(1 for _ in normalized_shape)), dtype=dtype)


@op(out=False, method=False, returns=("grad_input", "grad_weight"))
def _rms_norm_gradients(
    grad_out: Meta, input: Meta, rstd: Meta, weight: Meta | None, normalized_shape: Size
) -> tuple[Meta, Meta]:  # fmt: skip
    """Compute both gradients of ``_rms_norm`` in one pass; the weight's has the weight's type if it is given."""
    _check_statistics("_rms_norm_gradients", grad_out, input, rstd, rstd)
    _check_layer("_rms_norm_gradients", input, normalized_shape, weight)
    _check_normalized("_rms_norm_gradients", input, rstd, normalized_shape)
    return input.like(), (weight or input).like(normalized_shape)


@op(module="nn.functional", method=False, out=False)
def rms_norm(input: Meta, normalized_shape: Size, weight: Meta | None = None, eps: Scalar | None = None) -> Meta:
    """Compute input / sqrt(mean(input ** 2) + eps) * weight over the last dimensions; eps defaults to the type's."""
    if not input.dtype.is_differentiable:
        raise DTypeError(f"rms_norm: expected a floating point type, got {input}")
    if isinstance(eps, complex):
        raise ArgumentError(f"rms_norm: eps must be a real number, got {eps}")
    if input.dtype.is_complex:
        _check_layer("rms_norm", input.like(dtype=input.dtype.to_real()), normalized_shape, weight)
    else:
        _check_layer("rms_norm", input, normalized_shape, weight)
    return input.like()


@op(module="nn.functional", method=False, out=False)
def group_norm(
    input: Meta, num_groups: int, weight: Meta | None = None, bias: Meta | None = None, eps: float = 1e-5
) -> Meta:  # fmt: skip
    """Normalize every sample over groups of channels: (n, c, ...)."""
    if input.ndim < 2:
        raise ShapeError(f"group_norm: Expected at least 2 dimensions for input tensor but received {input}")
    channels = input.shape[1]
    if num_groups <= 0 or channels % num_groups:
        wrong = f"input of shape {list(input.shape)} and num_groups={num_groups}"
        raise ArgumentError(
            f"group_norm: Expected number of channels in input to be divisible by num_groups, but got {wrong}"
        )
    if input.numel == num_groups:
        raise ArgumentError(
            f"group_norm: Expected more than 1 value per channel when training, got {input} of {num_groups} groups: "
            "each result would be zero"
        )
    _check_channels("group_norm", channels, weight, bias)
    return input.like()


@op(out=False, method=False, returns=("out", "mean", "rstd"))
def _group_norm(
    input: Meta, num_groups: int, weight: Meta | None, bias: Meta | None, eps: float
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    """Compute ``group_norm``, and the mean and the reciprocal standard deviation of every group."""
    _check_groups("_group_norm", input, num_groups)
    _check_channels("group_norm", input.shape[1], weight, bias)
    dtype = float32 if input.dtype.itemsize == 2 else input.dtype
    statistic = input.like((input.shape[0], num_groups), dtype=dtype)
    return input.like(), statistic, statistic


def _check_groups(name: str, input: Meta, num_groups: int) -> None:
    if input.ndim < 2 or not input.numel or not input.dtype.is_floating_point:
        raise ShapeError(f"{name}: expected floating point elements of (N, C, ...), got {input}")
    if num_groups <= 0 or input.shape[1] % num_groups:
        raise ArgumentError(f"{name}: the channels of {input} do not divide into {num_groups} groups")


@op(out=False, method=False, returns=("grad_input", "grad_weight", "grad_bias"))
def _group_norm_gradients(
    grad_out: Meta, input: Meta, mean: Meta, rstd: Meta, weight: Meta | None, num_groups: int
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    """Compute all gradients of ``_group_norm``; parameters' gradients have the weight's type."""
    _check_groups("_group_norm_gradients", input, num_groups)
    check_backward("_group_norm_gradients", grad_out, input)
    _check_channels("_group_norm_gradients", input.shape[1], weight)
    statistics = (input.shape[0], num_groups)
    if not all(m.dtype.is_floating_point for m in (grad_out, mean, rstd)) or (mean.shape, rstd.shape) != (
        statistics, statistics,
    ):  # fmt: skip
        raise ShapeError(
            f"_group_norm_gradients: {mean} and {rstd} are not statistics of {num_groups} groups of {input}"
        )
    parameter = (weight or input).like((input.shape[1],))
    return input.like(), parameter, parameter


def _check_channels(name: str, channels: int, *parameters: Meta | None) -> None:
    for parameter in parameters:
        if parameter is not None and parameter.shape != (channels,):
            raise ShapeError(f"{name}: parameters and statistics must have shape [{channels}], got {parameter}")


@op(out=False, method=False, returns=("out", "mean", "var", "rstd"))
def _batch_norm(input: Meta, weight: Meta | None, bias: Meta | None, eps: float) -> tuple[Meta, Meta, Meta, Meta]:
    """Compute ``batch_norm`` by the batch's statistics, and these: mean, variance, reciprocal standard deviation."""
    if input.ndim < 2 or not input.numel:
        raise ShapeError(f"_batch_norm: expected elements of (N, C, ...), got {input}")
    if not input.dtype.is_floating_point:
        raise DTypeError(f"_batch_norm: expected a floating point type, got {input}")
    _check_channels("batch_norm", input.shape[1], weight, bias)
    statistic = input.like((input.shape[1],), dtype=float32 if input.dtype.itemsize == 2 else input.dtype)
    return in_format(input), statistic, statistic, statistic


@op(out=False, method=False, returns=("grad_input", "grad_weight", "grad_bias"))
def _batch_norm_gradients(
    grad_out: Meta, input: Meta, mean: Meta, rstd: Meta, weight: Meta | None
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    """Compute all gradients of ``_batch_norm``; parameters' gradients have the weight's type."""
    check_backward("_batch_norm_gradients", grad_out, input)
    if input.ndim < 2 or not all(m.dtype.is_floating_point for m in (grad_out, input, mean, rstd)):
        raise ShapeError(f"_batch_norm_gradients: expected floating point (N, C, ...), got {grad_out} and {input}")
    _check_channels("_batch_norm_gradients", input.shape[1], mean, rstd, weight)
    parameter = (weight or input).like((input.shape[1],))
    return in_format(input), parameter, parameter


@op(out=False, method=False, differentiable=False, mutates=("running_mean", "running_var"))
def _update_running_statistics_(
    running_mean: Meta | None, running_var: Meta | None, mean: Meta, var: Meta, momentum: float, factor: float
) -> None:
    """Move the running statistics of ``batch_norm`` by ``momentum``; ``factor`` is what the variance is scaled by."""
    name = "_update_running_statistics_"
    given = [meta for meta in (running_mean, running_var, mean, var) if meta is not None]
    if mean.ndim != 1 or not all([meta.dtype.is_floating_point for meta in given]):
        raise ShapeError(f"{name}: expected floating point vectors of channels, got {mean}")
    _check_channels(name, mean.shape[0], running_mean, running_var, var)


def in_format(input: Meta) -> Meta:
    """Return the meta of a result in the input's memory format: with channels innermost, or row-major."""
    if is_channels_last(input.shape, input.strides):
        return input.like(strides=channels_last_strides(input.shape))
    return input.like()


@op(module="nn.functional", method=False, out=False, no_grad=("running_mean", "running_var"))
def batch_norm(
    input: Meta, running_mean: Meta | None, running_var: Meta | None, weight: Meta | None = None,
    bias: Meta | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Meta:  # fmt: skip
    """Normalize every channel, over the batch when training, else by the running statistics: (n, c, ...)."""
    if eps <= 0:
        raise ArgumentError(f"batch_norm: eps must be positive, got {eps}")
    if input.numel == 0:
        return input.like()
    if input.ndim < 2:
        raise ShapeError(f"batch_norm: expected (N, C, ...), got {input}")
    if not input.dtype.is_differentiable:
        raise DTypeError(f"batch_norm: expected a floating point type, got {input}")
    _check_channels("batch_norm", input.shape[1], running_mean, running_var, weight, bias)
    if not training and (running_mean is None or running_var is None):
        raise ArgumentError("batch_norm: running_mean and running_var are needed when not training")
    if training and math.prod(input.shape) == input.shape[1]:
        raise ArgumentError(
            f"batch_norm: Expected more than 1 value per channel when training, got {input}; train on larger "
            "batches, or call eval() first"
        )
    return in_format(input)


@op(module="nn.functional", method=False)
def normalize(input: Meta, p: float = 2.0, dim: int | Size = 1, eps: float = 1e-12) -> Meta:
    """Compute input / max(norm(input), eps) along a dimension."""
    wrap_dims("normalize", (dim,) if isinstance(dim, int) else dim, input.ndim)
    if not input.dtype.is_differentiable:
        raise DTypeError(f"normalize: expected a floating point type, got {input}")
    return input.like(strides=result_strides(input.shape, [(input.shape, input.strides)]))
