"""Moving and casting what a module holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.memory_format import MemoryFormat
from telegrad_protocol.meta import Device

from .parameter import Parameter


def convert(parameter: Parameter, fn: Callable[[Tensor], Tensor]) -> None:
    """Replace what a parameter and its gradient hold; the parameter stays the same object."""
    grad = parameter.grad
    converted = fn(parameter)
    if converted is parameter:
        return
    parameter._become(converted)
    if grad is not None:
        parameter.grad = fn(grad)


def in_format(tensor: Tensor, memory_format: MemoryFormat | None) -> Tensor:
    """A tensor of images or volumes in a memory format that is made for it; all others as they are."""
    if memory_format is None or tensor.ndim not in (4, 5) or memory_format.ndim not in (None, tensor.ndim):
        return tensor
    return tensor.to(memory_format=memory_format)


def destination(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Device | None, DType | None]:
    """Device and dtype out of the arguments of ``to``, None where they do not say."""
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
    if isinstance(device, int):
        device = Device("cuda", device)
    return None if device is None else Device(device), dtype
