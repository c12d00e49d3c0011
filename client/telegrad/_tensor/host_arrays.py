"""Bytes of tensors as NumPy arrays and Python numbers, and back.

NumPy has neither bfloat16 nor complex32: float32 and complex64 stand for them, which hold all their numbers exactly.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DTypeError

Array = np.ndarray[Any, Any]

UNKNOWN_TO_NUMPY = {dtypes.bfloat16: dtypes.float32, dtypes.complex32: dtypes.complex64}
"""Types that NumPy lacks, with the type that stands for each."""


class _NumpyDTypes(dict[DType, np.dtype[Any]]):
    def __missing__(self, dtype: DType) -> np.dtype[Any]:
        raise DTypeError(f"there are no tensors of {dtype!r}; use bfloat16, float16 or int8")


TO_NUMPY = _NumpyDTypes((dtype, np.dtype(dtype.name)) for dtype in dtypes.ALL if dtype not in UNKNOWN_TO_NUMPY)
FROM_NUMPY = {numpy_dtype: dtype for dtype, numpy_dtype in TO_NUMPY.items()}
_AS_THEY_TRAVEL = TO_NUMPY if sys.byteorder == "little" else {}
_FORMATS = {
    "float32": "<f", "float64": "<d", "int64": "<q", "int32": "<i", "int16": "<h", "int8": "<b", "uint8": "<B",
    "bool": "<?", "float16": "<e", "uint16": "<H", "uint32": "<I", "uint64": "<Q",
}  # fmt: skip


def array_of(dtype: DType, shape: tuple[int, ...], data: memoryview) -> Array:
    """Return a writable array of raw bytes; bfloat16 becomes float32 and complex32 complex64."""
    if dtype is dtypes.bfloat16:
        bits = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(shape)
    if dtype is dtypes.complex32:
        return np.frombuffer(data, np.float16).astype(np.float32).view(np.complex64).reshape(shape)
    array = np.frombuffer(data, TO_NUMPY[dtype]).reshape(shape)
    return array if array.flags.writeable else array.copy()


def bytes_of(array: Array, dtype: DType) -> memoryview:
    """Return the elements as they travel: row-major, little-endian, of the type's own width."""
    if array.dtype is _AS_THEY_TRAVEL.get(dtype) and array.flags.c_contiguous:
        return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    with np.errstate(all="ignore"):  # numbers that do not fit wrap or overflow, as in PyTorch
        if dtype is dtypes.bfloat16:
            stored = _rounded_to_bfloat16(np.ascontiguousarray(array, np.float32))
        elif dtype is dtypes.complex32:
            stored = np.ascontiguousarray(array, np.complex64).reshape(-1).view(np.float32).astype(np.float16)
        else:
            stored = np.ascontiguousarray(array, TO_NUMPY[dtype].newbyteorder("<"))
    elements: Any = stored.reshape(-1).view(np.uint8)
    return memoryview(elements)


def _rounded_to_bfloat16(array: Array) -> Array:
    """Return the upper halves of float32 numbers, rounded to nearest even."""
    bits = array.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(array), np.uint16(0x7FC0), rounded)


def scalar_of(dtype: DType, data: memoryview) -> Any:
    """Return the one Python number in ``data``."""
    layout = _FORMATS.get(dtype.name)
    return struct.unpack(layout, data)[0] if layout else array_of(dtype, (), data).item()


def dtype_of(array: Array) -> DType:
    """Return the telegrad type of an array."""
    dtype = FROM_NUMPY.get(array.dtype) or FROM_NUMPY.get(array.dtype.newbyteorder("="))
    if dtype is None:
        raise ArgumentTypeError(
            f"tensor: NumPy arrays of type {array.dtype} cannot become tensors; convert with astype()"
        )
    return dtype


def from_python(data: Any, dtype: DType | None = None) -> tuple[Array, bool]:
    """Return nested numbers as an array, and whether Python numbers decide its type and not NumPy arrays in them.

    ``dtype`` is what the program asks for; integers from 2**63 on are refused for all types but uint64.
    """
    if isinstance(data, np.ndarray | np.generic):
        return np.asarray(data), False
    if hasattr(data, "__array__") and not isinstance(data, (list, tuple)):
        return np.asarray(data), False
    try:
        array = np.array(_plain(data))
        if dtype is dtypes.uint64 and array.dtype.kind in "fO" and _all_integers(data):
            array = np.array(_plain(data), np.uint64)
    except OverflowError:
        array = np.array(_plain(data))
    except ValueError as error:
        kind = ArgumentTypeError if _is_uneven(data) else ArgumentError
        raise kind(
            f"tensor: data must be numbers in rectangular nested lists: {_first_uneven(data) or error}"
        ) from None
    if dtype is not dtypes.uint64 or array.dtype.kind != "u":
        _check_numbers(array, data)
    return array, not _holds_arrays(data)


def _is_uneven(data: Any) -> bool:
    """Whether numbers and lists are in one list."""
    nested = [isinstance(item, (list, tuple)) for item in data] if isinstance(data, (list, tuple)) else []
    return any(nested) and (not all(nested) or any(_is_uneven(item) for item in data))


def _first_uneven(data: Any) -> str:
    """Return what PyTorch says of the first of nested lists that is shorter or longer than the first on its level."""
    sizes, first = [], data
    while isinstance(first, (list, tuple)):
        sizes.append(len(first))
        first = first[0] if first else None
    level = [data]
    for dim, size in enumerate(sizes):
        for one in level:
            if isinstance(one, (list, tuple)) and len(one) != size:
                return f"expected sequence of length {size} at dim {dim} (got {len(one)})"
        level = [item for one in level if isinstance(one, (list, tuple)) for item in one]
    return ""


def _check_numbers(array: Array, data: Any) -> None:
    """Raise ArgumentError for data that are no numbers, and for integers that do not fit into 64 bits."""
    if array.dtype.kind not in "biufc":
        numbers = isinstance(data, int) or (isinstance(data, (list, tuple)) and _all_integers(data))
        if not numbers:
            wrong = next(_no_numbers(data), "")
            reason = "" if isinstance(wrong, (str, bytes)) else f": Could not infer dtype of {type(wrong).__name__}"
            kind = ArgumentError if reason or _begins_with_text(data) else ArgumentTypeError
            raise kind(f"tensor: data must be numbers in rectangular nested lists, not {_shown(data)}{reason}")
    elif array.dtype.kind not in "uf" or not array.size or np.abs(array).max() < 2**63 or not _all_integers(data):
        return
    raise ArgumentError(f"tensor: {_shown(data)} has an integer that does not fit into 64 bits")


def _begins_with_text(data: Any) -> bool:
    """Whether a string is the first that nested lists hold, which PyTorch takes for another list, and refuses so."""
    is_nested = isinstance(data, (list, tuple))
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return is_nested and isinstance(data, str) and data != ""


def _no_numbers(data: Any) -> Iterator[Any]:
    """Give what is no number among data and the lists in them."""
    if isinstance(data, (list, tuple)):
        for item in data:
            yield from _no_numbers(item)
    elif not isinstance(data, (int, float, complex, np.generic, np.ndarray)):
        yield data


def _all_integers(data: Any) -> bool:
    return all(map(_all_integers, data)) if isinstance(data, (list, tuple)) else isinstance(data, int)


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) < 60 else text[:57] + "..."


def check_fit(array: Array, dtype: DType) -> None:
    """Raise ArgumentError for Python numbers that do not fit into the type that the program asks for."""
    if array.dtype.kind == "c" and not dtype.is_complex and dtype is not dtypes.bool_:
        raise ArgumentTypeError(f"tensor: complex numbers do not become {dtype.name}; take their real part")
    if dtype.category != dtypes.INTEGER or not array.size or array.dtype.kind not in "iuf":
        return
    limits = np.iinfo(TO_NUMPY[dtype])
    low = limits.min if dtype.is_signed else -limits.max
    if not (low <= array.min() and array.max() <= limits.max):
        raise ArgumentError(f"tensor: values from {array.min()} to {array.max()} do not fit into {dtype.name}")


def _plain(data: Any) -> Any:
    if type(data) is list and _OF_NUMBERS.issuperset(map(type, data)):
        return data
    return [_plain(element) for element in data] if isinstance(data, (list, tuple, range)) else data


_OF_NUMBERS = frozenset((bool, int, float, complex))


def mixed_dtype(data: Any) -> DType | None:
    """Return the type of lists that hold arrays, NumPy's scalars or tensors, which PyTorch promotes with the numbers.

    None is for data that hold Python's numbers alone, and for what holds something else.
    """
    kinds = _kinds_in(data) if isinstance(data, (list, tuple)) else _OF_NUMBERS
    if kinds <= _OF_NUMBERS or None in kinds:
        return None
    real = dtypes.get_default_dtype()
    of_numbers: dict[Any, Any] = {bool: dtypes.bool_, int: dtypes.int64, float: real, complex: real.to_complex()}
    types: list[DType] = [of_numbers.get(kind, kind) for kind in kinds]
    return reduce(dtypes.promote_types, types)


def _kinds_in(data: Any) -> set[Any]:
    """Return the classes of the Python numbers in lists, and the types of all else; None is for what has no type."""
    kinds: set[Any] = set()
    for kind in set(map(type, data)):
        if kind in _OF_NUMBERS:
            kinds.add(kind)
            continue
        for element in (element for element in data if type(element) is kind):
            if isinstance(element, (list, tuple)):
                kinds |= _kinds_in(element)
            else:
                dtype = getattr(element, "dtype", None)
                kinds.add(FROM_NUMPY.get(dtype.newbyteorder("=")) if isinstance(dtype, np.dtype) else dtype)
    return kinds


def _holds_arrays(data: Any) -> bool:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return isinstance(data, np.ndarray | np.generic)
