"""Values as the 64-bit words that extensions read and write; ``include/telegrad/words.h`` says the same in C++."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.meta import CPU, Device, Meta

(NONE, TENSOR, INTEGER, FLOAT, BOOLEAN, STRING, LIST, TUPLE, COMPLEX, DTYPE, DEVICE, DICT, KEYWORD, OBJECT) = range(14)
ENUMERATOR, SET = 14, 15
TYPE_NUMBERS: Final = {
    dtypes.uint8: 0, dtypes.int8: 1, dtypes.int16: 2, dtypes.int32: 3, dtypes.int64: 4, dtypes.float16: 5,
    dtypes.float32: 6, dtypes.float64: 7, dtypes.complex32: 8, dtypes.complex64: 9, dtypes.complex128: 10,
    dtypes.bool_: 11, dtypes.bfloat16: 15, dtypes.uint16: 27, dtypes.uint32: 28, dtypes.uint64: 29,
}  # fmt: skip
"""PyTorch's numbers of element types, which programs in C++ know."""
TYPES: Final = {number: dtype for dtype, number in TYPE_NUMBERS.items()}

_PAIR: Final = struct.Struct("<qq")
_REAL: Final = struct.Struct("<qd")
_COMPLEX: Final = struct.Struct("<qdd")
_TRIPLE: Final = struct.Struct("<qqq")
_NOTHING: Final = struct.pack("<q", NONE)


class Keyword(NamedTuple):
    """An argument that was given by name."""

    name: str
    value: Any


class Enumerator(NamedTuple):
    """A value of an enumeration of an extension's C++, by the number of its type in the library."""

    type: int
    value: int


class Instance:
    """An instance of a class of an extension's C++; ``drop`` is called with its number when nothing holds it here."""

    __slots__ = ("drop", "number", "type")

    def __init__(self, number: int, type: int, drop: Callable[[int], Any]) -> None:
        self.number, self.type, self.drop = number, type, drop

    def words(self) -> bytes:
        """Return it as words; only the library that ``drop`` belongs to can read them."""
        return _TRIPLE.pack(OBJECT, self.number, self.type)

    def __del__(self) -> None:
        self.drop(self.number)


@lru_cache(1 << 12)
def layout_words(meta: Meta) -> bytes:
    """Return what follows handle, address and type of a tensor: offset, element count, dimensions, sizes, strides."""
    ndim = meta.ndim
    return struct.pack(f"<{3 + 2 * ndim}q", meta.offset, meta.numel, ndim, *meta.shape, *meta.strides)


def device_number(device: Device) -> int:
    """Return the index of a GPU; -1 for the host."""
    return -1 if device is CPU else device.index or 0


def device_of(number: int) -> Device:
    """Return the device of a number that ``device_number`` gave."""
    return CPU if number < 0 else Device("cuda", number)


def text_words(text: str) -> bytes:
    """Return a text with its kind and length."""
    data = text.encode()
    return _PAIR.pack(STRING, len(data)) + data + bytes(-len(data) % 8)


def encode(value: Any, encode_tensor: Callable[[Any], bytes]) -> bytes:
    """Return a value as words; ``encode_tensor`` does what is of no type that is known here."""
    kind = value.__class__
    if kind is int:
        return _PAIR.pack(INTEGER, value)
    if kind is float:
        return _REAL.pack(FLOAT, value)
    if value is None:
        return _NOTHING
    if kind is bool:
        return _PAIR.pack(BOOLEAN, value)
    if kind is str:
        return text_words(value)
    if kind is list or kind is tuple:
        parts = [encode(item, encode_tensor) for item in value]
        return b"".join((_PAIR.pack(LIST if kind is list else TUPLE, len(parts)), *parts))
    if kind is complex:
        return _COMPLEX.pack(COMPLEX, value.real, value.imag)
    if kind is DType:
        if value not in TYPE_NUMBERS:
            raise ArgumentTypeError(f"extension: {value} has no counterpart in C++")
        return _PAIR.pack(DTYPE, TYPE_NUMBERS[value])
    if kind is Device:
        return _TRIPLE.pack(DEVICE, value is not CPU, device_number(value))
    if kind is dict:
        parts = [encode(part, encode_tensor) for item in value.items() for part in item]
        return b"".join((_PAIR.pack(DICT, len(value)), *parts))
    if kind is Enumerator:
        return _TRIPLE.pack(ENUMERATOR, *value)
    if kind is set:
        return b"".join((_PAIR.pack(SET, len(value)), *[encode(item, encode_tensor) for item in value]))
    return encode_tensor(value)


class Reader:
    """Reads values from words; ``tensor_of`` finds what a handle stands for, ``drop`` drops an instance of a class."""

    def __init__(self, data: bytes, tensor_of: Callable[[int], Any], drop: Callable[[int], Any] | None = None) -> None:
        self._data = data
        self._words = memoryview(data).cast("q")
        self._at = 0
        self._tensor_of = tensor_of
        self._drop = drop

    def word(self) -> int:
        """Return the next word."""
        self._at += 1
        return self._words[self._at - 1]

    def real(self) -> float:
        """Return the next word as a number in double precision."""
        self._at += 1
        number: float = struct.unpack_from("<d", self._data, 8 * (self._at - 1))[0]
        return number

    def text(self) -> str:
        """Return the text whose length is the next word."""
        count = self.word()
        begin = 8 * self._at
        self._at += (count + 7) // 8
        return self._data[begin : begin + count].decode(errors="replace")

    def value(self) -> Any:
        """Return the next value."""
        kind = self.word()
        if kind == NONE:
            return None
        if kind == TENSOR:
            return self._tensor_of(self.word())
        if kind == INTEGER:
            return self.word()
        if kind == FLOAT:
            return self.real()
        if kind == BOOLEAN:
            return bool(self.word())
        if kind == STRING:
            return self.text()
        if kind == LIST:
            return [self.value() for _ in range(self.word())]
        if kind == TUPLE:
            return tuple([self.value() for _ in range(self.word())])
        if kind == COMPLEX:
            real = self.real()
            return complex(real, self.real())
        if kind == DTYPE:
            return TYPES[self.word()]
        if kind == DEVICE:
            is_gpu, index = self.word(), self.word()
            return Device("cuda", index) if is_gpu else CPU
        if kind == DICT:
            return {self.value(): self.value() for _ in range(self.word())}
        if kind == ENUMERATOR:
            return Enumerator(self.word(), self.word())
        if kind == SET:
            return {self.value() for _ in range(self.word())}
        if kind == KEYWORD:
            self.word()
            name = self.text()
            return Keyword(name, self.value())
        if kind == OBJECT and self._drop is not None:
            return Instance(self.word(), self.word(), self._drop)
        raise ArgumentTypeError(f"extension: words of unknown kind {kind}")
