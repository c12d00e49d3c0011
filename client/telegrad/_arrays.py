"""Bytes of tensors as NumPy arrays and Python numbers, without a bfloat16 type: NumPy has none."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentTypeError, DTypeError

Array = np.ndarray[Any, Any]

TO_NUMPY = {dtype: np.dtype(dtype.name) for dtype in dtypes.ALL if dtype is not dtypes.bfloat16}
FROM_NUMPY = {numpy_dtype: dtype for dtype, numpy_dtype in TO_NUMPY.items()}
_FORMATS = {
    "float32": "<f", "float64": "<d", "int64": "<q", "int32": "<i", "int16": "<h", "int8": "<b", "uint8": "<B",
    "bool": "<?", "float16": "<e",
}  # fmt: skip


def array_of(dtype: DType, shape: tuple[int, ...], data: memoryview) -> Array:
    """A writable array of raw bytes; bfloat16 widened to float32, which holds it exactly."""
    if dtype is dtypes.bfloat16:
        bits = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(shape)
    array = np.frombuffer(data, TO_NUMPY[dtype]).reshape(shape)
    return array if array.flags.writeable else array.copy()


def scalar_of(dtype: DType, data: memoryview) -> Any:
    """The one Python number in ``data``."""
    layout = _FORMATS.get(dtype.name)
    return struct.unpack(layout, data)[0] if layout else array_of(dtype, (), data).item()


def dtype_of(array: Array) -> DType:
    """The telegrad type of an array."""
    found = FROM_NUMPY.get(array.dtype.newbyteorder("="))
    if found is None:
        raise DTypeError(f"tensor: NumPy arrays of type {array.dtype} cannot become tensors; convert with astype()")
    return found


def from_python(data: Any) -> tuple[Array, bool]:
    """Nested numbers as an array, and whether their type is Python's choice, not NumPy's."""
    if isinstance(data, np.ndarray | np.generic):
        return np.asarray(data), False
    if hasattr(data, "__array__") and not isinstance(data, (list, tuple)):
        return np.asarray(data), False
    try:
        return np.array(_plain(data)), not _holds_arrays(data)
    except ValueError as error:
        raise ArgumentTypeError(f"tensor: not a rectangular nest of numbers: {error}") from None


def _plain(data: Any) -> Any:
    return [_plain(d) for d in data] if isinstance(data, (list, tuple, range)) else data


def _holds_arrays(data: Any) -> bool:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return isinstance(data, np.ndarray | np.generic)
