"""Elements of tensors as JSON: nested lists to row-major bytes and back. Small tensors only; the large ones stream.

JSON has neither complex numbers nor NaN and infinities: ``{"complex": [re, im]}``, ``"NaN"``, ``"Infinity"`` and
``"-Infinity"`` stand for them, in both directions.
"""

from __future__ import annotations

import math
from typing import Any, Final

import ml_dtypes
import numpy as np

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import BY_NAME, DType
from telegrad_protocol.errors import ArgumentError, DTypeError
from telegrad_protocol.json_numbers import read_number

_ADDED: Final = {"bfloat16": ml_dtypes.bfloat16, "complex32": getattr(ml_dtypes, "complex32", "V4")}
_NUMPY: Final = {name: np.dtype(_ADDED.get(name, name)) for name in BY_NAME}


def encode_values(data: Any, dtype: str | None) -> tuple[bytes, str, tuple[int, ...]]:
    """Row-major bytes, dtype and shape of nested lists; without a dtype, the one that ``torch.tensor`` would infer."""
    shape = _shape_of(data)
    numbers: list[Any] = []
    _flatten(data, shape, numbers)
    chosen = BY_NAME[dtype] if dtype is not None else _inferred(numbers)
    return _pack(numbers, chosen), chosen.name, shape


def _shape_of(data: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(data, list):
        shape.append(len(data))
        data = data[0] if data else None
    return tuple(shape)


def _flatten(data: Any, shape: tuple[int, ...], numbers: list[Any]) -> None:
    if not shape:
        numbers.append(_number(data))
        return
    if not isinstance(data, list) or len(data) != shape[0]:
        raise ArgumentError("tensor: the lists are not nested evenly")
    for item in data:
        _flatten(item, shape[1:], numbers)


def _number(item: Any) -> Any:
    number = read_number(item)
    if isinstance(number, (int, float, complex)):
        return number
    if isinstance(number, list):
        raise ArgumentError("tensor: the lists are not nested evenly")
    raise ArgumentError(f"tensor: expected numbers, got {item!r:.60}")


def _inferred(numbers: list[Any]) -> DType:
    kinds = {type(number) for number in numbers}
    if complex in kinds:
        return dtypes.complex64
    if float in kinds or not kinds:
        return dtypes.float32
    return dtypes.int64 if int in kinds else dtypes.bool_


def _pack(numbers: list[Any], dtype: DType) -> bytes:
    if complex in map(type, numbers) and not dtype.is_complex:
        raise DTypeError(f"tensor: complex numbers do not fit into {dtype.name}")
    try:
        if dtype.category == dtypes.INTEGER:
            numbers = [int(number) for number in numbers]
        with np.errstate(over="ignore"):
            return np.array(numbers, _NUMPY[dtype.name]).tobytes()
    except (OverflowError, ValueError, TypeError) as error:
        raise ArgumentError(f"tensor: a value does not fit into {dtype.name}") from error


def decode_values(data: bytes | bytearray, dtype: str, shape: tuple[int, ...]) -> Any:
    """Nested lists of JSON values; a bare number for a 0-d tensor."""
    array = np.frombuffer(data, _NUMPY[dtype]).reshape(shape)
    if dtype in _ADDED:
        array = array.astype(np.complex64 if dtype == "complex32" else np.float32)
    if array.dtype.kind == "c":
        return _nested(array.tolist(), lambda z: {"complex": [_json_float(z.real), _json_float(z.imag)]})
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return _nested(array.tolist(), _json_float)
    return array.tolist()


def _nested(values: Any, convert: Any) -> Any:
    return [_nested(item, convert) for item in values] if isinstance(values, list) else convert(values)


def _json_float(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
