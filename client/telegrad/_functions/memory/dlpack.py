"""DLPack: elements exchanged with other array libraries of this process, by way of its memory.

A tensor's elements are on the server, so that both directions copy them: an exported capsule holds what the tensor held
when it was made, and an imported tensor does not follow later changes of the other library's array.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from telegrad._session.devices import DeviceLike
from telegrad._tensor.host_arrays import UNKNOWN_TO_NUMPY
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, DeviceError, NotSupportedError

from ..creation import from_numpy
from ..reading import read_array

_CPU: Final = (1, 0)
"""DLPack's name of a CPU's memory."""
_ON_HOST: Final = (1, 3)
"""Kinds of memory that a CPU reads: its own, and such that CUDA has pinned."""


class _Capsule:
    """A capsule as a producer, which is what NumPy takes."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU


def from_dlpack(ext_tensor: Any, *, device: DeviceLike = None, copy: bool | None = None) -> Tensor:
    """Return a tensor with the elements of another library's array in this process's memory, or of a capsule.

    Raises DeviceError for arrays in a GPU's memory, and ArgumentTypeError for what is no producer of DLPack.
    """
    if isinstance(ext_tensor, Tensor):
        return ext_tensor.detach() if device is None else ext_tensor.detach().to(device)
    if copy is False:
        raise NotSupportedError("from_dlpack: the elements are copied to the server; leave copy=False out")
    made = from_numpy(_array_of(ext_tensor))
    return made if device is None else made.to(device)


def _array_of(ext_tensor: Any) -> np.ndarray[Any, Any]:
    if not hasattr(ext_tensor, "__dlpack__"):
        if type(ext_tensor).__name__ != "PyCapsule":
            raise ArgumentTypeError(f"from_dlpack: expected a producer of DLPack, not {type(ext_tensor).__name__}")
        ext_tensor = _Capsule(ext_tensor)
    kind, _ = ext_tensor.__dlpack_device__()
    if kind not in _ON_HOST:
        raise DeviceError("from_dlpack: the array is not in this process's own memory; bring it to the CPU first")
    try:
        return np.from_dlpack(ext_tensor)
    except BufferError as error:
        raise ArgumentTypeError(f"from_dlpack: NumPy, which reads the array, cannot: {error}") from None


def to_dlpack(tensor: Tensor) -> Any:
    """Return a capsule of DLPack with a copy of the elements in this process's memory; one round trip."""
    return _dlpack(tensor)


def _dlpack(
    self: Tensor, *, stream: Any = None, max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None, copy: bool | None = None,
) -> Any:  # fmt: skip
    """Return a capsule of DLPack with a copy of the elements in this process's memory."""
    if self.requires_grad:
        raise BufferError("__dlpack__: a tensor that requires grad cannot be exported; use tensor.detach()")
    if self.dtype in UNKNOWN_TO_NUMPY:
        raise BufferError(f"__dlpack__: NumPy, which makes the capsule, has no {self.dtype.name}; convert with to()")
    if copy is False:
        raise BufferError("__dlpack__: the elements of a remote tensor are copied; leave copy=False out")
    if stream is not None:
        raise BufferError("__dlpack__: the capsule is in a CPU's memory, which has no streams")
    return read_array(self).__dlpack__(max_version=max_version, dl_device=dl_device)


def _dlpack_device(self: Tensor) -> tuple[int, int]:
    """Return DLPack's name of the memory that ``__dlpack__`` exports: this process's own."""
    return _CPU


METHODS: dict[str, Any] = {"__dlpack__": _dlpack, "__dlpack_device__": _dlpack_device}
