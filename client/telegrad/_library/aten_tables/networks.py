"""Functions of networks whose parameters have another order in PyTorch's compiled core than in ``nn.functional``.

``torch.batch_norm``, ``torch._VF.batch_norm`` and ``torch.ops.aten.batch_norm`` are one function. A reduction is a
number: 0 for none, 1 for the mean, 2 for the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from telegrad._tensor.tensor import Tensor

from .derivatives import REDUCTIONS, F, reduced


def _batch_norm(
    input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float,
    eps: float, cudnn_enabled: bool,
) -> Any:  # fmt: skip
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def _instance_norm(
    input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, momentum: float,
    eps: float, cudnn_enabled: bool,
) -> Any:  # fmt: skip
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def _layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:  # fmt: skip
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def _group_norm(
    input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    return F.group_norm(input, num_groups, weight, bias, eps)


def _divergence(self: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False) -> Any:
    """Return the divergence, whose mean is over all elements without the warning of ``nn.functional``."""
    terms = F.kl_div(self, target, reduction="none", log_target=log_target)
    return terms.mean() if reduction == 1 else terms.sum() if reduction == 2 else terms


def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    name = REDUCTIONS[reduction]
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, name, zero_infinity)


def _rounded(self: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    """Return the nearest values of a grid; gradients pass where no value was beyond its ends."""
    places = (self.detach() / scale + zero_point).round()
    kept = self * ((places >= quant_min) & (places <= quant_max))
    return kept + ((places.clamp(quant_min, quant_max) - zero_point) * scale - kept.detach())


def _rounded_by_channel(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Any:
    shape = [1] * self.ndim
    shape[axis] = -1
    return _rounded(self, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


NETWORKS: Final[dict[str, Callable[..., Any]]] = {
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "cosine_embedding_loss": reduced("cosine_embedding_loss", "target", "margin", "reduction"),
    "hinge_embedding_loss": reduced("hinge_embedding_loss", "margin", "reduction"),
    "margin_ranking_loss": reduced("margin_ranking_loss", "target", "margin", "reduction"),
    "kl_div": _divergence,
    "poisson_nll_loss": reduced("poisson_nll_loss", "log_input", "full", "eps", "reduction"),
    "triplet_margin_loss": reduced("triplet_margin_loss", "negative", "margin", "p", "eps", "swap", "reduction"),
    "ctc_loss": _ctc_loss,
    "adaptive_max_pool1d": lambda self, output_size: F.adaptive_max_pool1d(self, output_size, True),
    "fake_quantize_per_tensor_affine": _rounded,
    "fake_quantize_per_channel_affine": _rounded_by_channel,
}
