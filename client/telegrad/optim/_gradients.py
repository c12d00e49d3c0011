"""Forgetting gradients."""

from __future__ import annotations

from collections.abc import Sequence

from .._functions import function
from .._tensor import Tensor


def clear(parameters: Sequence[Tensor], set_to_none: bool) -> None:
    """Forget the gradients, or set them to zero: one instruction for those of a device."""
    if set_to_none:
        for parameter in parameters:
            parameter.grad = None
        return
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.requires_grad:
            parameter.grad = parameter.grad.detach()
    for grads in by_device([parameter.grad for parameter in parameters if parameter.grad is not None]):
        function("_foreach_zero_")(grads)


def by_device(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """The tensors of each device, in order."""
    groups: dict[object, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.device, []).append(tensor)
    return list(groups.values())
