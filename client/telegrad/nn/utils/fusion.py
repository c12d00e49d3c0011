"""Batch normalization in evaluation, folded into the convolution or linear layer before it."""

from __future__ import annotations

import copy
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.nn.parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Return a copy of a convolution that computes the convolution and the normalization after it."""
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(conv)
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def _fused(
    weight: Tensor, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float, bn_weight: Tensor | None,
    bn_bias: Tensor | None, dim: int,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    scale = (var + eps).rsqrt()
    scale = scale if bn_weight is None else scale * bn_weight
    shift = -mean if bias is None else bias - mean
    shift = shift * scale
    shift = shift if bn_bias is None else shift + bn_bias
    shape = [1] * weight.ndim
    shape[dim] = -1
    scaled = (weight * scale.reshape(shape)).to(weight.dtype)
    needs_grad = bias.requires_grad if bias is not None else weight.requires_grad
    return Parameter(scaled.detach(), weight.requires_grad), Parameter(shift.detach().to(weight.dtype), needs_grad)


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None,
    bn_b: Tensor | None, transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Return weight and bias of the convolution that computes a convolution and the normalization after it."""
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Return a copy of a linear layer that computes the layer and the normalization after it."""
    if linear.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor, bn_b: Tensor
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of the linear layer that computes a layer and the normalization after it."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)
