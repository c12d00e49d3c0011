"""Tensors that were made in inference mode are not saved for a backward pass: such calls are refused, as by PyTorch.

A call that has no other operands is not recorded.

What an operation saves is the server's to say. It is asked about calls that are recorded and have such a tensor among
their operands, which a program without ``inference_mode`` never makes: then ``exist`` is empty.
"""

from __future__ import annotations

from typing import Any, Final

from telegrad._ops.batching import batching
from telegrad._ops.call_pattern import CallPattern
from telegrad._ops.duals import duals
from telegrad._session.grad_mode import entered_inference as exist
from telegrad._tensor.grad_fn import saved_names
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError

__all__ = ["are_all", "check_saved", "exist", "is_among"]
_PRODUCT: Final = frozenset(("input", "weight"))
_LOSS: Final = frozenset(("input", "target", "weight"))
_OF_COMPOSITES: Final[dict[str, frozenset[str]]] = {
    "matmul": frozenset(("input", "other")),
    "scaled_dot_product_attention": frozenset(("query", "key", "value")),
    "batch_norm": frozenset(("input", "running_mean", "running_var", "weight")),
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "bilinear"), _PRODUCT),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _PRODUCT),
    **dict.fromkeys(("mse_loss", "kl_div", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"), _LOSS),
    "binary_cross_entropy_with_logits": _LOSS,
}
"""Operands that are saved by operations which consist of others: of these, the server tells what the last one saves."""


def is_among(values: tuple[Any, ...]) -> bool:
    """Tell whether one of a call's values, or of the items of its lists, was made in inference mode."""
    return any([_was_made_there(item) for value in values for item in _items(value)])


def are_all(values: tuple[Any, ...]) -> bool:
    """Tell whether all tensors among a call's values and the items of its lists were made in inference mode."""
    if batching.levels or batching.derivatives or duals.levels:
        return False
    return all([not isinstance(item, Tensor) or item._is_inference for value in values for item in _items(value)])


def check_saved(pattern: CallPattern, values: tuple[Any, ...], results: Any) -> None:
    """Refuse a call that has saved a tensor which was made in inference mode. One round trip.

    Functions that differentiate or map take tensors from outside as their own, whatever mode these were made in.
    """
    if batching.levels or batching.derivatives or duals.levels:
        return
    tracked = next((t for t in (results if isinstance(results, tuple) else (results,)) if t._node is not None), None)
    if tracked is None or tracked._session.holds_gradients:
        return
    saved = _OF_COMPOSITES.get(pattern.op.name) or saved_names(tracked)
    for place, (param, source) in enumerate(zip(pattern.op.params, pattern.sources, strict=True)):
        names = (param.name, "self", "input") if place == 0 else (param.name,)
        if source is not None and not saved.isdisjoint(names) and any(map(_was_made_there, _items(values[source]))):
            raise AutogradError(
                f"{pattern.op.public}: Inference tensors cannot be saved for backward. Please do not use Tensors "
                f"created in inference mode in computation tracked by autograd: clone() {param.name!r} outside of "
                "inference mode and use the clone, or use no_grad() instead of inference_mode()"
            )


def _items(value: Any) -> Any:
    return value if isinstance(value, (tuple, list)) else (value,)


def _was_made_there(value: Any) -> bool:
    return isinstance(value, Tensor) and value._is_inference
