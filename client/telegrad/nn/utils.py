"""Work on the gradients of many parameters at once, and on all parameters as one vector. The name is PyTorch's."""

from __future__ import annotations

from collections.abc import Iterable

from telegrad_protocol.errors import AutogradError

from .._functions import function
from .._tensor import Tensor

Tensors = Tensor | Iterable[Tensor]


def _gradients(parameters: Tensors) -> list[Tensor]:
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [parameter.grad for parameter in listed if parameter.grad is not None]


def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all elements of all tensors; read, at one round trip, only for ``error_if_nonfinite``."""
    listed = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not listed:
        return function("zeros")(())  # type: ignore[no-any-return]
    norm: Tensor = function("_total_norm")(listed, float(norm_type))
    if error_if_nonfinite and not bool(norm.isfinite()):
        raise AutogradError(
            f"The total norm of order {float(norm_type)} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped"
        )
    return norm


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients so that ``total_norm`` would become ``max_norm``, if it is greater."""
    grads = _gradients(parameters)
    if grads:
        function("_clip_to_norm_")(grads, total_norm, float(max_norm))


def clip_grad_norm_(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Scale the gradients so that the norm of all together is at most ``max_norm``; gives what it was."""
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    norm = get_total_norm(_gradients(listed), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(listed, max_norm, norm)
    return norm


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limit each element of the gradients to [-clip_value, clip_value]."""
    grads = _gradients(parameters)
    if grads:
        function("_foreach_clamp_")(grads, -float(clip_value), float(clip_value))


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters, one after the other."""
    return function("cat")([parameter.reshape(-1) for parameter in parameters])  # type: ignore[no-any-return]


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make slices of ``vec`` what the parameters hold."""
    start = 0
    for parameter in parameters:
        part = vec.narrow(0, start, parameter.numel())
        parameter.data = part.view(parameter.shape).clone()
        start += parameter.numel()
