"""``to`` and the methods that are short for it: a tensor as another type, on another device, in a memory format.

And an argument as a number.
"""

from __future__ import annotations

from typing import Any, Final

from telegrad._ops.functions import function, in_memory_format
from telegrad._ops.operand_classes import DISPATCHING
from telegrad._ops.shape_operands import to_shape
from telegrad._session.devices import as_device, require_device
from telegrad._tensor.layouts import sparse_coo
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType, as_dtype, get_default_dtype
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError
from telegrad_protocol.memory_format import MemoryFormat, preserve_format
from telegrad_protocol.meta import CURRENT_GPU, META, Device

from .tensor_types import TensorType, named_type, type_of

_CONVERSIONS = {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
    "int": dtypes.int32, "long": dtypes.int64, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
    "bool": dtypes.bool_, "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
    "chalf": dtypes.complex32,
}  # fmt: skip


def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return the tensor with another dtype, on another device, or like another tensor; itself if nothing changes."""
    options = dict(kwargs)
    wanted = options.pop("memory_format", None)
    if wanted is not None:
        return in_memory_format("to", to(self, *args, **options), wanted)
    device, dtype, copy = _target(self, args, options)
    device = require_device(device, self._session, "to") if device is CURRENT_GPU else device.place
    if device is self.device and dtype is self.dtype:
        return self.clone() if copy else self
    if (device is META) is not (self.device is META) and type(self) not in DISPATCHING:
        return to_shape(self, device, dtype)
    require_device(device, self._session, "to")
    return function("_to_copy")(self, dtype=dtype, device=device)  # type: ignore[no-any-return]


def _target(self: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Device, DType, bool]:
    """Return device, dtype and ``copy`` of ``to(dtype)``, ``to(device, dtype)`` or ``to(other)``."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    copy = bool(kwargs.pop("copy", False))
    kwargs.pop("non_blocking", None)
    flags = []
    for arg in (*args, *([kwargs.pop("other")] if "other" in kwargs else [])):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, (DType, type)) and dtype is None:
            dtype = arg
        elif isinstance(arg, bool):
            flags.append(arg)
        elif isinstance(arg, (str, Device, int)):
            device = arg
        elif arg is not None:
            raise ArgumentTypeError(f"to: expected a dtype, a device or a tensor, not {type(arg).__name__}")
    if kwargs:
        raise ArgumentTypeError(f"to: unknown argument {next(iter(kwargs))!r}")
    known = as_dtype(dtype)
    if dtype is not None and known is None:
        raise ArgumentTypeError(f"to: dtype must be a dtype such as telegrad.float32, not {dtype!r}")
    return (
        self.device if device is None else as_device(device),
        known or self.dtype,
        copy or (len(flags) > 1 and flags[1]),
    )


_PRESERVING: Final = (None, preserve_format)
"""What says that a result has the order of its operand."""


def cpu(self: Tensor, memory_format: MemoryFormat | None = preserve_format) -> Tensor:
    """Return the tensor on the server's CPU."""
    return _formatted("cpu", to(self, "cpu"), memory_format)


def cuda(
    self: Tensor,
    device: int | str | Device | None = None,
    non_blocking: bool = False,
    memory_format: MemoryFormat | None = preserve_format,
) -> Tensor:
    """Return the tensor on a GPU of the server, the current one by default."""
    return _formatted("cuda", to(self, CURRENT_GPU if device is None else device), memory_format)


def _formatted(name: str, tensor: Tensor, memory_format: MemoryFormat | None) -> Tensor:
    return tensor if memory_format in _PRESERVING else in_memory_format(name, tensor, memory_format)


def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Return the tensor as another type; without one, the name of its own type, such as ``telegrad.FloatTensor``.

    ``dtype``: a dtype; or a type such as ``FloatTensor``, or its name, which say whether the result is on a GPU too.
    """
    if dtype is None:
        layout: Any = self.layout
        before, dot, name = type_of(self).full_name.rpartition(".")
        return f"{before}{dot}{'sparse.' if layout is sparse_coo else ''}{name}"
    wanted = named_type(dtype) if isinstance(dtype, str) else dtype
    if wanted is Tensor:  # the type of tensors that are made without a dtype
        wanted = get_default_dtype()
    if not isinstance(wanted, TensorType):
        return to(self, wanted)
    place = self.device if self.device.type == wanted.device_type else wanted.device_type
    return to(self, place, wanted.dtype)


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """Return the tensor in the type of ``other``, and on its device."""
    if not isinstance(other, Tensor):
        raise ArgumentTypeError(f"type_as(): argument 'other' must be Tensor, not {type(other).__name__}")
    return to(self, other)


def _conversion(name: str, dtype: DType) -> Any:
    def convert(self: Tensor, memory_format: MemoryFormat | None = preserve_format) -> Tensor:
        if memory_format in _PRESERVING:
            return to(self, dtype)
        return in_memory_format(name, to(self, dtype), memory_format)

    convert.__name__ = name
    convert.__doc__ = f"Return the tensor as {dtype.name}."
    return convert


METHODS: dict[str, Any] = {
    "to": to, "cpu": cpu, "cuda": cuda, "type": type_, "type_as": type_as,
    **{name: _conversion(name, dtype) for name, dtype in _CONVERSIONS.items()},
}  # fmt: skip


def number_of(name: str, given: Any) -> float:
    """An argument as a number, whether there is anything to use it on or not."""
    try:
        return float(given)
    except ValueError:
        raise ArgumentError(f"{name} must be a number, not {given!r}") from None
    except TypeError:
        raise ArgumentTypeError(f"{name} must be a number, not {given!r}") from None
