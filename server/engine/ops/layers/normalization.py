"""Layer, RMS, batch and instance normalization: generic kernels, and derivative formulas up to the second order."""

from __future__ import annotations

from functools import wraps

import numpy as np

from server.engine import functional as F
from server.engine import keys
from server.engine.array_library.dtypes import HALVES
from server.engine.array_library.indexing import sum_over
from server.engine.operators import OPERATORS, Single
from server.engine.registry import comes_to, composite, implements, spending
from server.engine.value import Value
from telegrad_protocol import dtypes
from telegrad_protocol.ops.layers import normalization as ops

_LAYER_NORM = OPERATORS["_layer_norm"]
_EPSILON = {
    dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52, dtypes.complex64: 2.0**-23, dtypes.complex128: 2.0**-52,
}  # fmt: skip


@composite(ops.layer_norm)
def layer_norm(input, normalized_shape, weight, bias, eps):
    return F._layer_norm(input, normalized_shape, weight, bias, eps)[0]


@comes_to(ops.layer_norm)
def _only_layer_norm(records, *args):
    return Single(_LAYER_NORM, place=0)


def _normalized_dims(statistic, input):
    """The normalized dimensions: those in which the statistics have size 1 and the input has not."""
    return tuple(d for d in range(input.ndim) if statistic.shape[d] == 1 and input.shape[d] != 1)


def _mean(value, like):
    dims = _normalized_dims(like, value)
    return F.mean(value, dims, True) if dims else value


def _standardized(input, mean, rstd):
    return F.mul(F.sub(input, mean), rstd)


@implements(
    ops._layer_norm,
    input=lambda grad_out, input, mean, rstd, weight: F._layer_norm_backward(grad_out, input, mean, rstd, weight),
    weight=lambda grad_out, input, mean, rstd, normalized_shape: F._layer_norm_weight_backward(
        grad_out, input, mean, rstd, normalized_shape
    ),
    bias=lambda grad_out: grad_out,  # the engine sums over the rows
    together=spending(
        lambda grad_out, input, mean, rstd, weight, normalized_shape, wanted: select_wanted(
            F._layer_norm_gradients(grad_out, input, mean, rstd, weight, normalized_shape), wanted
        )
    ),
)
def _layer_norm(xp, input, normalized_shape, weight, bias, eps, *, out):
    result, mean, rstd = out
    axis = tuple(range(-len(normalized_shape), 0))
    mean[...] = xp.mean(input, axis=axis, keepdims=True)
    xp.subtract(input, mean, out=result)
    rstd[...] = 1 / xp.sqrt(xp.mean(result * result, axis=axis, keepdims=True) + eps)
    result *= rstd
    if weight is not None:
        result *= weight
    if bias is not None:
        result += bias


def select_wanted(gradients, wanted):
    """The gradients that are wanted, and None in place of the others."""
    return tuple([gradient if is_wanted else None for gradient, is_wanted in zip(gradients, wanted, strict=True)])


def layer_norm_double_backward(grad, grad_out, input, mean, rstd, weight):
    """The gradient of ``_layer_norm_backward`` by the input.

    With v = grad, w = grad_out * weight, x the standardized input, and means over a row of n elements,
    <v, backward(w)> = n rstd (mean(v w) - mean(v) mean(w) - mean(v x) mean(w x)); its derivative goes through rstd and
    through x.
    """
    scaled = grad_out if weight is None else F.mul(grad_out, weight)
    x = _standardized(input, mean, rstd)
    v_x, w_x = _mean(F.mul(grad, x), mean), _mean(F.mul(scaled, x), mean)
    covariance = F.sub(_mean(F.mul(grad, scaled), mean), F.mul(_mean(grad, mean), _mean(scaled, mean)))
    covariance = F.sub(covariance, F.mul(v_x, w_x))
    through_x = F.neg(F.mul(F.add(F.mul(grad, w_x), F.mul(scaled, v_x)), rstd))
    through_rstd = F.mul(F.mul(F.mul(rstd, rstd), covariance), x)
    return F.sub(F._layer_norm_backward(through_x, input, mean, rstd, None), through_rstd)


def _layer_grad_out(grad, input, mean, rstd, weight):
    """The gradient of ``_layer_norm_backward`` by grad_out: without the weight, the map is symmetric."""
    gradient = F._layer_norm_backward(grad, input, mean, rstd, None)
    return gradient if weight is None else F.mul(gradient, weight)


@implements(
    ops._layer_norm_backward,
    grad_out=_layer_grad_out,
    input=layer_norm_double_backward,
    mean=None,  # the derivative by input includes what goes through the statistics
    rstd=None,
    weight=lambda grad, grad_out, input, mean, rstd: F.mul(
        grad_out, F._layer_norm_backward(grad, input, mean, rstd, None)
    ),
)
def _layer_norm_backward(xp, grad_out, input, mean, rstd, weight, *, out):
    axis = _normalized_dims(mean, input)
    scaled = grad_out if weight is None else grad_out * weight
    x = (input - mean) * rstd
    along = xp.mean(scaled * x, axis=axis, keepdims=True)
    out[...] = (scaled - xp.mean(scaled, axis=axis, keepdims=True) - x * along) * rstd


@implements(
    ops._layer_norm_weight_backward,
    grad_out=lambda grad, input, mean, rstd: F.mul(_standardized(input, mean, rstd), grad),
    input=lambda grad, grad_out, input, mean, rstd: F._layer_norm_backward(grad_out, input, mean, rstd, grad),
    mean=None,
    rstd=None,
)
def _layer_norm_weight_backward(xp, grad_out, input, mean, rstd, normalized_shape, *, out):
    axis = tuple(range(input.ndim - len(normalized_shape)))
    out[...] = sum_over(xp, (input - mean) * rstd * grad_out, axis)


def _backend_kernel(xp, name):
    """The kernel of an operation on the array library's backend."""
    return OPERATORS[name].kernels[keys.CPU if xp is np else keys.CUDA].function


@implements(
    ops._layer_norm_gradients,
    grad_out=lambda grads, input, mean, rstd, weight: F.add(
        F.add(_layer_grad_out(grads[0], input, mean, rstd, weight), F.mul(_standardized(input, mean, rstd), grads[1])),
        grads[2],
    ),
    input=lambda grads, grad_out, input, mean, rstd, weight: F.add(
        layer_norm_double_backward(grads[0], grad_out, input, mean, rstd, weight),
        F._layer_norm_backward(grad_out, input, mean, rstd, grads[1]),
    ),
    mean=None,  # the derivative by input includes what goes through the statistics
    rstd=None,
    weight=lambda grads, grad_out, input, mean, rstd: F.mul(
        grad_out, F._layer_norm_backward(grads[0], input, mean, rstd, None)
    ),
)
def _layer_norm_gradients(xp, grad_out, input, mean, rstd, weight, normalized_shape, *, out):
    by_input, by_weight, by_bias = out
    _backend_kernel(xp, "_layer_norm_backward")(xp, grad_out, input, mean, rstd, weight, out=by_input)
    by_rows = _backend_kernel(xp, "_layer_norm_weight_backward")
    by_rows(xp, grad_out, input, mean, rstd, normalized_shape, out=by_weight)
    by_bias[...] = sum_over(xp, grad_out, tuple(range(input.ndim - len(normalized_shape))))


@implements(
    ops._rms_norm,
    input=lambda grad_out, input, rstd, weight, normalized_shape: F._rms_norm_gradients(
        grad_out, input, rstd, weight, normalized_shape
    )[0],
    weight=lambda grad_out, input, rstd: F.mul(F.mul(input, rstd), grad_out),  # the engine sums over the rows
    together=spending(
        lambda grad_out, input, rstd, weight, normalized_shape, wanted: select_wanted(
            F._rms_norm_gradients(grad_out, input, rstd, weight, normalized_shape), wanted
        )
    ),
)
def _rms_norm(xp, input, normalized_shape, weight, eps, *, out):
    result, rstd = out
    axis = tuple(range(-len(normalized_shape), 0))
    rstd[...] = 1 / xp.sqrt(xp.mean(input * input, axis=axis, keepdims=True) + eps)
    xp.multiply(input, rstd, out=result)
    if weight is not None:
        result *= weight


def _rms_backward_grad_out(grads, input, rstd, weight, normalized_shape):
    gradient = F._rms_norm_gradients(grads[0], input, rstd, None, normalized_shape)[0]
    gradient = gradient if weight is None else F.mul(gradient, weight)
    return F.add(gradient, F.mul(F.mul(input, rstd), grads[1]))


def _rms_backward_input(grads, grad_out, input, rstd, weight, normalized_shape):
    """The gradient of ``_rms_norm_gradients`` by the input.

    With v = grads[0], w = grad_out * weight, x the normalized input, and means over a row of n elements,
    <v, backward(w)> = n rstd (mean(v w) - mean(v x) mean(w x)).
    """
    v, w = grads[0], grad_out if weight is None else F.mul(grad_out, weight)
    x = F.mul(input, rstd)
    v_x, w_x = _mean(F.mul(v, x), rstd), _mean(F.mul(w, x), rstd)
    rest = F.sub(_mean(F.mul(v, w), rstd), F.mul(F.mul(v_x, w_x), 3))
    total = F.add(F.add(F.mul(x, rest), F.mul(v, w_x)), F.mul(w, v_x))
    by_weight = F._rms_norm_gradients(grad_out, input, rstd, grads[1], normalized_shape)[0]
    return F.sub(by_weight, F.mul(F.mul(rstd, rstd), total))


@implements(
    ops._rms_norm_gradients,
    grad_out=_rms_backward_grad_out,
    input=_rms_backward_input,
    rstd=None,  # the derivative by input includes what goes through the statistics
    weight=lambda grads, grad_out, input, rstd, normalized_shape: F.mul(
        grad_out, F._rms_norm_gradients(grads[0], input, rstd, None, normalized_shape)[0]
    ),
)
def _rms_norm_gradients(xp, grad_out, input, rstd, weight, normalized_shape, *, out):
    by_input, by_weight = out
    x = input * rstd
    by_weight[...] = sum_over(xp, x * grad_out, tuple(range(input.ndim - len(normalized_shape))))
    scaled = grad_out if weight is None else grad_out * weight
    along = xp.mean(scaled * x, axis=tuple(range(-len(normalized_shape), 0)), keepdims=True)
    by_input[...] = (scaled - x * along) * rstd


def computed_in_float32(function):
    """Wrap a composite so that it computes half precision in float32 and rounds once, at the end."""

    @wraps(function)
    def run(input, *args):
        dtype = input.dtype
        if dtype not in HALVES:
            return function(input, *args)
        return F._to_copy(function(_upcast(input), *map(_upcast, args)), dtype=dtype)

    return run


def _upcast(arg):
    return F._to_copy(arg, dtype=dtypes.float32) if arg.__class__ is Value and arg.dtype in HALVES else arg


@composite(ops.rms_norm)
def rms_norm(input, normalized_shape, weight, eps):
    if input.dtype.is_complex or (weight is not None and weight.dtype.is_complex):
        return _complex_rms_norm(input, normalized_shape, weight, eps)
    eps = _EPSILON.get(input.dtype, _EPSILON[dtypes.float32]) if eps is None else float(eps)
    return F._rms_norm(input, normalized_shape, weight, eps)[0]


def _complex_rms_norm(input, normalized_shape, weight, eps):
    power = F.mean(F.mul(input, input), tuple(range(-len(normalized_shape), 0)), True)
    result = F.mul(input, F.rsqrt(F.add(power, _EPSILON[input.dtype] if eps is None else eps)))
    return result if weight is None else F.mul(result, weight)


def affine(result, weight, bias):
    """Scale and shift channels, which are dimension 1."""
    shape = (1, -1, *(1 for _ in result.shape[2:]))
    if weight is not None:
        result = F.mul(result, F.reshape(weight, shape))
    return result if bias is None else F.add(result, F.reshape(bias, shape))


@composite(ops.batch_norm)
def batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps):
    if input.numel == 0:
        return F.clone(input) if input.ndim < 2 else affine(input, weight, bias)
    if not training:
        result = _standardize(input, weight, bias, running_mean, running_var, eps)
        strides = ops.in_format(input.meta).strides
        return result if result.meta.strides == strides else F._in_layout(result, strides)
    result, mean, var, _ = F._batch_norm(input, weight, bias, eps)
    count = input.numel // input.shape[1]
    if running_mean is not None or running_var is not None:
        factor = momentum * count / (count - 1)
        F._update_running_statistics_(running_mean, running_var, mean, var, momentum, factor)
    return result


def _per_channel(value, like):
    """A vector of channels in a shape that broadcasts against (n, c, ...): (1, c, 1, ...)."""
    return F.reshape(value, (1, -1, *(1 for _ in like.shape[2:])))


def _over_channels(value):
    """The dimensions over which batch normalization takes a channel's statistics."""
    return (0, *range(2, value.ndim))


def _batch_standardized(input, mean, rstd):
    return F.mul(F.sub(input, _per_channel(mean, input)), _per_channel(rstd, input))


def _batch_backward(grad, x, rstd):
    """The gradient of standardizing: (grad - mean(grad) - x mean(grad x)) rstd, with means over a channel"""
    dims = _over_channels(x)
    centred = F.sub(F.sub(grad, F.mean(grad, dims, True)), F.mul(x, F.mean(F.mul(grad, x), dims, True)))
    return F.mul(centred, _per_channel(rstd, x))


def _batch_backward_grad_out(grads, input, mean, rstd, weight):
    x = _batch_standardized(input, mean, rstd)
    gradient = _batch_backward(grads[0], x, rstd)
    gradient = gradient if weight is None else F.mul(gradient, _per_channel(weight, x))
    return F.add(F.add(gradient, F.mul(x, _per_channel(grads[1], x))), _per_channel(grads[2], x))


def _batch_backward_input(grads, grad_out, input, mean, rstd, weight):
    """The gradient of ``_batch_norm_gradients`` by the input: as for a layer, with means over channels."""
    x, dims = _batch_standardized(input, mean, rstd), _over_channels(input)
    v, w = grads[0], grad_out if weight is None else F.mul(grad_out, _per_channel(weight, input))
    means = [F.mean(product, dims, True) for product in (F.mul(v, x), F.mul(w, x), F.mul(v, w), v, w)]
    v_x, w_x, v_w, v_mean, w_mean = means
    covariance = F.sub(F.sub(v_w, F.mul(v_mean, w_mean)), F.mul(v_x, w_x))
    scale = _per_channel(rstd, x)
    through_x = F.neg(F.mul(F.add(F.mul(v, w_x), F.mul(w, v_x)), scale))
    through_weight = F.mul(grad_out, _per_channel(grads[1], x))
    through_rstd = F.mul(F.mul(F.mul(scale, scale), covariance), x)
    return F.sub(_batch_backward(F.add(through_x, through_weight), x, rstd), through_rstd)


def _batch_backward_weight(grads, grad_out, input, mean, rstd):
    x = _batch_standardized(input, mean, rstd)
    return F.sum(F.mul(grad_out, _batch_backward(grads[0], x, rstd)), _over_channels(x))


@implements(
    ops._batch_norm,
    input=lambda grad_out, input, mean, rstd, weight: F._batch_norm_gradients(grad_out, input, mean, rstd, weight)[0],
    weight=lambda grad_out, input, mean, rstd: F.sum(
        F.mul(grad_out, _batch_standardized(input, mean, rstd)), _over_channels(input)
    ),
    bias=lambda grad_out: F.sum(grad_out, _over_channels(grad_out)),
    together=lambda grad_out, input, mean, rstd, weight, wanted: select_wanted(
        F._batch_norm_gradients(grad_out, input, mean, rstd, weight), wanted
    ),
)
def _batch_norm(xp, input, weight, bias, eps, *, out):
    result, mean, var, rstd = out
    axis, shape = (0, *range(2, input.ndim)), (1, -1, *(1 for _ in input.shape[2:]))
    count = max(input.size // max(input.shape[1], 1), 1)
    mean[...] = sum_over(xp, input, axis) / count
    centred = input - mean.reshape(shape)
    var[...] = sum_over(xp, centred * centred, axis) / count
    rstd[...] = 1 / xp.sqrt(var + eps)
    scale = rstd if weight is None else rstd * weight
    xp.multiply(centred, scale.reshape(shape), out=result)
    if bias is not None:
        result += bias.reshape(shape)


@implements(
    ops._batch_norm_gradients,
    grad_out=_batch_backward_grad_out,
    input=_batch_backward_input,
    mean=None,  # the derivative by input includes what goes through the statistics
    rstd=None,
    weight=_batch_backward_weight,
)
def _batch_norm_gradients(xp, grad_out, input, mean, rstd, weight, *, out):
    by_input, by_weight, by_bias = out
    axis, shape = (0, *range(2, input.ndim)), (1, -1, *(1 for _ in input.shape[2:]))
    count = input.size // max(input.shape[1], 1)
    x = (input - mean.reshape(shape)) * rstd.reshape(shape)
    along, total = sum_over(xp, grad_out * x, axis), sum_over(xp, grad_out, axis)
    by_weight[...], by_bias[...] = along, total
    scale = rstd if weight is None else rstd * weight
    centred = grad_out - (total / count).reshape(shape) - x * (along / count).reshape(shape)
    xp.multiply(centred, scale.reshape(shape), out=by_input)


@computed_in_float32
def _standardize(input, weight, bias, mean, var, eps):
    rstd = F.rsqrt(F.add(var, eps))
    if input.backend.key == keys.CPU:
        return affine(input, *_slope_and_shift(weight, bias, mean, rstd))
    shape = (1, -1, *(1 for _ in input.shape[2:]))
    return affine(F.mul(F.sub(input, F.reshape(mean, shape)), F.reshape(rstd, shape)), weight, bias)


def _slope_and_shift(weight, bias, mean, rstd):
    """What a channel's elements are multiplied by, and what is added to them, as PyTorch's host computes it."""
    slope = rstd if weight is None else F.mul(rstd, weight)
    shift = F.neg(F.mul(mean, slope))
    return slope, shift if bias is None else F.add(bias, shift)


@implements(ops._update_running_statistics_, movement=True)
def _update_running_statistics_(xp, running_mean, running_var, mean, var, momentum, factor):
    for running, statistic, share in ((running_mean, mean, momentum), (running_var, var, factor)):
        if running is not None:
            wide = running.astype(np.float32) if running.itemsize == 2 else running
            running[...] = (1 - momentum) * wide + share * statistic


@composite(ops.normalize)
@computed_in_float32
def normalize(input, p, dim, eps):
    return F.div(input, F.clamp_min(F.norm(input, p, dim, True), eps))
