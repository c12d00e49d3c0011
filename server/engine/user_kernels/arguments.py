"""Arguments of a launch as the bytes that a kernel's parameters take; refused where they do not fit.

A launch's arguments come in forms, see ``telegrad_protocol.kernel_messages``. Where a kernel's parameters are known a
number takes the type of its parameter; where they are not, it is an int64 or a double.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError
from telegrad_protocol.kernel_messages import ADDRESS, BYTES, FLOAT, INTEGER, NULL, TENSOR_MAP
from telegrad_protocol.ptx import Parameter

MAX_PARAMETERS = 4096
"""A kernel has at most so many parameters, and at most 32,764 bytes of them."""
_SIGNED, _UNSIGNED = {1: "b", 2: "h", 4: "i", 8: "q"}, {1: "B", 2: "H", 4: "I", 8: "Q"}
_FLOATS = {2: "e", 4: "f", 8: "d"}
_SLOT = 64
"""The driver wants maps of tensors to begin at multiples of this."""
_UNKNOWN = {TENSOR_MAP: 128}

Encode = Callable[[Any], bytes]


class ParameterBuffer:
    """Memory for the arguments of one kernel in given forms; the driver copies it when it launches.

    ``addresses`` and ``maps`` are the places of arguments that are tensors, and maps of tensors, among the parameters.
    """

    __slots__ = (
        "_buffer",
        "_encoders",
        "_memory",
        "_offsets",
        "_skipped",
        "_start",
        "addresses",
        "count",
        "maps",
        "table",
    )

    def __init__(self, kernel: str, forms: str, parameters: Sequence[Parameter] | None) -> None:
        if parameters is not None and len(parameters) != len(forms):
            raise ArgumentTypeError(f"{kernel}: the kernel has {len(parameters)} parameters, not {len(forms)}")
        if len(forms) > MAX_PARAMETERS:
            raise ArgumentError(f"{kernel}: a kernel has at most {MAX_PARAMETERS} parameters, not {len(forms)}")
        known = [None] * len(forms) if parameters is None else parameters
        self._encoders = [
            _encoder(kernel, place, form, parameter) for place, (form, parameter) in enumerate(zip(forms, known))
        ]
        self.count = sum(form != NULL for form in forms)
        self.addresses = [place for place, form in enumerate(forms) if form == ADDRESS]
        self.maps = [place for place, form in enumerate(forms) if form == TENSOR_MAP]
        slots = [
            -(-(parameter.nbytes if parameter else _UNKNOWN.get(form, 8)) // _SLOT) * _SLOT
            for form, parameter in zip(forms, known)
        ]
        self._offsets = [sum(slots[:place]) for place in range(len(forms))]
        size = sum(slots)
        self._buffer = ctypes.create_string_buffer(size + 8 * max(len(forms), 1) + _SLOT)
        unaligned = ctypes.addressof(self._buffer)
        self._start = -(-unaligned // _SLOT) * _SLOT
        self._skipped = self._start - unaligned
        self._memory = memoryview(self._buffer).cast("B")[self._skipped :]
        self.table = self._start + size
        struct.pack_into(f"={len(forms)}Q", self._memory, size, *[self._start + offset for offset in self._offsets])

    def fill(self, values: Sequence[Any]) -> None:
        """Write the arguments, of which tensors are addresses by now, and None stands for null pointers."""
        memory = self._memory
        for offset, encode, value in zip(self._offsets, self._encoders, values):
            data = encode(value)
            memory[offset : offset + len(data)] = data


def _encoder(kernel: str, place: int, form: str, parameter: Parameter | None) -> Encode:
    nbytes = 8 if parameter is None else parameter.nbytes
    where = f"{kernel}: argument {place + 1}"
    if form in (BYTES, TENSOR_MAP):
        return lambda value: _exact(where, value, None if parameter is None else nbytes)
    if form == NULL:
        return lambda value: bytes(nbytes)
    if form == ADDRESS:
        if nbytes != 8:
            raise ArgumentTypeError(f"{where} is a tensor, but the kernel's parameter has {nbytes} bytes: no pointer")
        return struct.Struct("=Q").pack
    kind = "" if parameter is None else parameter.type
    if form not in (INTEGER, FLOAT) or (nbytes not in _SIGNED):
        raise ArgumentTypeError(
            f"{where} is a number, but the kernel's parameter has {nbytes} bytes; pass a NumPy value of its type"
        )
    if kind.startswith("f") or (form == FLOAT and nbytes in _FLOATS and not kind.startswith(("u", "s"))):
        return _float_encoder(where, _FLOATS[nbytes])
    if form == FLOAT:
        raise ArgumentTypeError(f"{where} is a floating-point number, but the kernel's parameter is an integer")
    return _integer_encoder(where, nbytes)


def _float_encoder(where: str, code: str) -> Encode:
    pack = struct.Struct("=" + code).pack

    def encode(value: Any) -> bytes:
        try:
            return pack(value)
        except OverflowError:  # as a C conversion has it
            return pack(float("inf") if value > 0 else float("-inf"))
        except struct.error:
            raise ArgumentTypeError(f"{where} must be a number, not {type(value).__name__}") from None

    return encode


def _integer_encoder(where: str, nbytes: int) -> Encode:
    signed, unsigned = struct.Struct("=" + _SIGNED[nbytes]).pack, struct.Struct("=" + _UNSIGNED[nbytes]).pack

    def encode(value: Any) -> bytes:
        try:
            return signed(value) if value < 1 << (8 * nbytes - 1) else unsigned(value)
        except (struct.error, TypeError):
            raise ArgumentError(f"{where}: {value!r:.40} does not fit into {nbytes} bytes of an integer") from None

    return encode


def _exact(where: str, value: Any, nbytes: int | None) -> bytes:
    if not isinstance(value, bytes):
        raise ArgumentTypeError(f"{where} must be bytes, not {type(value).__name__}")
    if nbytes is None and len(value) > max(_SLOT, *_UNKNOWN.values()):
        raise ArgumentTypeError(f"{where} has {len(value)} bytes, and the driver cannot tell what the kernel takes")
    if nbytes is not None and len(value) != nbytes:
        raise ArgumentTypeError(f"{where} has {len(value)} bytes, but the kernel's parameter has {nbytes}")
    return value
