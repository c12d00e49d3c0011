"""Functions of images that are compositions of other operations, which ``nn.functional`` re-exports."""

from __future__ import annotations

from typing import Any

from telegrad._functions.gradients import with_zero_derivative
from telegrad._functions.memory.formats import in_format_of
from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad._session.own_code import note
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ShapeError
from telegrad_protocol.memory_format import contiguous_format


def _in_order_of(input: Tensor, result: Tensor) -> Tensor:
    return in_format_of(input, result) if input.ndim == 4 else result


def _copied(input: Tensor) -> Tensor:
    """Return what a rearrangement into one part gives: the same elements in memory of their own."""
    return _in_order_of(input, input.clone(memory_format=contiguous_format))


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Make space of channels: (..., c * r * r, h, w) -> (..., c, h * r, w * r)"""
    r = upscale_factor
    if r <= 0:
        raise ArgumentError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    if input.ndim < 3 or input.shape[-3] % (r * r):
        raise ShapeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but got {input._meta} and upscale_factor={r}"
        )
    if r == 1:
        return _copied(input)
    lead, (c, h, w) = tuple(input.shape[:-3]), input.shape[-3:]
    n = len(lead)
    parts = input.reshape(*lead, c // (r * r), r, r, h, w)
    parts = parts.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return _in_order_of(input, parts.reshape(*lead, c // (r * r), h * r, w * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Make channels of space: (..., c, h * r, w * r) -> (..., c * r * r, h, w)"""
    r = downscale_factor
    if r <= 0:
        raise ArgumentError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    if input.ndim < 3 or input.shape[-2] % r or input.shape[-1] % r:
        raise ShapeError(
            "pixel_unshuffle expects height and width to be divisible by downscale_factor, "
            f"but got {input._meta} and downscale_factor={r}"
        )
    if r == 1:
        return _copied(input)
    lead, (c, h, w) = tuple(input.shape[:-3]), input.shape[-3:]
    n = len(lead)
    parts = input.reshape(*lead, c, h // r, r, w // r, r).permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return _in_order_of(input, parts.reshape(*lead, c * r * r, h // r, w // r))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Take the channels of (n, c, ...) from the groups in turn."""
    if groups <= 0:
        raise ArgumentError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if input.ndim < 3 or input.shape[1] % groups:
        raise ShapeError(f"Number of channels must be divisible by groups. Got {input._meta} and {groups} groups")
    if groups == 1:
        return _copied(input)
    n, c, *rest = input.shape
    shuffled = input.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(n, c, *rest)
    return in_format_of(input, shuffled)


native_channel_shuffle = channel_shuffle


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """input / (k + alpha * mean of squares over ``size`` neighbouring channels) ** beta"""
    if input.ndim < 3:
        raise ArgumentError(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if not input.numel():
        return input
    squares = input.mul(input).reshape(input.shape[0], 1, input.shape[1], -1)
    around = function("pad")(squares, (0, 0, size // 2, (size - 1) // 2))
    means: Tensor = function("avg_pool2d")(around, (size, 1), 1).reshape(input.shape)
    return input / means.mul(alpha).add(k).pow(beta)


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalize every channel of every sample, by its own statistics or by the running ones: (n, c, ...)"""
    if input.ndim < 2:
        raise ShapeError(f"instance_norm: expected (N, C, ...), got {input._meta}")
    if not use_input_stats and (running_mean is None or running_var is None):
        raise ArgumentError("Expected running_mean and running_var to be defined when use_input_stats is false")
    samples, channels, *rest = input.shape
    if use_input_stats and len(rest) and all(size == 1 for size in rest):
        raise ArgumentError(f"Expected more than 1 spatial element when training, got input size {input.shape}")

    def repeated(tensor: Tensor | None) -> Any:
        return None if tensor is None else tensor.repeat(samples)

    mean, var = repeated(running_mean), repeated(running_var)
    wide = input.reshape(1, samples * channels, *rest)
    result = function("batch_norm")(
        wide, mean, var, repeated(weight), repeated(bias), use_input_stats, momentum, eps
    ).reshape(input.shape)
    if use_input_stats:
        with no_grad():
            for running, moved in ((running_mean, mean), (running_var, var)):
                if running is not None:
                    running.copy_(moved.view(samples, channels).mean(0))
    return result  # type: ignore[no-any-return]


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Draw from a relaxed categorical distribution; with ``hard`` one-hot, with the gradient of the relaxed draw."""
    if eps != 1e-10:
        note("`eps` parameter is deprecated and has no effect.")
    noise = function("empty_like")(logits.detach()).exponential_().log().neg()
    soft = function("softmax")((logits + noise) / tau, dim)
    if not hard:
        return soft  # type: ignore[no-any-return]
    index = soft.max(dim, keepdim=True)[1]
    chosen = function("zeros_like")(logits.detach()).scatter_(dim, index, 1.0)
    return chosen - soft.detach() + soft  # type: ignore[no-any-return]


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """input where it is positive, else times a random slope between limits; outside of training times their mean"""
    if not lower <= upper:
        raise ArgumentError(
            f"rrelu: Lower bound should be less than or equal to the upper bound, got {lower} and {upper}"
        )
    if training:
        with no_grad():
            slope: Any = function("empty_like")(input.detach()).uniform_(lower, upper)
    else:
        slope = (lower + upper) / 2
    operand = with_zero_derivative(input)
    result = function("where")(input > 0, operand, operand * slope)
    return input.copy_(result) if inplace else result


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """``rrelu`` in place."""
    return rrelu(input, lower, upper, training, True)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution over sequences whose channels are last: (t, n, c) with a weight of (k, c, out_channels)"""
    convolved = function("conv1d")(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad)
    return convolved.permute(2, 0, 1)  # type: ignore[no-any-return]


_ALPHA = 1.7580993408473766
"""The negative limit of SELU, which alpha dropout puts in place of what it drops."""


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """``alpha_dropout`` of whole channels of (n, c, ...)."""
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0 or not input.numel():
        return input
    if p == 1.0:
        return input.mul_(0.0) if inplace else input.mul(0.0)
    if input.ndim < 2:
        raise ShapeError("Feature dropout requires at least 2 dimensions in the input")
    with no_grad():
        kept = input.new_empty((*input.shape[:2], *(1,) * (input.ndim - 2))).bernoulli_(1 - p)
    scale = ((_ALPHA**2 * p + 1) * (1 - p)) ** -0.5
    shift = kept.sub(1).mul(_ALPHA * scale).add(_ALPHA * scale * p)
    factor = kept.mul(scale)
    return input.mul_(factor).add_(shift) if inplace else input.mul(factor).add(shift)
