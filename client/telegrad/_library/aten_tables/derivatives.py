"""Operators that PyTorch's derivatives call, such as ``gelu_backward``: each is the derivative of a function here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from telegrad._session.grad_mode import enable_grad
from telegrad._tensor.tensor import Tensor
from telegrad.autograd import grad

tg: Any = import_module("telegrad")
F: Any = import_module("telegrad.nn.functional")
REDUCTIONS: Final = ("none", "mean", "sum")
"""Reductions in the order of PyTorch's numbers for them."""


def gradients_of(run: Callable[..., Any], inputs: list[Any], gradient: Tensor) -> list[Any]:
    """Return the gradients of some inputs of a function; None for an input that is None."""
    with enable_grad():
        leaves = [None if tensor is None else tensor.detach().requires_grad_() for tensor in inputs]
        result = run(*leaves)
    wanted = [leaf for leaf in leaves if leaf is not None]
    computed = iter(grad(result, wanted, gradient))
    return [None if leaf is None else next(computed) for leaf in leaves]


def _of(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the operator of ``grad_output`` and the arguments of ``forward``, of which the first is differentiated."""

    def backward(grad_output: Tensor, self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return gradients_of(lambda leaf: forward(leaf, *args, **kwargs), [self], grad_output)[0]

    return backward


def _of_loss(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same for a loss of an input and a target, whose reduction is a number."""

    def backward(grad_output: Tensor, self: Tensor, target: Tensor, *args: Any) -> Any:
        return gradients_of(lambda leaf: forward(leaf, target, *args), [self], grad_output)[0]

    return backward


def _pool(name: str) -> Callable[..., Any]:
    def forward(
        self: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
        divisor_override: int | None,
    ) -> Any:  # fmt: skip
        given = (padding, ceil_mode, count_include_pad, divisor_override)
        return getattr(F, name)(self, kernel_size, stride or None, *given)

    return _of(forward)


def _adaptive(name: str, dims: int) -> Callable[..., Any]:
    def backward(grad_output: Tensor, self: Tensor) -> Any:
        size = tuple(grad_output.shape[-dims:])
        return gradients_of(lambda leaf: getattr(F, name)(leaf, size), [self], grad_output)[0]

    return backward


def _resize(mode: str) -> Callable[..., Any]:
    """Return the derivative of resizing, which is linear: of its input it takes the size alone."""
    has_corners = "nearest" not in mode

    def backward(grad_output: Tensor, output_size: Any, input_size: Any, *rest: Any) -> Any:
        given = {"align_corners": rest[0]} if has_corners else {}
        zeros = grad_output.new_zeros(input_size)
        return gradients_of(
            lambda leaf: F.interpolate(leaf, tuple(output_size), mode=mode, **given), [zeros], grad_output
        )[0]

    return backward


def _part(part: Callable[..., Any]) -> Callable[..., Any]:
    """Return the derivative of a view, of whose input it takes the sizes."""

    def backward(grad_output: Tensor, input_sizes: Any, *args: Any) -> Any:
        result = grad_output.new_zeros(input_sizes)
        part(result, *args).copy_(grad_output)
        return result

    return backward


def _slice(self: Tensor, dim: int, start: int, end: int, step: int) -> Any:
    return self[(*[slice(None)] * (dim % self.ndim), slice(start, end, step))]


def _layer_norm_backward(
    grad_out: Tensor, input: Tensor, normalized_shape: Any, mean: Tensor, rstd: Tensor, weight: Any, bias: Any,
    output_mask: Any,
) -> tuple[Any, ...]:  # fmt: skip
    dims = list(range(input.ndim - len(normalized_shape), input.ndim))
    eps = (rstd**-2 - ((input - mean) ** 2).mean(dims, keepdim=True)).detach()

    def run(x: Tensor, w: Any, b: Any) -> Any:
        centred = x - x.mean(dims, keepdim=True)
        scaled = centred * ((centred**2).mean(dims, keepdim=True) + eps) ** -0.5
        scaled = scaled if w is None else scaled * w
        return scaled if b is None else scaled + b

    wanted = gradients_of(run, [input, weight, bias], grad_out)
    return tuple([given if is_wanted else None for given, is_wanted in zip(wanted, output_mask, strict=True)])


def _elu_backward(
    grad_output: Tensor, alpha: Any, scale: Any, input_scale: Any, is_result: bool, self_or_result: Tensor
) -> Any:
    below = self_or_result + alpha * scale if is_result else alpha * scale * tg.exp(self_or_result * input_scale)
    return tg.where(self_or_result <= 0, grad_output * input_scale * below, grad_output * scale)


def reduced(name: str, *order: str) -> Callable[..., Any]:
    """Return a loss whose ``reduction`` is a number; ``order`` are the names of its arguments after the target."""

    def loss(self: Tensor, target: Tensor, *args: Any, **options: Any) -> Any:
        named = {**dict(zip(order, args, strict=False)), **options}
        named["reduction"] = REDUCTIONS[named.get("reduction", 1)]
        return getattr(F, name)(self, target, **named)

    return loss


LOSSES: Final = {
    "huber_loss": reduced("huber_loss", "reduction", "delta"),
    "smooth_l1_loss": reduced("smooth_l1_loss", "reduction", "beta"),
    "mse_loss": reduced("mse_loss", "reduction"),
    "soft_margin_loss": reduced("soft_margin_loss", "reduction"),
    "binary_cross_entropy": reduced("binary_cross_entropy", "weight", "reduction"),
    "binary_cross_entropy_with_logits": reduced(
        "binary_cross_entropy_with_logits", "weight", "pos_weight", "reduction"
    ),
    "l1_loss": reduced("l1_loss", "reduction"),
    "multi_margin_loss": reduced("multi_margin_loss", "p", "margin", "weight", "reduction"),
    "multilabel_margin_loss": reduced("multilabel_margin_loss", "reduction"),
    "nll_loss": reduced("nll_loss", "weight", "reduction", "ignore_index"),
}
"""Losses by the names of operators, with the arguments of these."""
_WITHOUT: Final = ("binary_cross_entropy_with_logits", "l1_loss", "multilabel_margin_loss", "nll_loss")
"""Losses whose derivatives are no operators, or take more than the others' do."""
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **LOSSES,
    **{f"{name}_backward": _of_loss(loss) for name, loss in LOSSES.items() if name not in _WITHOUT},
    **{f"avg_pool{dims}d_backward": _pool(f"avg_pool{dims}d") for dims in (2, 3)},
    **{f"_adaptive_avg_pool{d}d_backward": _adaptive(f"adaptive_avg_pool{d}d", d) for d in (2, 3)},
    **{
        f"upsample_{mode}{dims}_backward": _resize(mode)
        for mode, dims in (("nearest", "1d"), ("nearest", "2d"), ("nearest", "3d"), ("linear", "1d"),
                           ("bilinear", "2d"), ("bicubic", "2d"), ("trilinear", "3d"))
    },
    **{f"reflection_pad{d}d_backward": _of(lambda x, pad: F.pad(x, tuple(pad), "reflect")) for d in (1, 2, 3)},
    **{f"replication_pad{d}d_backward": _of(lambda x, pad: F.pad(x, tuple(pad), "replicate")) for d in (1, 2, 3)},
    "diagonal_backward": _part(lambda x, offset, dim1, dim2: x.diagonal(offset, dim1, dim2)),
    "elu_backward": _elu_backward,
    "glu_backward": _of(lambda x, dim: F.glu(x, dim)),
    "grid_sampler_2d_backward": lambda gradient, input, grid, mode, padding, corners, mask: tuple(gradients_of(
        lambda x, g: tg.grid_sampler_2d(x, g, mode, padding, corners), [input, grid], gradient)),
    "grid_sampler_3d_backward": lambda gradient, input, grid, mode, padding, corners, mask: tuple(gradients_of(
        lambda x, g: tg.grid_sampler_3d(x, g, mode, padding, corners), [input, grid], gradient)),
    "hardshrink_backward": _of(lambda x, lambd: F.hardshrink(x, lambd)),
    "hardtanh_backward": _of(lambda x, low, high: F.hardtanh(x, low, high)),
    "log_sigmoid_backward": lambda gradient, x, buffer: gradients_of(F.logsigmoid, [x], gradient)[0],
    "logit_backward": _of(lambda x, eps=None: tg.logit(x, eps)),
    "masked_scatter_backward": lambda gradient, mask, sizes: tg.cat(
        [part := gradient.masked_select(mask), part.new_zeros(tg.Size(sizes).numel() - part.numel())]).reshape(sizes),
    "mish_backward": _of(F.mish),
    "native_layer_norm_backward": _layer_norm_backward,
    "select_backward": _part(lambda x, dim, index: x.select(dim, index)),
    "slice_backward": _part(_slice),
    "softplus_backward": _of(lambda x, beta, threshold: F.softplus(x, beta, threshold)),
    "softshrink_backward": _of(lambda x, lambd: F.softshrink(x, lambd)),
    "_softmax_backward_data": lambda gradient, output, dim, dtype: (
        (gradient - (gradient * output).sum(dim, keepdim=True)) * output),
    "_log_softmax_backward_data": lambda gradient, output, dim, dtype: (
        gradient - output.exp() * gradient.sum(dim, keepdim=True)),
    "unfold_backward": lambda gradient, sizes, dim, size, step: gradients_of(
        lambda x: x.unfold(dim, size, step), [gradient.new_zeros(sizes)], gradient)[0],
    "_prelu_kernel": lambda x, weight: tg.where(x > 0, x, x * weight),
    "_prelu_kernel_backward": lambda gradient, x, weight: (
        tg.where(x > 0, gradient, gradient * weight), tg.where(x > 0, 0.0, gradient * x)),
    "nll_loss_backward": lambda gradient, x, target, weight, reduction, ignored, total: gradients_of(
        lambda leaf: F.nll_loss(leaf, target, weight, None, ignored, None, REDUCTIONS[reduction]), [x], gradient)[0],
}  # fmt: skip
