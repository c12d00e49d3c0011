"""Tensors from data of the user's program, and the conversions of a tensor to another type or place."""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentTypeError, DeviceError, DTypeError
from telegrad_protocol.meta import Device, Meta

from . import _arrays, _modes
from ._functions import function
from ._session import Session
from ._tensor import Tensor


def tensor(
    data: Any, *, dtype: DType | None = None, device: str | Device | None = None, requires_grad: bool = False
) -> Tensor:
    """A new leaf tensor with a copy of ``data``: numbers, nested lists, NumPy arrays."""
    if isinstance(data, Tensor):
        made = data.detach().clone().to(device or data.device, dtype or data.dtype)
    else:
        made = _upload(data, dtype, device, _modes.current_session())
    return made.requires_grad_() if requires_grad else made  # type: ignore[no-any-return]


def as_tensor(data: Any, dtype: DType | None = None, device: str | Device | None = None) -> Tensor:
    """``data`` as a tensor; a tensor of the wanted type and place is returned itself."""
    if isinstance(data, Tensor):
        return data.to(device or data.device, dtype or data.dtype)  # type: ignore[no-any-return]
    return _upload(data, dtype, device, _modes.current_session())


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor with the elements of an array; a copy, since it lives on the server."""
    if not isinstance(array, np.ndarray):
        raise ArgumentTypeError(f"from_numpy: expected a NumPy array, not {type(array).__name__}")
    return _upload(array, None, None, _modes.current_session())


def _upload(data: Any, dtype: DType | None, device: Any, session: Session) -> Tensor:
    place = session.default_device if device is None else Device(device)
    if place not in session.devices:
        raise DeviceError(f"tensor: device {place} is not there; the server has {', '.join(map(str, session.devices))}")
    array, natural = _arrays.from_python(_read_tensors(data))
    wanted = dtype or _natural_dtype(array, natural)
    if wanted is dtypes.bfloat16:
        return function("_to_copy")(_send(array.astype(np.float32), dtypes.float32, place, session), dtype=wanted)  # type: ignore[no-any-return]
    return _send(array.astype(_arrays.TO_NUMPY[wanted], copy=False), wanted, place, session)


def _natural_dtype(array: np.ndarray[Any, Any], natural: bool) -> DType:
    """The type of the data itself; Python's floats count as the default type."""
    if array.dtype.kind == "O" or array.dtype.kind in "US":
        raise ArgumentTypeError("tensor: data must be numbers in rectangular nested lists")
    if natural and array.dtype.kind == "f" or array.size == 0 and natural:
        return dtypes.get_default_dtype()
    if natural and array.dtype.kind == "c":
        return dtypes.get_default_dtype().to_complex()
    if natural and array.dtype.kind in "iu":
        return dtypes.int64
    return _arrays.dtype_of(array)


def _send(array: np.ndarray[Any, Any], dtype: DType, device: Device, session: Session) -> Tensor:
    meta = Meta.of(array.shape, dtype, device)
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    data = memoryview(plain.reshape(-1).view(np.uint8))
    return Tensor(session, session.upload(meta, data, session.sites.current()), meta)


def _read_tensors(data: Any) -> Any:
    """Tensors inside of lists are read; anything else stays."""
    if isinstance(data, Tensor):
        return data.detach().tolist()
    if isinstance(data, (list, tuple)) and any(isinstance(d, (Tensor, list, tuple)) for d in data):
        return [_read_tensors(d) for d in data]
    return data


# -- conversions --------------------------------------------------------------------------------------------------


def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The tensor with another dtype, on another device, or like another tensor; itself where nothing changes."""
    device, dtype, copy = _target(self, args, dict(kwargs))
    if device is self.device and dtype is self.dtype and not copy:
        return self
    if device not in self._session.devices:
        raise DeviceError(f"to: device {device} is not there; the server has {', '.join(map(str, self._session.devices))}")
    return function("_to_copy")(self, dtype=dtype, device=device)  # type: ignore[no-any-return]


def _target(self: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Device, DType, bool]:
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    copy = bool(kwargs.pop("copy", False))
    kwargs.pop("non_blocking", None)
    kwargs.pop("memory_format", None)
    flags = []
    for arg in (*args, *([kwargs.pop("other")] if "other" in kwargs else [])):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, DType):
            dtype = arg
        elif isinstance(arg, (str, Device)):
            device = arg
        elif isinstance(arg, bool):
            flags.append(arg)
        elif isinstance(arg, int):
            device = Device("cuda", arg)
        elif arg is not None:
            raise ArgumentTypeError(f"to: expected a dtype, a device or a tensor, not {type(arg).__name__}")
    if kwargs:
        raise ArgumentTypeError(f"to: unknown argument {next(iter(kwargs))!r}")
    copy = copy or (len(flags) > 1 and flags[1])
    return self.device if device is None else Device(device), dtype or self.dtype, copy


def cpu(self: Tensor) -> Tensor:
    """The tensor on the server's CPU."""
    return to(self, "cpu")


def cuda(self: Tensor, device: int | str | Device | None = None, non_blocking: bool = False) -> Tensor:
    """The tensor on a GPU of the server."""
    return to(self, Device("cuda", 0) if device is None else device)


def type_(self: Tensor, dtype: DType | None = None) -> Any:
    """The tensor as another type, or the name of its type."""
    return f"telegrad.{self.dtype.name}" if dtype is None else to(self, dtype)


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor in the type of another."""
    return to(self, other.dtype)


def contiguous(self: Tensor) -> Tensor:
    """The tensor in row-major order; itself where it is."""
    return self if self._meta.is_contiguous else function("contiguous")(self)


def requires_dtype(self: Tensor, dtype: DType) -> None:
    """Refuse a tensor of another type."""
    if self.dtype is not dtype:
        raise DTypeError(f"expected a tensor of {dtype.name}, got {self._meta}")


def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """``input`` where ``condition``, else ``other``; with the condition alone, the indices at which it is true."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    return function("where")(condition, input, other)


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Indices of the elements that are not zero; waits for the server, which alone knows how many there are."""
    found = function("nonzero")(input)
    return tuple(found.unbind(1)) if as_tuple else found


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements; one round trip."""
    return input.shape == other.shape and (input.numel() == 0 or bool(function("eq")(input, other).all()))


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close; one round trip."""
    return bool(function("isclose")(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan).all())


def is_tensor(thing: Any) -> bool:
    """Whether it is a telegrad tensor."""
    return isinstance(thing, Tensor)


def numel(input: Tensor) -> int:
    """Number of elements."""
    return input.numel()


def attach() -> None:
    """Give ``Tensor`` these methods, and one per dtype."""
    for method in (to, cpu, cuda, type_as, contiguous, nonzero, equal, allclose):
        setattr(Tensor, method.__name__, method)
    Tensor.type = type_
    names = {
        "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
        "int": dtypes.int32, "long": dtypes.int64, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
        "bool": dtypes.bool_, "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
    }  # fmt: skip
    for name, dtype in names.items():
        setattr(Tensor, name, _conversion(name, dtype))
    Tensor.where = lambda self, condition, other: where(condition, self, other)
    Tensor.T = property(_transposed)
    Tensor.mT = property(lambda self: self.transpose(-2, -1))


def _transposed(self: Tensor) -> Any:
    return self.permute(tuple(reversed(range(self.ndim)))) if self.ndim else self


def _conversion(name: str, dtype: DType) -> Any:
    def convert(self: Tensor) -> Tensor:
        return to(self, dtype)

    convert.__name__ = name
    convert.__doc__ = f"The tensor as {dtype.name}."
    return convert


attach()
