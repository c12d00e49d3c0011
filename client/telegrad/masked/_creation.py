"""What makes masked tensors of data and a mask."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError

from ._masked_tensor import MaskedTensor, checked, wrapped


def masked_tensor(data: Any, mask: Any, requires_grad: bool = False) -> MaskedTensor:
    """Return a masked tensor of these elements, which is a leaf; the mask is true where an element counts."""
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: Any, mask: Any) -> MaskedTensor:
    """Return a masked tensor through which gradients flow to ``data``, where the mask is true; zeros elsewhere."""
    checked(data, mask)
    if data.requires_grad:
        data = function("where")(mask, data, data.detach())
    return wrapped(data, mask)


def is_masked_tensor(obj: Any) -> bool:
    """Return whether something is a masked tensor; other objects than tensors are refused."""
    if not isinstance(obj, Tensor):
        raise ArgumentTypeError(f"is_masked_tensor: expected a tensor, got a {type(obj).__name__}")
    return isinstance(obj, MaskedTensor)
