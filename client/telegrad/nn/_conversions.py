"""Moving and casting the parameters and buffers of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._session.devices import as_device
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.memory_format import MemoryFormat
from telegrad_protocol.meta import Device

from .parameter import Parameter


def convert(parameter: Parameter, fn: Callable[[Tensor], Tensor]) -> None:
    """Replace the elements of a parameter and of its gradient by ``fn`` of them; the object stays."""
    grad = parameter.grad
    converted = fn(parameter)
    if converted is parameter:
        return
    parameter._become(converted)
    if grad is not None:
        parameter.grad = fn(grad)


def in_format(tensor: Tensor, memory_format: MemoryFormat | None) -> Tensor:
    """Return a tensor of images or volumes in a memory format for as many dimensions; other tensors as they are."""
    if memory_format is None or tensor.ndim not in (4, 5) or memory_format.ndim not in (None, tensor.ndim):
        return tensor
    return tensor.to(memory_format=memory_format)


def destination(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Device | None, DType | None]:
    """Return device and dtype out of the arguments of ``Module.to``, None for what they do not name."""
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    unknown = set(kwargs) - {"device", "dtype", "tensor", "non_blocking", "memory_format"}
    if unknown:
        raise ArgumentTypeError(f"to: unknown argument {sorted(unknown)[0]!r}")
    for arg in (*args, kwargs.get("tensor")):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, DType):
            dtype = arg
        elif isinstance(arg, (str, Device)) or (isinstance(arg, int) and not isinstance(arg, bool)):
            device = arg
        elif arg is not None and not isinstance(arg, bool):
            raise ArgumentTypeError(f"to: expected a dtype, a device or a tensor, not {type(arg).__name__}")
    return None if device is None else as_device(device), dtype
