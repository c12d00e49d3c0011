"""Tensors made of the program's data, the default device, and functions whose result depends on the data."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from telegrad._ops.functions import function
from telegrad._ops.operand_classes import overrides
from telegrad._session.current import current_session, has_session
from telegrad._session.devices import DeviceLike, as_device, default_device, require_device, session_for
from telegrad._session.own_code import note_once
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import thread
from telegrad._tensor import host_arrays as _host_arrays
from telegrad._tensor.tensor import Tensor, new_tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops.contract import describe

from .into import into


def tensor(
    data: Any, *, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a new leaf tensor with a copy of ``data``: a number, nested lists, a NumPy array or a tensor."""
    if isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
        return copied(data, dtype, device, requires_grad)
    made = shown(_upload(data, dtype, device, session_for(device)))
    return made.requires_grad_() if requires_grad else made


def copied(data: Tensor, dtype: DType | None, device: DeviceLike, requires_grad: bool = False) -> Tensor:
    """Return a new leaf with the elements of a tensor."""
    copy = data.detach().clone().to(data.device if device is None else device, dtype or data.dtype)
    return copy.requires_grad_() if requires_grad else copy


def as_tensor(data: Any, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Return ``data`` as a tensor; a tensor that has the dtype and the device already is returned itself."""
    if isinstance(data, Tensor):
        return data.to(data.device if device is None else device, dtype or data.dtype)
    return shown(_upload(data, dtype, device, session_for(device)))


def shown(made: Tensor) -> Tensor:
    """Return a tensor of the program's data as modes that are shown all operators have it: lifted."""
    if not overrides.dispatch_modes or overrides.ignores_dispatch:
        return made
    lifted = import_module("telegrad.ops").aten.lift_fresh.default
    return import_module("telegrad._dispatch.asking").ask(lifted, (made,), {})  # type: ignore[no-any-return]


def from_numpy(ndarray: np.ndarray[Any, Any]) -> Tensor:
    """Return a tensor with the elements of an array: a copy, since tensors live on the server."""
    if not isinstance(ndarray, np.ndarray):
        raise ArgumentTypeError(f"from_numpy: expected a NumPy array, not {type(ndarray).__name__}")
    session = current_session()  # a block of another device does not concern it
    return shown(_upload(ndarray, None, session.default_device, session))


def asarray(
    obj: Any, *, dtype: DType | None = None, device: DeviceLike = None, copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:  # fmt: skip
    """Return ``obj`` as a tensor, as ``as_tensor`` does; with ``copy`` a tensor too is copied.

    Bytes, and what else has Python's buffer, are taken for elements of ``dtype``, by default the default type.

    A tensor keeps its history, unless ``requires_grad`` is False; a leaf that is returned itself is asked to have a
    gradient, or not. Raises ArgumentError with ``copy=False`` where the elements have to be copied, as all are that are
    on this machine.
    """
    made = as_tensor(_elements_in(obj, dtype), dtype, device)
    if copy is False and made is not obj:
        raise ArgumentError(f"asarray: a {type(obj).__name__} becomes a tensor only by a copy; leave copy=False out")
    if made is obj and copy:
        made = obj.clone()
    return _with_history(made, obj, requires_grad)


def _elements_in(obj: Any, dtype: DType | None) -> Any:
    """Return the elements of an object with Python's buffer as a tensor, and any other object as it is."""
    if isinstance(obj, (Tensor, np.ndarray, np.generic)):
        return obj
    try:
        memoryview(obj)
    except TypeError:
        return obj
    reading = import_module("telegrad._functions.process_settings")
    return reading.frombuffer(obj, dtype=dtype or dtypes.get_default_dtype())


def _with_history(made: Tensor, obj: Any, requires_grad: bool | None) -> Tensor:
    """Return a tensor that was made of ``obj`` as one whose gradient is wanted, or not, or as ``obj`` has it."""
    if requires_grad is None:
        if made.requires_grad and isinstance(obj, Tensor):
            note_once(_KEEPS_HISTORY)
        return made
    if made.requires_grad is requires_grad:
        return made
    return made.requires_grad_(requires_grad) if made.is_leaf else made.detach()


_KEEPS_HISTORY = (
    "torch.asarray: unspecified requires_grad now defaults to obj.requires_grad instead of False. Pass "
    "requires_grad=False explicitly to get the old behavior and silence this warning."
)


def _upload(data: Any, dtype: DType | None, device: Any, session: ClientSession) -> Tensor:
    place = default_device(session) if device is None else require_device(as_device(device), session, "tensor")
    if dtype is not None and (dtype := dtypes.as_dtype(dtype)) is None:
        raise ArgumentTypeError(f"tensor: dtype must be a dtype such as telegrad.float32, not {dtype!r}")
    if type(data) is np.ndarray:
        array, wanted = data, dtype or _host_arrays.dtype_of(data)
    else:
        array, natural = _host_arrays.from_python(_read_tensors(data), dtype)
        wanted = dtype or _host_arrays.mixed_dtype(data) or _natural_dtype(array, natural)
        if natural and dtype is not None:
            _host_arrays.check_fit(array, wanted)
    meta = Meta.of(array.shape, wanted, place)
    id = session.upload(meta, _host_arrays.bytes_of(array, wanted), session.sites.current())
    made = new_tensor(session, id, meta)
    if thread.modes.inference:
        made._is_inference = True
    return made


def _natural_dtype(array: np.ndarray[Any, Any], natural: bool) -> DType:
    """Return the type of the data: of an array its own, of Python's floats the default one."""
    if not natural:
        return _host_arrays.dtype_of(array)
    kind = array.dtype.kind
    if kind == "f" or not array.size:
        return dtypes.get_default_dtype()
    if kind == "c":
        return dtypes.get_default_dtype().to_complex()
    return dtypes.bool_ if kind == "b" else dtypes.int64


def _read_tensors(data: Any) -> Any:
    """Return ``data`` with every tensor in it replaced by nested lists of its elements."""
    if isinstance(data, Tensor):
        return data.detach().tolist()
    if not _may_hold_tensors(data):
        return data
    elements = iter(_elements_of(list(_tensors_in(data))))
    return _replaced(data, elements)


def _may_hold_tensors(data: Any) -> bool:
    return isinstance(data, (list, tuple)) and any(isinstance(element, (Tensor, list, tuple)) for element in data)


def _tensors_in(data: Any) -> Iterator[Tensor]:
    """Give the tensors in nested lists in order."""
    for element in data:
        if isinstance(element, Tensor):
            yield element
        elif _may_hold_tensors(element):
            yield from _tensors_in(element)


def _elements_of(tensors: list[Tensor]) -> list[Any]:
    """Return nested lists of the elements of tensors; those of one type and device wait for the server once.

    A tensor of one element gives a number, whatever its shape, as in PyTorch.
    """
    alike: dict[Any, list[int]] = {}
    for place, tensor in enumerate(tensors):
        alike.setdefault((tensor._session, tensor.dtype, tensor.device), []).append(place)
    elements: list[Any] = [None] * len(tensors)
    for places in alike.values():
        flat = function("cat")([tensors[place].detach().reshape(-1) for place in places]).tolist()
        end = 0
        for place in places:
            start, end = end, end + tensors[place].numel()
            shape = () if end - start == 1 else tensors[place].shape
            elements[place] = np.array(flat[start:end], object).reshape(shape).tolist()
    return elements


def _replaced(data: Any, elements: Iterator[Any]) -> Any:
    """Return nested lists with the next of ``elements`` in place of each tensor."""
    if not _may_hold_tensors(data):
        return data
    return [next(elements) if isinstance(element, Tensor) else _replaced(element, elements) for element in data]


def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Tensor | None = None) -> Any:
    """Return ``input`` where ``condition`` holds, else ``other``; of the condition alone, where it holds."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    chosen = function("where")(condition, input, other)
    return chosen if out is None else into("where", chosen, out)


def nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: bool = False) -> Any:
    """Return the indices of the elements that are not zero: (n, ndim), or with ``as_tuple`` one line per dimension.

    Waits for the server, which alone knows how many there are.
    """
    indices = function("nonzero")(input.unsqueeze(0) if as_tuple and not input.ndim else input)
    return tuple(indices.unbind(1)) if as_tuple else into("nonzero", indices, out)


def equal(input: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors have the same shape and elements; one round trip."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise ArgumentTypeError(f"equal: both arguments must be tensors, got {describe(input)} and {describe(other)}")
    _require_not_nested("equal", input, other)
    return input.shape == other.shape and (input.numel() == 0 or bool(function("eq")(input, other).all()))


def _require_not_nested(name: str, *tensors: Any) -> None:
    if any([getattr(tensor, "is_nested", False) for tensor in tensors]):
        raise NotSupportedError(f"{name}: not supported for nested tensors; compare their values() and offsets()")


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Tell whether |input - other| <= atol + rtol * |other| for all elements; one round trip."""
    _require_not_nested("allclose", input, other)
    return bool(function("isclose")(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan).all())


def get_default_device() -> Device:
    """Return the device on which this thread makes tensors of the current session if no device is named."""
    session = session_for(None)
    named = thread.modes.default_device or session.default_device
    return default_device(session) if named.type == "cuda" else named


def set_default_device(device: DeviceLike) -> None:
    """Set the device of new tensors of the current session; at first, and for None, the current GPU, else the CPU.

    ``cuda`` without an index is the current GPU of the thread that makes the tensor. A ``with`` block of a device has
    precedence over this.
    """
    place = None if device is None else as_device(device)
    is_meta = place is not None and place.type == "meta"
    before = thread.modes.default_device
    if is_meta or (before is not None and before.type == "meta"):
        thread.modes = thread.modes.but(default_device=place if is_meta else None)
        if is_meta or not has_session():
            return
    session = current_session()
    if place is not None:
        require_device(place, session, "set_default_device")
    session.set_default_device(place)


def is_tensor(obj: Any) -> bool:
    """Tell whether ``obj`` is a telegrad tensor."""
    return isinstance(obj, Tensor)


def _where(self: Tensor, condition: Tensor, other: Any) -> Any:
    """Return this tensor where ``condition`` holds, else ``other``."""
    return where(condition, self, other)


METHODS: dict[str, Any] = {"nonzero": nonzero, "equal": equal, "allclose": allclose, "where": _where}
