"""Clearing the gradients of many parameters with few instructions, and grouping tensors by device."""

from __future__ import annotations

from collections.abc import Sequence

from telegrad._ops.functions import function
from telegrad._session.session import ClientSession
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.messages import DropGrads


def clear_gradients(parameters: Sequence[Tensor], set_to_none: bool) -> None:
    """Drop the gradients with one instruction, or set them to zero with one per device."""
    if set_to_none:
        _drop([parameter for parameter in parameters if parameter._grad is not None])
        return
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.requires_grad:
            parameter.grad = parameter.grad.detach()
    for grads in by_device([parameter.grad for parameter in parameters if parameter.grad is not None]):
        function("_foreach_zero_")(grads)


def _drop(parameters: Sequence[Tensor]) -> None:
    by_session: dict[ClientSession, list[Tensor]] = {}
    for parameter in parameters:
        by_session.setdefault(parameter._session, []).append(parameter)
    for session, those in by_session.items():
        try:
            session.submit(DropGrads([parameter._id for parameter in those]))
        finally:  # the instruction is queued even if ``submit`` raises an earlier failure
            for parameter in those:
                parameter._grad = None


def by_device(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the tensors grouped by device, in their order."""
    groups: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor._meta.device.name, []).append(tensor)
    return list(groups.values())
