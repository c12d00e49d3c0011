"""Limits for the gradients of many parameters at once."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable

from telegrad._functions.conversions import number_of
from telegrad._functions.gradients import by_device
from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError

Tensors = Tensor | Iterable[Tensor]


def _gradients(parameters: Tensors) -> list[Tensor]:
    listed = _listed(parameters)
    return [parameter.grad for parameter in listed if parameter.grad is not None]


def _listed(parameters: Tensors) -> list[Tensor]:
    """Return the parameters; warns of a generator that gives none, which something has read before, most likely."""
    if isinstance(parameters, Tensor):
        return [parameters]
    listed = list(parameters)
    if not listed and isinstance(parameters, Generator):
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", UserWarning, stacklevel=3)
    return listed


def _total_norm(tensors: list[Tensor], order: float) -> Tensor:
    """The norm of all elements, on the device of the first tensor; of several devices, the norm of the devices' norms.

    The norm of order 0 is the number of tensors that are not zero, as in PyTorch.
    """
    groups = by_device(tensors)
    if len(groups) > 1:
        parts = [[tensor] for tensor in tensors] if order == 0 else groups
        tensors = [function("_total_norm")(part, order).to(tensors[0].device) for part in parts]
    return function("_total_norm")(tensors, order)  # type: ignore[no-any-return]


def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all elements of all tensors; read, at one round trip, only for ``error_if_nonfinite``."""
    listed, order = [tensors] if isinstance(tensors, Tensor) else list(tensors), number_of("norm_type", norm_type)
    if not listed:
        return function("zeros")(())  # type: ignore[no-any-return]
    norm = _total_norm(listed, order)
    if error_if_nonfinite and not bool(norm.isfinite()):
        raise AutogradError(
            f"The total norm of order {order} for gradients from `parameters` is non-finite, so it cannot be clipped"
        )
    return norm


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients so that ``total_norm`` would become ``max_norm``, if it is greater."""
    grads, most = _gradients(parameters), number_of("max_norm", max_norm)
    for group in by_device(grads):
        function("_clip_to_norm_")(group, total_norm.to(group[0].device), most)


def clip_grad_norm_(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Scale the gradients so that the norm of all together is at most ``max_norm``; gives what it was."""
    listed = _listed(parameters)
    most = number_of("max_norm", max_norm)
    norm = get_total_norm(_gradients(listed), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(listed, most, norm)
    return norm


def clip_grad_norm(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """The former name of ``clip_grad_norm_``."""
    warnings.warn("`clip_grad_norm` is deprecated, use `clip_grad_norm_`", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limit each element of the gradients to [-clip_value, clip_value]."""
    grads, most = _gradients(parameters), number_of("clip_value", clip_value)
    for group in by_device(grads):
        function("_foreach_clamp_")(group, -most, most)
