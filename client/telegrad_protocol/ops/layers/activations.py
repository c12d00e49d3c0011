"""Contracts of activation functions. Those that PyTorch has in ``nn.functional`` alone are there alone."""

from __future__ import annotations

from typing import Any

from telegrad_protocol.dtypes import float32
from telegrad_protocol.errors import ArgumentError, DTypeError
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import Scalar, pointwise
from telegrad_protocol.ops.creation import check_fits
from telegrad_protocol.ops.rules import check_backward

_F: dict[str, Any] = {"module": "nn.functional", "method": False}


def _check_numbers(name: str, input: Meta, *numbers: Scalar) -> None:
    """Refuse numbers that the type which the operation computes in cannot hold."""
    for number in numbers:
        check_fits(
            name, number, float32 if input.dtype.is_floating_point and input.dtype.itemsize == 2 else input.dtype
        )


@pointwise(takes="if")
def relu(input: Meta) -> Meta:
    """Compute the rectified linear unit: max(input, 0)."""


@pointwise(takes="f", out=False, inplace=False, method=False)
def _relu_backward(gradient: Meta, result: Meta) -> Meta:
    """Compute the gradient of relu: gradient where ``result`` is positive or NaN, else 0."""
    check_backward("_relu_backward", gradient, result)


@pointwise(takes="f", inplace=False, **_F)
def gelu(input: Meta, *, approximate: str = "none") -> Meta:
    """Compute input * Phi(input), with the normal distribution function Phi or its approximation by ``tanh``."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"gelu: approximate argument must be either 'none' or 'tanh', not {approximate!r}")


@pointwise(takes="f", out=False, inplace=False, method=False)
def _gelu_backward(gradient: Meta, input: Meta, *, approximate: str = "none") -> Meta:
    """Compute the gradient of gelu: gradient * gelu'(input)."""
    check_backward("_gelu_backward", gradient, input)


@pointwise(takes="fc", **_F)
def silu(input: Meta) -> Meta:
    """Compute the sigmoid linear unit: input * sigmoid(input)."""


@pointwise(takes="fc", out=False, inplace=False, method=False)
def _silu_backward(gradient: Meta, input: Meta) -> Meta:
    """Compute the gradient of silu: gradient * silu'(input)."""
    check_backward("_silu_backward", gradient, input)


@pointwise(takes="f", promotes=("input",), **_F)
def leaky_relu(input: Meta, negative_slope: Scalar = 0.01) -> Meta:
    """Return input where it is positive, and negative_slope * input elsewhere."""
    _check_numbers("leaky_relu", input, negative_slope)


@pointwise(takes="f", promotes=("input",), **_F)
def elu(input: Meta, alpha: Scalar = 1.0) -> Meta:
    """Return input where it is positive, and alpha * (exp(input) - 1) elsewhere."""
    _check_numbers("elu", input, alpha)


@pointwise(takes="f", **_F)
def selu(input: Meta) -> Meta:
    """Compute the self-normalizing unit: scale * elu(input, alpha), with the constants of Klambauer et al., 2017."""


@pointwise(takes="f", promotes=("input",), **_F)
def celu(input: Meta, alpha: Scalar = 1.0) -> Meta:
    """Return input where it is positive, and alpha * (exp(input / alpha) - 1) elsewhere."""
    _check_numbers("celu", input, alpha)
    if alpha == 0:
        raise ArgumentError("celu: alpha must not be 0")


@pointwise(takes="f", promotes=("input",), inplace=False, **_F)
def softplus(input: Meta, beta: Scalar = 1.0, threshold: Scalar = 20.0) -> Meta:
    """Compute log(1 + exp(beta * input)) / beta; input itself where beta * input is above ``threshold``."""
    _check_numbers("softplus", input, beta, threshold)


@pointwise(takes="if", promotes=("input",), **_F)
def hardtanh(input: Meta, min_val: Scalar = -1.0, max_val: Scalar = 1.0) -> Meta:
    """Limit every element to [min_val, max_val]."""
    _check_numbers("hardtanh", input, min_val, max_val)
    if not input.dtype.is_signed and (min_val < 0 or max_val < 0):  # type: ignore[operator]
        raise DTypeError(f"hardtanh: cannot do hardtanh on an unsigned type with negative limits, got {input}")
    if min_val > max_val:  # type: ignore[operator]
        raise ArgumentError(f"hardtanh: min_val cannot be greater than max_val, got {min_val} and {max_val}")


@pointwise(takes="if", **_F)
def relu6(input: Meta) -> Meta:
    """Limit every element to [0, 6]."""


@pointwise(takes="f", **_F)
def hardsigmoid(input: Meta) -> Meta:
    """Compute input / 6 + 1 / 2, limited to [0, 1]."""


@pointwise(takes="f", **_F)
def hardswish(input: Meta) -> Meta:
    """Compute input * hardsigmoid(input)."""


@pointwise(takes="f", **_F)
def mish(input: Meta) -> Meta:
    """Compute input * tanh(softplus(input))."""


@pointwise(takes="f", inplace=False, **_F)
def logsigmoid(input: Meta) -> Meta:
    """Compute log(sigmoid(input)) without overflow."""


@pointwise(promotion="int_to_float", inplace=False, out=False, **_F)
def tanhshrink(input: Meta) -> Meta:
    """Compute input - tanh(input)."""


@pointwise(promotion="int_to_float", inplace=False, out=False, **_F)
def softsign(input: Meta) -> Meta:
    """Compute input / (1 + |input|)."""


@pointwise(takes="if", promotes=("input",), **_F)
def threshold(input: Meta, threshold: Scalar, value: Scalar) -> Meta:
    """Return input where it is above ``threshold``, and ``value`` elsewhere."""
    _check_numbers("threshold", input, threshold, value)


@pointwise(takes="f", promotes=("input",), inplace=False, module="nn.functional")
def hardshrink(input: Meta, lambd: Scalar = 0.5) -> Meta:
    """Return 0 where input is between -lambd and lambd, and input elsewhere."""
    _check_numbers("hardshrink", input, lambd)


@pointwise(takes="f", promotes=("input",), inplace=False, **_F)
def softshrink(input: Meta, lambd: Scalar = 0.5) -> Meta:
    """Move every element towards 0 by ``lambd``; elements nearer to 0 than that become 0."""
    _check_numbers("softshrink", input, lambd)
    if lambd < 0:  # type: ignore[operator]
        raise ArgumentError(
            f"softshrink: lambda must be in range [0, inf) for input dtype {input.dtype.name}, but found {lambd:g}"
        )
