"""Moving and casting the parameters and buffers of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from telegrad._functions.memory.swapping import swap_tensors
from telegrad._ops.functions import function
from telegrad._session.devices import DeviceLike, as_device
from telegrad._session.grad_mode import no_grad
from telegrad._session.own_code import note
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import BY_NAME, DType, as_dtype, dtype_for
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.memory_format import MemoryFormat
from telegrad_protocol.meta import Device

from ._future_settings import get_swap_module_params_on_conversion
from .parameter import Parameter

C = TypeVar("C", bound="ConversionsMixin")


class ConversionsMixin:
    """The part of ``Module`` that moves and casts all parameters and buffers."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]

    def _apply(self: C, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> C:
        """Replace the elements of all parameters, gradients and buffers by ``fn`` of them."""
        if recurse:
            for module in self._modules.values():
                if module is not None:
                    module._apply(fn)
        with no_grad():
            for parameter in self._parameters.values():
                if parameter is not None:
                    convert(parameter, fn)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    @overload
    def to(
        self: C, device: str | Device | int | None = ..., dtype: DType | None = ..., non_blocking: bool = ...
    ) -> C: ...
    @overload
    def to(self: C, dtype: DType, non_blocking: bool = ...) -> C: ...
    @overload
    def to(self: C, tensor: Tensor, non_blocking: bool = ...) -> C: ...
    def to(self: C, *args: Any, **kwargs: Any) -> C:
        """Move everything to a device, cast what is floating-point, and lay out pictures as ``memory_format`` says."""
        device, dtype = destination(args, kwargs)
        if dtype is not None and not dtype.is_differentiable:
            raise ArgumentTypeError(f"nn.Module.to only accepts floating point or complex dtypes, not {dtype.name}")
        if dtype is not None and dtype.is_complex:
            note(
                "Complex modules are a new feature under active development whose design may change, and some modules "
                "might not work as expected when using complex tensors as parameters or buffers."
            )

        def moved(tensor: Tensor) -> Tensor:
            wanted = dtype if tensor.dtype.is_differentiable else None
            converted = tensor.to(device or tensor.device, wanted or tensor.dtype)
            return in_format(converted, kwargs.get("memory_format"))

        return self._apply(moved)

    def to_empty(self: C, *, device: DeviceLike, recurse: bool = True) -> C:
        """Move everything to a device without copying: the elements are uninitialised."""
        place = None if device is None else as_device(device)
        return self._apply(lambda t: function("empty_like")(t, device=place or t.device), recurse=recurse)

    def _cast(self: C, name: str) -> C:
        dtype = BY_NAME[name]
        return self._apply(lambda t: t.to(dtype) if t.dtype.is_floating_point else t)

    def float(self: C) -> C:
        """Cast what is floating-point to float32."""
        return self._cast("float32")

    def double(self: C) -> C:
        """Cast what is floating-point to float64."""
        return self._cast("float64")

    def half(self: C) -> C:
        """Cast what is floating-point to float16."""
        return self._cast("float16")

    def bfloat16(self: C) -> C:
        """Cast what is floating-point to bfloat16."""
        return self._cast("bfloat16")

    def type(self: C, dst_type: DType | str) -> C:
        """Cast everything, to a type or to one that is named as ``torch.FloatTensor`` is."""
        return self._apply(lambda t: t.type(dst_type))

    def cuda(self: C, device: int | str | Device | None = None) -> C:
        """Move everything to a GPU of the server."""
        return self._apply(lambda t: t.cuda(device))

    def cpu(self: C) -> C:
        """Move everything to the server's CPU."""
        return self._apply(lambda t: t.cpu())

    def share_memory(self: C) -> C:
        """Return the module, whose tensors are not sent to other processes from here on: ``Tensor.share_memory_``."""
        module: Any = self
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.share_memory_()
        return self


def convert(parameter: Tensor, fn: Callable[[Tensor], Tensor]) -> None:
    """Replace the elements of a parameter and of its gradient by ``fn`` of them; the object stays."""
    grad = parameter.grad
    converted = fn(parameter)
    if converted is parameter:
        return
    if get_swap_module_params_on_conversion():
        return _swap(parameter, converted, grad, fn)
    parameter._become(converted)
    if grad is not None:
        parameter.grad = fn(grad)


def _swap(parameter: Tensor, converted: Tensor, grad: Tensor | None, fn: Callable[[Tensor], Tensor]) -> None:
    """Swap a parameter with its conversion, attributes of its class included, and its gradient with ``fn`` of that."""
    parameter.grad = None
    try:
        swap_tensors(parameter, Parameter(converted, parameter.requires_grad))
        if grad is not None:
            swap_tensors(grad, fn(grad))
    finally:
        parameter.grad = grad


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
        elif as_dtype(arg) is not None:
            dtype = arg
        elif isinstance(arg, (str, Device)) or (isinstance(arg, int) and not isinstance(arg, bool)):
            device = arg
        elif arg is not None and not isinstance(arg, bool):
            raise ArgumentTypeError(f"to: expected a dtype, a device or a tensor, not {type(arg).__name__}")
    return None if device is None else as_device(device), None if dtype is None else dtype_for("to", dtype)
