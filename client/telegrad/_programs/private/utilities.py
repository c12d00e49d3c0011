"""``torch._utils``: small functions that packages share with PyTorch's own modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from telegrad import cuda
from telegrad._ops.functions import function
from telegrad._other_devices import get_device_module
from telegrad._programs.rebuilding import _rebuild_meta_tensor_no_storage as _rebuild_meta_tensor_no_storage
from telegrad._programs.rebuilding import _rebuild_parameter as _rebuild_parameter
from telegrad._programs.rebuilding import _rebuild_parameter_with_state as _rebuild_parameter_with_state
from telegrad._programs.rebuilding import _rebuild_sparse_tensor as _rebuild_sparse_tensor
from telegrad._programs.rebuilding import _rebuild_tensor as _rebuild_tensor
from telegrad._programs.rebuilding import _rebuild_tensor_v2 as _rebuild_tensor_v2
from telegrad._programs.rebuilding import _rebuild_tensor_v3 as _rebuild_tensor_v3
from telegrad._session.devices import as_device
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError


def _get_available_device_type() -> str | None:
    """Return the type of the server's accelerators; None if it has none."""
    return "cuda" if cuda.is_available() else None


def _get_device_module(device_type: str) -> Any:
    """Return the module of a type of device."""
    return get_device_module(device_type)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index of a device; of None, with ``optional``, that of the current GPU; of the CPU -1."""
    if isinstance(device, int):
        return device
    if device is None:
        if not optional:
            raise ArgumentError("_get_device_index: expected a device, got None; pass one, or optional=True")
        return cuda.current_device()
    place = as_device(device)
    if place.type == "cpu":
        if not allow_cpu:
            raise ArgumentError(f"_get_device_index: expected a GPU, got {device!r}")
        return -1
    return cuda.current_device() if place.index is None else place.index


def _element_size(dtype: DType) -> int:
    """Return the bytes of an element."""
    return dtype.itemsize


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elements of tensors one after another."""
    flat: Tensor = function("cat")([tensor.reshape(-1) for tensor in tensors])
    return flat


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return parts of a flat tensor, of the shapes of these."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple([part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)])


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Yield lists of tensors of one type, in their order, each of at most ``size_limit`` bytes or a single tensor."""
    waiting: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        taken = waiting.setdefault((tensor.dtype, tensor.device, tensor.layout), [])
        if taken and sum(map(_bytes_of, taken)) + _bytes_of(tensor) > size_limit:
            yield taken.copy()
            taken.clear()
        taken.append(tensor)
    yield from waiting.values()


def _bytes_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements; of a sparse one those of its indices and values."""
    parts = (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,)
    return sum(part.numel() * part.element_size() for part in parts)
