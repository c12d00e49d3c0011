"""Dropout, gated activations, and padding."""

from __future__ import annotations

import math

from server.engine import functional as F
from server.engine import random
from server.engine.array_library.cache_blocks import number
from server.engine.ops.derivatives import with_zero_derivative
from server.engine.registry import composite, implements
from telegrad_protocol.ops.layers import nn as ops


def dropout_scale(p):
    """What elements that are kept are multiplied by."""
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def _dropout_gradient(grad_output, mask, p, train):
    return F.native_dropout_backward(grad_output, mask, dropout_scale(p) if train is not False else 1.0)


@implements(ops.native_dropout, input=_dropout_gradient)
def native_dropout(xp, input, p, train, *, generator, out):
    output, mask = out
    if train is False:
        output[...], mask[...] = input, True
        return
    mask[...] = random.bernoulli(xp, generator, 1.0 - p, input.size).reshape(input.shape)
    xp.multiply(input, mask, out=output)
    xp.multiply(output, dropout_scale(p), out=output)


@implements(
    ops.native_dropout_backward,
    grad_output=lambda grad, mask, scale: F.native_dropout_backward(grad, mask, scale),
    mask=None,
)
def native_dropout_backward(xp, grad_output, mask, scale, *, out):
    xp.multiply(grad_output, mask, out=out)
    xp.multiply(out, scale, out=out)


@composite(ops.dropout)
def dropout(input, p, training):
    if ops.keeps_all(input.meta, p, training):
        return input
    return F.native_dropout(input, p, True)[0]


def _channel_noise(input, p):
    """The factors of whole channels, 0 or 1 / (1 - p), of shape (n, c, 1, ...)."""
    size = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return F.dropout(F.ones(size, dtype=input.dtype, device=input.device), p)


@composite(ops.feature_dropout)
def feature_dropout(input, p, train):
    return input if ops.keeps_all(input.meta, p, train) else F.mul(input, _channel_noise(input, p))


_SELU_LIMIT = 1.7580993408473766
"""SELU tends to the negative of this number at minus infinity: alpha * scale."""


@composite(ops.alpha_dropout)
def alpha_dropout(input, p, training):
    """input * kept * a + (1 - kept) * -limit * a + b (G. Klambauer et al., Self-Normalizing Neural Networks, 2017)"""
    if ops.keeps_all(input.meta, p, training):
        return input
    if p == 1.0:
        return F.mul(input, 0)
    kept = F.native_dropout(F.ones_like(input), p, True)[1]
    a = 1.0 / math.sqrt((1.0 - p) * (1.0 + p * _SELU_LIMIT**2))
    return F.add(F.mul(F.where(kept, input, -_SELU_LIMIT), a), a * p * _SELU_LIMIT)


@composite(ops.glu)
def glu(input, dim):
    half = input.shape[dim] // 2
    return F.mul(F.narrow(input, dim, 0, half), F.sigmoid(F.narrow(input, dim, half, half)))


@composite(ops.prelu)
def prelu(input, weight):
    spread = F.reshape(weight, ops.per_channel(input.meta, weight.meta))
    operand = with_zero_derivative(input)
    return F.where(F.gt(input, 0), operand, F.mul(operand, spread))


def _margins(pad, sign):
    """The padding of every dimension, last dimension first: what is added with sign 1, what is cropped with sign -1."""
    return tuple([(max(sign * pad[i], 0), max(sign * pad[i + 1], 0)) for i in range(0, len(pad), 2)])


def _crop(array, margins):
    """The view of the array without the margins."""
    slices = [slice(before, size - after) for size, (before, after) in zip(array.shape[::-1], margins, strict=False)]
    return array[(..., *reversed(slices))]


@implements(
    ops.constant_pad_nd,
    movement=True,
    input=lambda grad, pad: F.constant_pad_nd(grad, tuple(-amount for amount in pad)),
)
def constant_pad_nd(xp, input, pad, value, *, out):
    out[...] = number(value, out.dtype)
    if pad:
        _crop(out, _margins(pad, 1))[...] = _crop(input, _margins(pad, -1))
    else:
        out[...] = input
