"""Tensors from data of the user's program, and questions about them."""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad._ops.functions import function
from telegrad._session.current import current_session
from telegrad._session.devices import as_device, require_device
from telegrad._session.session import ClientSession
from telegrad._tensor import host_arrays as _host_arrays
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.meta import Device, Meta


def tensor(
    data: Any, *, dtype: DType | None = None, device: str | Device | None = None, requires_grad: bool = False
) -> Tensor:
    """A new leaf tensor with a copy of ``data``: numbers, nested lists, NumPy arrays."""
    if isinstance(data, Tensor):
        made = data.detach().clone().to(device or data.device, dtype or data.dtype)
    else:
        made = _upload(data, dtype, device, current_session())
    return made.requires_grad_() if requires_grad else made


def as_tensor(data: Any, dtype: DType | None = None, device: str | Device | None = None) -> Tensor:
    """``data`` as a tensor; a tensor of the wanted type and place is returned itself."""
    if isinstance(data, Tensor):
        return data.to(device or data.device, dtype or data.dtype)
    return _upload(data, dtype, device, current_session())


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor with the elements of an array; a copy, since it lives on the server."""
    if not isinstance(array, np.ndarray):
        raise ArgumentTypeError(f"from_numpy: expected a NumPy array, not {type(array).__name__}")
    return _upload(array, None, None, current_session())


def asarray(obj: Any, *, dtype: DType | None = None, device: str | Device | None = None) -> Tensor:
    """``as_tensor`` under the array API's name."""
    return as_tensor(obj, dtype, device)


def _upload(data: Any, dtype: DType | None, device: Any, session: ClientSession) -> Tensor:
    place = session.default_device if device is None else require_device(as_device(device), session, "tensor")
    if dtype is not None and not isinstance(dtype, DType):
        raise ArgumentTypeError(f"tensor: dtype must be a dtype such as telegrad.float32, not {dtype!r}")
    array, natural = _host_arrays.from_python(_read_tensors(data))
    own = _natural_dtype(array, natural)
    wanted = dtype or own
    if natural and dtype is not None:
        _host_arrays.check_fit(array, wanted)
    meta = Meta.of(array.shape, wanted, place)
    return Tensor(session, session.upload(meta, _host_arrays.bytes_of(array, wanted), session.sites.current()), meta)


def _natural_dtype(array: np.ndarray[Any, Any], natural: bool) -> DType:
    """The type of the data itself; Python's floats count as the default type."""
    if not natural:
        return _host_arrays.dtype_of(array)
    kind = array.dtype.kind
    if kind == "f" or not array.size:
        return dtypes.get_default_dtype()
    if kind == "c":
        return dtypes.get_default_dtype().to_complex()
    return dtypes.bool_ if kind == "b" else dtypes.int64


def _read_tensors(data: Any) -> Any:
    """Tensors inside of lists are read; anything else stays."""
    if isinstance(data, Tensor):
        return data.detach().tolist()
    if isinstance(data, (list, tuple)) and any(isinstance(d, (Tensor, list, tuple)) for d in data):
        return [_read_tensors(d) for d in data]
    return data


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


def get_default_device() -> Device:
    """Where new tensors of the current session go."""
    return current_session().default_device


def set_default_device(device: str | Device) -> None:
    """Have new tensors of the current session made on another of its devices; by default its first GPU."""
    session = current_session()
    place = require_device(as_device(device), session, "set_default_device")
    session.default_device, session.places = place, (place, *session.devices)


def is_tensor(thing: Any) -> bool:
    """Whether it is a telegrad tensor."""
    return isinstance(thing, Tensor)


def numel(input: Tensor) -> int:
    """Number of elements."""
    return input.numel()


def _where(self: Tensor, condition: Tensor, other: Any) -> Any:
    """This tensor where ``condition``, else ``other``."""
    return where(condition, self, other)


METHODS: dict[str, Any] = {"nonzero": nonzero, "equal": equal, "allclose": allclose, "where": _where}
