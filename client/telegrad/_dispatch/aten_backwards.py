"""Functions behind operators of PyTorch's that only its derivatives call, and some that only its dispatcher knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from telegrad._library import aten_functions
from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor


def _plain(public: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(public)(*args, **kwargs)


def _threshold_backward(grad_output: Tensor, self: Tensor, threshold: float) -> Any:
    if threshold == 0:
        return function("_relu_backward")(grad_output, self)
    return function("where")(self > threshold, grad_output, function("zeros_like")(grad_output))


def _convolution_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Return the gradients of input, weight and bias, None for those that are not wanted."""
    geometry = (tuple(stride), tuple(padding), tuple(dilation))
    by_input = by_weight = by_bias = None
    if output_mask[0]:
        by_input = _input_gradient(grad_output, input, weight, geometry, transposed, groups)
    if output_mask[1]:
        fine, coarse = (grad_output, input) if transposed else (input, grad_output)
        size = tuple(weight.shape[2:])
        by_weight = function("_convolution_weight_backward")(coarse, fine, size, *geometry, groups, False)
    if output_mask[2]:
        by_bias = grad_output.sum([d for d in range(grad_output.ndim) if d != 1])
    return by_input, by_weight, by_bias


def _input_gradient(
    grad_output: Tensor, input: Tensor, weight: Tensor, geometry: Any, transposed: bool, groups: int
) -> Any:
    stride, padding, dilation = geometry
    run = function("convolution")
    if transposed:
        return run(grad_output, weight, None, stride, padding, dilation, False, (0,) * len(stride), groups)
    sizes = zip(grad_output.shape[2:], input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    extra = tuple([i - ((g - 1) * s - 2 * p + d * (k - 1) + 1) for g, i, k, s, p, d in sizes])
    return run(grad_output, weight, None, stride, padding, dilation, True, extra, groups)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return function("_attention")(query, key, value, attn_mask, is_causal, factor, True)


def _attention_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, dropout_p: float,
    is_causal: bool, *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return function("_attention_backward")(grad_out, query, key, value, attn_mask, out, logsumexp, is_causal, factor)


def _pool(dims: int) -> Callable[..., Any]:
    def run(
        self: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        given = (tuple(kernel_size), tuple(stride) or None, padding, dilation, ceil_mode, True)
        return function(f"max_pool{dims}d")(self, *given)

    return run


REDUCTIONS: Final = ("none", "mean", "sum")
"""Reductions in the order of PyTorch's numbers for them."""
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "_softmax": lambda self, dim, half_to_float: function("softmax")(self, dim),
    "_log_softmax": lambda self, dim, half_to_float: function("log_softmax")(self, dim),
    "threshold_backward": _threshold_backward,
    "tanh_backward": _plain("_tanh_backward"), "sigmoid_backward": _plain("_sigmoid_backward"),
    "silu_backward": _plain("_silu_backward"),
    "gelu_backward": _plain("_gelu_backward"),
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_adaptive_avg_pool2d": _plain("adaptive_avg_pool2d"), "_adaptive_avg_pool3d": _plain("adaptive_avg_pool3d"),
    "max_pool2d_with_indices": _pool(2), "max_pool3d_with_indices": _pool(3),
    "nll_loss_forward": lambda self, target, weight, reduction, ignore_index: function("_nll_loss_forward")(
        self, target, weight, REDUCTIONS[reduction], ignore_index
    ),
    "clone": lambda self, *, memory_format=None: (
        function("clone")(self) if memory_format is None else self.clone(memory_format=memory_format)
    ),
    "_local_scalar_dense": lambda self: self.item(),
}  # fmt: skip
aten_functions._OWN.update(FUNCTIONS)
