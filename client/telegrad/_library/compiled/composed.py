"""Operators of PyTorch's that are compositions of its core ones, by name, with the arguments of their schemas."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from telegrad._tensor.tensor import Tensor

tg: Any = import_module("telegrad")
_NONE, _MEAN, _SUM = 0, 1, 2


def _reduced(loss: Any, reduction: int) -> Any:
    return loss if reduction == _NONE else loss.mean() if reduction == _MEAN else loss.sum()


def _scaled(grad: Any, like: Tensor, reduction: int) -> Any:
    """Return the gradient of each element of a loss whose reduction has this gradient."""
    return grad / like.numel() if reduction == _MEAN else grad


def addcdiv(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    return self + value * (tensor1 / tensor2)


def addcmul(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    return self + value * tensor1 * tensor2


def addr(self: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return beta * self + alpha * vec1.unsqueeze(1) * vec2.unsqueeze(0)


def baddbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return beta * self + alpha * tg.bmm(batch1, batch2)


def binary_cross_entropy(self: Any, target: Any, weight: Any = None, reduction: int = _MEAN) -> Any:
    loss = (target - 1) * tg.log1p(-self).clamp_min(-100) - target * self.log().clamp_min(-100)
    return _reduced(loss if weight is None else loss * weight, reduction)


def celu(self: Any, alpha: Any = 1.0) -> Any:
    return tg.where(self > 0, self, alpha * tg.expm1(self / alpha))


def count_nonzero(self: Any, dim: Any = None) -> Any:
    return (self != 0).sum(dim)


def deg2rad(self: Any) -> Any:
    return self * (tg.pi / 180)


def dot(self: Any, tensor: Any) -> Any:
    return (self * tensor).sum()


def elu(self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    return tg.where(self > 0, self * scale, tg.expm1(self * input_scale) * (alpha * scale))


def fill(self: Any, value: Any) -> Any:
    return tg.full_like(self, value)


def frac(self: Any) -> Any:
    return self - self.trunc()


def gelu_backward(grad_output: Any, self: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        beta = (2 / tg.pi) ** 0.5
        tanh = tg.tanh(beta * (self + 0.044715 * self**3))
        inner = beta * (1 + 3 * 0.044715 * self**2)
        return grad_output * (0.5 * (1 + tanh) + 0.5 * self * (1 - tanh * tanh) * inner)
    density = tg.exp(-0.5 * self * self) * (1 / (2 * tg.pi) ** 0.5)
    return grad_output * (0.5 * (1 + tg.erf(self * 0.5**0.5)) + self * density)


def glu(self: Any, dim: int = -1) -> Any:
    first, second = self.chunk(2, dim)
    return first * tg.sigmoid(second)


def hardshrink(self: Any, lambd: Any = 0.5) -> Any:
    return tg.where((self >= -lambd) & (self <= lambd), tg.zeros_like(self), self)


def hardsigmoid(self: Any) -> Any:
    return (self + 3).clamp(0, 6) / 6


def hardsigmoid_backward(grad_output: Any, self: Any) -> Any:
    return tg.where((self > -3) & (self < 3), grad_output / 6, tg.zeros_like(self))


def hardswish(self: Any) -> Any:
    return self * (self + 3).clamp(0, 6) / 6


def hardswish_backward(grad_output: Any, self: Any) -> Any:
    inner = tg.where(self <= 3, grad_output * (self / 3 + 0.5), grad_output)
    return tg.where(self < -3, tg.zeros_like(self), inner)


def huber_loss(self: Any, target: Any, reduction: int = _MEAN, delta: float = 1.0) -> Any:
    distance = (self - target).abs()
    return _reduced(tg.where(distance <= delta, 0.5 * distance**2, delta * (distance - 0.5 * delta)), reduction)


def isposinf(self: Any) -> Any:
    return self == float("inf")


def isneginf(self: Any) -> Any:
    return self == -float("inf")


def leaky_relu(self: Any, negative_slope: Any = 0.01) -> Any:
    return tg.where(self > 0, self, self * negative_slope)


def leaky_relu_backward(grad_output: Any, self: Any, negative_slope: Any, self_is_result: bool) -> Any:
    return tg.where(self > 0, grad_output, grad_output * negative_slope)


def lerp(self: Any, end: Any, weight: Any) -> Any:
    return self + weight * (end - self)


def logaddexp(self: Any, other: Any) -> Any:
    larger = tg.maximum(self, other)
    return larger + tg.log1p(tg.exp(-(self - other).abs()))


def logit(self: Any, eps: Any = None) -> Any:
    inside = self if eps is None else self.clamp(eps, 1 - eps)
    return (inside / (1 - inside)).log()


def mish(self: Any) -> Any:
    return self * tg.tanh(tg.log1p(tg.exp(self)))


def mse_loss(self: Any, target: Any, reduction: int = _MEAN) -> Any:
    return _reduced((self - target) ** 2, reduction)


def mse_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int) -> Any:
    return _scaled(2.0 * (self - target) * grad_output, self, reduction)


def mv(self: Any, vec: Any) -> Any:
    return (self * vec).sum(1)


def nan_to_num(self: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    limits = tg.finfo(self.dtype)
    result = tg.where(self.isnan(), 0.0 if nan is None else nan, self)
    result = tg.where(isposinf(self), limits.max if posinf is None else posinf, result)
    return tg.where(isneginf(self), limits.min if neginf is None else neginf, result)


def new_full(self: Any, size: Any, fill_value: Any, **options: Any) -> Any:
    given = {name: value for name, value in options.items() if value is not None}
    return tg.full(size, fill_value, **{"dtype": self.dtype, "device": self.device, **given})


def rad2deg(self: Any) -> Any:
    return self * (180 / tg.pi)


def rsub(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    return other - alpha * self


def sigmoid_backward(grad_output: Any, output: Any) -> Any:
    return grad_output * (output * (1 - output))


def silu(self: Any) -> Any:
    return self * tg.sigmoid(self)


def silu_backward(grad_output: Any, self: Any) -> Any:
    sigmoid = 1 / (1 + tg.exp(-self))
    return grad_output * sigmoid * (1 + self * (1 - sigmoid))


def sinc(self: Any) -> Any:
    scaled = self * tg.pi
    return tg.where(self == 0, 1.0, tg.sin(scaled) / scaled)


def smooth_l1_loss(self: Any, target: Any, reduction: int = _MEAN, beta: float = 1.0) -> Any:
    distance = (self - target).abs()
    return _reduced(tg.where(distance < beta, 0.5 * distance**2 / beta, distance - 0.5 * beta), reduction)


def soft_margin_loss(self: Any, target: Any, reduction: int = _MEAN) -> Any:
    return _reduced(tg.log1p(tg.exp(-self * target)), reduction)


def softplus(self: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    scaled = self * beta
    return tg.where(scaled > threshold, self, tg.log1p(tg.exp(scaled)) / beta)


def softshrink(self: Any, lambd: Any = 0.5) -> Any:
    return tg.where(self.abs() > lambd, self - self.sign() * lambd, self * 0)


def std(self: Any, unbiased: bool = True) -> Any:
    return tg.var(self, unbiased=unbiased).sqrt()


def t(self: Any) -> Any:
    return self.transpose(0, 1) if self.ndim == 2 else self


def tanh_backward(grad_output: Any, output: Any) -> Any:
    return grad_output * (1 - output * output)


def threshold(self: Any, threshold: Any, value: Any) -> Any:
    return tg.where(self <= threshold, value, self)


def threshold_backward(grad_output: Any, self: Any, threshold: Any) -> Any:
    return tg.where(self <= threshold, 0, grad_output)


def trace(self: Any) -> Any:
    return self.diagonal().sum()


def vdot(self: Any, other: Any) -> Any:
    return (self.conj() * other).sum()


def xlogy(self: Any, other: Any) -> Any:
    return tg.where(self == 0, 0.0, self * other.log())
