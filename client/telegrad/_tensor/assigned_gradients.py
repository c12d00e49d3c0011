"""What may be assigned to ``Tensor.grad`` and to ``Tensor.requires_grad``."""

from __future__ import annotations

from typing import Any

from telegrad_protocol.errors import ArgumentTypeError, AutogradError, ShapeError


def check_flag(requires_grad: Any) -> None:
    """Refuse what is no bool: it would be sent as it is, and a server takes no other message."""
    if requires_grad is not True and requires_grad is not False:
        raise ArgumentTypeError(f"requires_grad must be a bool, not {requires_grad!r}")


def check_gradient(tensor: Any, value: Any, kind: type) -> None:
    """Refuse what cannot be a tensor's gradient: that is of the class ``kind``, and of its shape, type and device."""
    is_known: bool = isinstance(value, kind)
    if not is_known:
        raise ArgumentTypeError(
            f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}"
        )
    if value is tensor:
        raise AutogradError("can't assign Variable as its own grad")
    wanted, given = tensor._meta, value._meta
    if given.shape != wanted.shape:
        raise ShapeError(
            f"attempting to assign a gradient of size '{list(given.shape)}' to a tensor of size "
            f"'{list(wanted.shape)}'. Please ensure that the gradient and the tensor are the same size"
        )
    if (value.dtype, value.device) != (tensor.dtype, tensor.device):
        raise ShapeError(f"grad: {given} on {value.device} cannot be the gradient of {wanted} on {tensor.device}")
