"""``torch.nn.utils._named_member_accessor``: tensors of modules by name, exchanged for others."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.nn import Module
from telegrad_protocol.errors import ArgumentTypeError

_MISSING: Any = object()


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Set a parameter, buffer or attribute of a module without checks, and return what it was; None removes it.

    Raises ArgumentTypeError where one of the two is no tensor, AttributeError where the module has none of this name.
    """
    for held in (module._parameters, module._buffers):
        if name in held:
            before = held[name]
            _put(held, name, tensor)
            return before
    before = getattr(module, name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
    if (before is not _MISSING and not isinstance(before, Tensor)) or not (
        tensor is None or isinstance(tensor, Tensor)
    ):
        raise ArgumentTypeError(f"attribute `{name}`: expected tensors")
    _put(module.__dict__, name, tensor)
    return None if before is _MISSING else before


def _put(held: Any, name: str, tensor: Any) -> None:
    if tensor is None:
        held.pop(name, None)
    else:
        held[name] = tensor


def swap_submodule(module: Module, name: str, submodule: Module) -> Any:
    """Set a module inside a module, and return the one that it was."""
    before = module._modules[name]
    module._modules[name] = submodule
    return before
