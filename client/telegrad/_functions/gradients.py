"""Clearing the gradients of many parameters with few instructions, grouping tensors by device, derivatives of zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from telegrad._ops.functions import function
from telegrad._ops.operand_classes import HANDLERS
from telegrad._tensor.layouts import strided
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.messages import DropGrads

Key = TypeVar("Key")


def clear_gradients(parameters: Sequence[Tensor], set_to_none: bool) -> None:
    """Drop the gradients with one instruction, or set them to zero with one per device."""
    if set_to_none:
        with_gradient = [parameter for parameter in parameters if parameter._grad is not None]
        _drop(_without_sparse(with_gradient) if HANDLERS else with_gradient)
        return
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.requires_grad:
            parameter.grad = parameter.grad.detach()
    for grads in by_device([parameter.grad for parameter in parameters if parameter.grad is not None]):
        function("_foreach_zero_")(grads)


def _without_sparse(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Drop the gradients of sparse parameters, which are those of their values, and return the others."""
    dense = []
    for one in parameters:
        layout: Any = one.layout if one.__class__ in HANDLERS else strided
        if layout is strided:
            dense.append(one)
        else:
            one.grad = None
    return dense


def _drop(parameters: Sequence[Tensor]) -> None:
    for session, those in _grouped(parameters, [parameter._session for parameter in parameters]):
        try:
            session.submit(DropGrads([parameter._id for parameter in those]))
        finally:  # the instruction is queued even if ``submit`` raises an earlier failure
            for parameter in those:
                parameter._grad = None


def by_device(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the tensors grouped by device, in their order."""
    return [group for _, group in _grouped(tensors, [tensor._meta.device for tensor in tensors])]


def _grouped(tensors: Sequence[Tensor], keys: list[Key]) -> list[tuple[Key, list[Tensor]]]:
    """Return tensors in groups of the same key, which nearly always is one group."""
    if keys and keys.count(keys[0]) == len(keys):
        return [(keys[0], list(tensors))]
    groups: dict[Key, list[Tensor]] = {}
    for tensor, key in zip(tensors, keys, strict=True):
        groups.setdefault(key, []).append(tensor)
    return list(groups.items())


def with_zero_derivative(input: Tensor, *others: Tensor) -> Tensor:
    """Return ``input``; where gradients flow, its gradient depends on it and ``others`` by a derivative of zero.

    ``others`` get zeros as their gradient. So do gradients of functions that PyTorch has one formula for.
    """
    if not any([tensor.requires_grad for tensor in (input, *others)]):
        return input
    return function("_with_zero_derivative")(input, list(others))  # type: ignore[no-any-return]
