"""Functions of PyTorch's compiled core, by the names that they have there: ``_C._fft.fft_fft``, ``_VF.lstm``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import telegrad

_PACKAGES: Final = ("fft", "linalg", "special")
_NAMES: Final = (
    "adaptive_max_pool1d affine_grid_generator alpha_dropout alpha_dropout_ as_strided_ batch_norm "
    "binary_cross_entropy_with_logits binomial celu cosine_embedding_loss ctc_loss detach_ dropout dropout_ embedding "
    "embedding_bag fake_quantize_per_channel_affine fake_quantize_per_tensor_affine feature_alpha_dropout "
    "feature_alpha_dropout_ get_device group_norm gru gru_cell hinge_embedding_loss instance_norm is_distributed "
    "is_same_size is_signed kl_div layer_norm ldexp_ lstm lstm_cell margin_ranking_loss max_pool1d_with_indices "
    "native_norm norm_except_dim poisson_nll_loss resize_as_ rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell "
    "rrelu selu threshold triplet_margin_loss"
)
OF_NETWORKS: Final = frozenset(_NAMES.split())
"""Functions of the core that are names of ``torch`` too, with the core's order of parameters."""
_LOSSES: Final = {
    "binary_cross_entropy_with_logits": 4, "cosine_embedding_loss": 4, "ctc_loss": 5, "hinge_embedding_loss": 3,
    "kl_div": 2, "margin_ranking_loss": 4, "triplet_margin_loss": 7,
}  # fmt: skip
"""The place of ``reduction`` among parameters of losses; a call from Python that has none is not reduced."""


def __getattr__(name: str) -> Any:
    package, _, function = name.partition("_")
    if package in _PACKAGES and function:
        return getattr(import_module(f"telegrad.{package}"), function)
    if name.startswith("_"):
        raise AttributeError(name)
    if name in _LOSSES:
        return with_numbered_reduction(name, _LOSSES[name])
    if hasattr(telegrad, name):
        return getattr(telegrad, name)
    return getattr(telegrad.ops.aten, name)


def with_numbered_reduction(name: str, place: int) -> Callable[..., Any]:
    """Return a loss whose reduction is a number at a place, and none where it is left out, as PyTorch's core has it."""
    operator = getattr(telegrad.ops.aten, name)

    def loss(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= place:
            kwargs.setdefault("reduction", 0)
        return operator(*args, **kwargs)

    loss.__name__ = name
    return loss
