"""Arguments of a launch as the bytes that a kernel's parameters take; refused where they do not fit.

A launch's arguments come in forms, see ``telegrad_protocol.kernel_messages``. Where a kernel's parameters are known a
number takes the type of its parameter; where they are not, it is an int64 or a double. What all launches of a kernel in
the same forms have in common is worked out once: their arguments are packed by one ``struct``.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError
from telegrad_protocol.kernel_messages import ADDRESS, BYTES, FLOAT, INTEGER, NULL, TENSOR_MAP
from telegrad_protocol.ptx import Parameter

MAX_PARAMETERS: Final = 4096
"""A kernel has at most so many parameters, and at most 32,764 bytes of them."""
_SIGNED: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOATS: Final = {2: "e", 4: "f", 8: "d"}
_WORD: Final = 8
_LINE: Final = 64
"""The driver wants maps of tensors to begin at multiples of this."""
_MOST_UNKNOWN: Final = 128
"""So many bytes can be given where it is not known how many the kernel takes: those of a map of a tensor."""

Normalise = Callable[[Any], Any]


class Packing:
    """How the arguments of one kernel in given forms become bytes, and where each parameter is in them.

    ``addresses`` and ``maps`` are the parameters that are tensors, and maps of tensors: each the place among the
    arguments that are given, which null pointers are not, and the place among the parameters.
    """

    __slots__ = ("_blobs", "_normalise", "_pack", "addresses", "count", "maps", "offsets", "size")

    def __init__(self, kernel: str, forms: str, parameters: Sequence[Parameter] | None) -> None:
        if parameters is not None and len(parameters) != len(forms):
            raise ArgumentTypeError(f"{kernel}: the kernel has {len(parameters)} parameters, not {len(forms)}")
        if len(forms) > MAX_PARAMETERS:
            raise ArgumentError(f"{kernel}: a kernel has at most {MAX_PARAMETERS} parameters, not {len(forms)}")
        given = [place for place, form in enumerate(forms) if form != NULL]
        self.count = len(given)
        self.addresses = [(number, place) for number, place in enumerate(given) if forms[place] == ADDRESS]
        self.maps = [(number, place) for number, place in enumerate(given) if forms[place] == TENSOR_MAP]
        self.offsets: list[int] = []
        self._normalise: list[Normalise] = []
        self._blobs: list[tuple[int, Normalise]] = []
        layout, end = ["="], 0
        for place, form in enumerate(forms):
            parameter = None if parameters is None else parameters[place]
            code, nbytes, normalise = _encoding(kernel, place, form, parameter)
            unit = _LINE if nbytes > _WORD else _WORD
            begin = -(-end // unit) * unit
            layout.append(f"{begin - end}x{code}")
            self.offsets.append(begin)
            end = begin + nbytes
            if form in (BYTES, TENSOR_MAP):
                self._blobs.append((len(self._normalise), normalise))
            if form != NULL:
                self._normalise.append(normalise)
        self.size = -(-end // _WORD) * _WORD
        self._pack = struct.Struct(f"{''.join(layout)}{self.size - end}x").pack

    def pack(self, values: Sequence[Any]) -> bytes:
        """Return the arguments as bytes; those that are tensors are addresses by now."""
        for number, check in self._blobs:
            check(values[number])
        try:
            return self._pack(*values)
        except (struct.error, TypeError, OverflowError):
            normalised = [normalise(value) for normalise, value in zip(self._normalise, values, strict=True)]
            return self._pack(*normalised)


class ParameterBuffer:
    """Memory for packed arguments, and ``table``, the address of their addresses; the driver copies it at a launch."""

    __slots__ = ("_buffer", "memory", "table")

    def __init__(self, packing: Packing) -> None:
        size, count = packing.size, len(packing.offsets)
        self._buffer = ctypes.create_string_buffer(size + _WORD * max(count, 1) + _LINE)
        unaligned = ctypes.addressof(self._buffer)
        start = -(-unaligned // _LINE) * _LINE
        memory = memoryview(self._buffer).cast("B")[start - unaligned :]
        self.memory = memory[:size]
        self.table = start + size
        struct.pack_into(f"={count}Q", memory, size, *[start + offset for offset in packing.offsets])


def _encoding(kernel: str, place: int, form: str, parameter: Parameter | None) -> tuple[str, int, Normalise]:
    """Return ``struct``'s format of a parameter, its bytes, and what makes its argument fit that or refuses it."""
    nbytes = _WORD if parameter is None else parameter.nbytes
    where = f"{kernel}: argument {place + 1}"
    if form in (BYTES, TENSOR_MAP):
        room = _MOST_UNKNOWN if parameter is None else nbytes
        return f"{room}s", room, _exact(where, None if parameter is None else nbytes)
    if form == NULL:
        return f"{nbytes}x", nbytes, _as_it_is
    if form == ADDRESS:
        if nbytes != _WORD:
            raise ArgumentTypeError(f"{where} is a tensor, but the kernel's parameter has {nbytes} bytes: no pointer")
        return "Q", nbytes, _as_it_is
    kind = "" if parameter is None else parameter.type
    if form not in (INTEGER, FLOAT) or nbytes not in _SIGNED:
        raise ArgumentTypeError(
            f"{where} is a number, but the kernel's parameter has {nbytes} bytes; pass a NumPy value of its type"
        )
    if kind.startswith("f") or (form == FLOAT and nbytes in _FLOATS and not kind.startswith(("u", "s"))):
        return _FLOATS[nbytes], nbytes, _float(where, _FLOATS[nbytes])
    if form == FLOAT:
        raise ArgumentTypeError(f"{where} is a floating-point number, but the kernel's parameter is an integer")
    return _SIGNED[nbytes], nbytes, _integer(where, nbytes)


def _as_it_is(value: Any) -> Any:
    return value


def _float(where: str, code: str) -> Normalise:
    pack = struct.Struct("=" + code).pack

    def normalise(value: Any) -> Any:
        try:
            pack(value)
        except OverflowError:  # as a C conversion has it
            return float("inf") if value > 0 else float("-inf")
        except struct.error:
            raise ArgumentTypeError(f"{where} must be a number, not {type(value).__name__}") from None
        return value

    return normalise


def _integer(where: str, nbytes: int) -> Normalise:
    """Return what brings unsigned numbers into the range of signed ones, whose bytes are the same."""
    half = 1 << (8 * nbytes - 1)

    def normalise(value: Any) -> Any:
        if not isinstance(value, int) or not -half <= value < 2 * half:
            raise ArgumentError(f"{where}: {value!r:.40} does not fit into {nbytes} bytes of an integer")
        return value if value < half else value - 2 * half

    return normalise


def _exact(where: str, nbytes: int | None) -> Normalise:
    def check(value: Any) -> Any:
        if not isinstance(value, bytes):
            raise ArgumentTypeError(f"{where} must be bytes, not {type(value).__name__}")
        if nbytes is None and len(value) > _MOST_UNKNOWN:
            raise ArgumentTypeError(f"{where} has {len(value)} bytes, and the driver cannot tell what the kernel takes")
        if nbytes is not None and len(value) != nbytes:
            raise ArgumentTypeError(f"{where} has {len(value)} bytes, but the kernel's parameter has {nbytes}")
        return value

    return check
