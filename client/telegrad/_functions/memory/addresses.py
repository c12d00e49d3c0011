"""Which memory a tensor shows: its address, and methods that let a handle show other memory."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from telegrad._ops.functions import function
from telegrad._ops.outputs import check_made_outside
from telegrad._session.grad_mode import no_grad
from telegrad._session.thread_modes import thread
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import (
    ArgumentTypeError,
    DeviceError,
    DTypeError,
    InplaceError,
    NotSupportedError,
    ShapeError,
)
from telegrad_protocol.layout import contiguous_strides


def data_ptr(self: Tensor) -> int:
    """Return the address of the first element in the server's memory; 0 without elements. One round trip.

    The address tells which tensors share memory. This process cannot read from it; ``numpy()`` gives the elements.
    """
    ((_, _, address),) = self._session.query("storages", [self._id])
    return int(address)


def set_(
    self: Tensor, source: Any = None, storage_offset: int = 0, size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Let this tensor show the memory of ``source``, a tensor or a storage of its type, or bytes; else no memory.

    With ``size`` it is the part that begins ``storage_offset`` elements after the beginning of the memory.
    """
    if thread.modes.records:
        check_made_outside("set_", self)
    if self.requires_grad and self.is_leaf and thread.modes.records:
        raise InplaceError("set_: a leaf tensor that requires grad is changed in place; use no_grad()")
    source = _shown(source, self.dtype)
    if source is not None and source.dtype is not self.dtype:
        raise DTypeError(f"set_: {source._meta} does not have the type of {self._meta}")
    if source is not None and source.device is not self.device:
        raise DeviceError(f"set_: {source._meta} is on {source.device}, and {self._meta} on {self.device}")
    with no_grad():
        if source is None:
            shown = self.new_empty(0)
        elif size is None:
            shown = function("alias")(source.detach())
        else:
            steps = contiguous_strides(tuple(size)) if stride is None else stride
            shown = source.detach().as_strided(size, steps, storage_offset)
    self._become(shown)
    return self


def _shown(source: Any, dtype: DType) -> Tensor | None:
    """Return a tensor that shows what ``set_`` was given: bytes as elements of this type."""
    storages = import_module("telegrad.storage")
    if isinstance(source, storages.TypedStorage):
        return source.shown_as(source.dtype)  # type: ignore[no-any-return]
    if isinstance(source, storages.UntypedStorage):
        return source.shown_as(dtype)  # type: ignore[no-any-return]
    if source is not None and not isinstance(source, Tensor):
        raise ArgumentTypeError(f"set_: expected a tensor or a storage, not {type(source).__name__}")
    return source


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """Return what ``load_state_dict`` puts in this tensor's place: ``other`` with ``assign``, else a copy of it."""
    if other.shape != self.shape:
        raise ShapeError(f"module_load: {other._meta} does not have the shape of {self._meta}")
    return other.detach() if assign else self.detach().copy_(other)


def to_padded_tensor(self: Tensor, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
    """Raise NotSupportedError: tensors of several lengths in one, a prototype in PyTorch, do not exist here."""
    raise NotSupportedError("to_padded_tensor: there are no nested tensors; see nn.utils.rnn.pad_sequence()")


def untyped_storage(self: Tensor) -> Any:
    """Return the bytes of memory that this tensor and its views show."""
    return import_module("telegrad.storage").storage_of(self)


def storage(self: Tensor) -> Any:
    """Return the elements in memory that this tensor and its views show."""
    return import_module("telegrad.storage").storage_of(self, is_typed=True)


METHODS: dict[str, Any] = {
    "data_ptr": data_ptr, "const_data_ptr": data_ptr, "set_": set_, "module_load": module_load,
    "to_padded_tensor": to_padded_tensor, "untyped_storage": untyped_storage,
    "storage": storage, "_typed_storage": storage,
}  # fmt: skip
