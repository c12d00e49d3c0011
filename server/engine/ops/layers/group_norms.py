"""Group normalization. In double precision on the host it is layer normalization of the groups, with weight and bias
applied afterwards.
"""

from __future__ import annotations

from server.engine import functional as F
from server.engine import keys
from server.engine.array_library.indexing import sum_over
from server.engine.registry import composite, implements
from telegrad_protocol.dtypes import float64
from telegrad_protocol.ops.layers import normalization as ops

from .normalization import affine, computed_in_float32, layer_norm_double_backward, select_wanted


@composite(ops.group_norm)
def group_norm(input, num_groups, weight, bias, eps):
    if input.numel == 0:
        return affine(input, weight, bias)
    is_wide = input.backend.key == keys.CPU and input.dtype is float64
    if is_wide or not input.dtype.is_floating_point:
        return _by_layer_norm(input, num_groups, weight, bias, eps)
    return F._group_norm(input, num_groups, weight, bias, eps)[0]


@computed_in_float32
def _by_layer_norm(input, num_groups, weight, bias, eps):
    batch = input.shape[0]
    length = input.numel // (batch * num_groups)
    grouped = F.reshape(input, (batch, num_groups, length))
    result = F.reshape(F._layer_norm(grouped, (length,), None, None, eps)[0], input.shape)
    return affine(result, weight, bias)


def _grouped(value, num_groups):
    """(N, C, ...) as (N, groups, channels of a group, elements of a channel)."""
    inner = value.numel // (value.shape[0] * value.shape[1])
    return F.reshape(value, (value.shape[0], num_groups, value.shape[1] // num_groups, inner))


def _statistics(value):
    """(N, groups) as (N, groups, 1, 1)."""
    return F.reshape(value, (*value.shape, 1, 1))


def _parameter(value, num_groups):
    """(C) as (1, groups, channels of a group, 1)."""
    return F.reshape(value, (1, num_groups, value.shape[0] // num_groups, 1))


def _standardized(input, mean, rstd, num_groups):
    """Input and statistics in shapes that broadcast against each other, and the standardized input."""
    x, mean, rstd = _grouped(input, num_groups), _statistics(mean), _statistics(rstd)
    return x, mean, rstd, F.mul(F.sub(x, mean), rstd)


def _backward_grad_out(grads, input, mean, rstd, weight, num_groups):
    x, mean, rstd, standard = _standardized(input, mean, rstd, num_groups)
    gradient = F._layer_norm_backward(_grouped(grads[0], num_groups), x, mean, rstd, None)
    gradient = gradient if weight is None else F.mul(gradient, _parameter(weight, num_groups))
    gradient = F.add(gradient, F.mul(standard, _parameter(grads[1], num_groups)))
    return F.reshape(F.add(gradient, _parameter(grads[2], num_groups)), input.shape)


def _backward_input(grads, grad_out, input, mean, rstd, weight, num_groups):
    x, mean, rstd, _ = _standardized(input, mean, rstd, num_groups)
    grad = _grouped(grad_out, num_groups)
    scaled = grad if weight is None else F.mul(grad, _parameter(weight, num_groups))
    gradient = layer_norm_double_backward(_grouped(grads[0], num_groups), scaled, x, mean, rstd, None)
    through_weight = F.mul(grad, _parameter(grads[1], num_groups))
    return F.reshape(F.add(gradient, F._layer_norm_backward(through_weight, x, mean, rstd, None)), input.shape)


def _backward_weight(grads, grad_out, input, mean, rstd, weight_meta, num_groups):
    x, mean, rstd, _ = _standardized(input, mean, rstd, num_groups)
    normalized = F._layer_norm_backward(_grouped(grads[0], num_groups), x, mean, rstd, None)
    return F.reshape(F.sum(F.mul(_grouped(grad_out, num_groups), normalized), (0, 3)), weight_meta.shape)


def _weight_gradient(grad_out, input, mean, rstd, num_groups):
    standard = _standardized(input, mean, rstd, num_groups)[3]
    return F.reshape(F.sum(F.mul(_grouped(grad_out, num_groups), standard), (0, 3)), (input.shape[1],))


@implements(
    ops._group_norm,
    input=lambda grad_out, input, mean, rstd, weight, num_groups: F._group_norm_gradients(
        grad_out, input, mean, rstd, weight, num_groups
    )[0],
    weight=_weight_gradient,
    bias=lambda grad_out: F.sum(grad_out, (0, *range(2, grad_out.ndim))),
    together=lambda grad_out, input, mean, rstd, weight, num_groups, wanted: select_wanted(
        F._group_norm_gradients(grad_out, input, mean, rstd, weight, num_groups), wanted
    ),
)
def _group_norm(xp, input, num_groups, weight, bias, eps, *, out):
    result, mean, rstd = out
    x = input.reshape(*mean.shape, -1)
    mean[...] = xp.mean(x, axis=2)
    centred = x - mean[..., None]
    rstd[...] = 1 / xp.sqrt(xp.mean(centred * centred, axis=2) + eps)
    channels = (1, -1, *(1 for _ in input.shape[2:]))
    normalized = (centred * rstd[..., None]).reshape(input.shape)
    if weight is not None:
        normalized *= weight.reshape(channels)
    result[...] = normalized if bias is None else normalized + bias.reshape(channels)


@implements(
    ops._group_norm_gradients,
    grad_out=_backward_grad_out,
    input=_backward_input,
    mean=None,  # the derivative by input includes what goes through the statistics
    rstd=None,
    weight=_backward_weight,
)
def _group_norm_gradients(xp, grad_out, input, mean, rstd, weight, num_groups, *, out):
    by_input, by_weight, by_bias = out
    shape = (*mean.shape, input.shape[1] // num_groups, -1)
    x = (input.reshape(*mean.shape, -1) - mean[..., None]) * rstd[..., None]
    x, grad = x.reshape(shape), grad_out.reshape(shape)
    by_weight[...] = sum_over(xp, grad * x, (0, 3)).reshape(by_weight.shape)
    by_bias[...] = sum_over(xp, grad, (0, 3)).reshape(by_bias.shape)
    scaled = grad if weight is None else grad * weight.reshape(1, num_groups, -1, 1)
    centred = scaled - xp.mean(scaled, axis=(2, 3), keepdims=True)
    centred = centred - x * xp.mean(scaled * x, axis=(2, 3), keepdims=True)
    by_input[...] = (centred * rstd[..., None, None]).reshape(by_input.shape)
