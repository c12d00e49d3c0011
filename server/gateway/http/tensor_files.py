"""File formats of one tensor: npy, safetensors and raw bytes. Headers only; elements pass by unseen. No I/O.

A format's header is read from whatever offers ``await source.read(n)``, so that a body of any size streams past it.
Specifications: numpy.lib.format, and github.com/huggingface/safetensors.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.errors import ArgumentError, DTypeError, NotSupportedError
from telegrad_protocol.exported.container import CODES
from telegrad_protocol.meta import MAX_DIMENSIONS

MAX_HEADER_BYTES: Final = 1 << 20
MAX_NPY_HEADER_BYTES: Final = 64 << 10
MAX_NBYTES: Final = 1 << 48
_NPY_MAGIC: Final = b"\x93NUMPY"
_NPY_PREFIX: Final = struct.Struct("<6sBB")

_SIZES: Final = rb"\(\s*+(?:\d{1,19}L?\s*+(?:,\s*+\d{1,19}L?\s*+){0,63}+,?\s*+)?\)"
_VALUE: Final = rb"""(?:'[^'\\]{1,40}'|"[^"\\]{1,40}"|True|False|""" + _SIZES + b")"
_MEMBER: Final = rb"""\s*+['"](?:descr|fortran_order|shape)['"]\s*+:\s*+""" + _VALUE + rb"\s*+"
_NPY_DICTIONARY: Final = re.compile(rb"\s*+\{" + b",".join([_MEMBER] * 3) + rb",?\s*+\}\s*+")
"""Repetitions are possessive: no text takes longer than one pass."""
_NPY_MEMBER: Final = re.compile(rb"""['"](descr|fortran_order|shape)['"]\s*+:\s*+(""" + _VALUE + b")")
_NUMBER: Final = re.compile(rb"\d+")
_NPY: Final = {
    "bool": "|b1", "uint8": "|u1", "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "float16": "<f2",
    "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16",
    "uint16": "<u2", "uint32": "<u4", "uint64": "<u8",
}  # fmt: skip
_FROM_NPY: Final = {descr: name for name, descr in _NPY.items()}
_FROMCODES: Final = {code: name for name, code in CODES.items()}


class Source(Protocol):
    """A stream of bytes."""

    async def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes; ``ArgumentError`` if the stream ends before."""


@dataclass(frozen=True)
class Header:
    """What precedes the elements; ``skip`` bytes lie between the header and the elements of this tensor.

    With ``is_transposed`` the tensor has the dimensions of ``shape`` in reverse: its elements are column-major.
    """

    dtype: str
    shape: tuple[int, ...]
    skip: int = 0
    is_last: bool = True
    is_transposed: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * BY_NAME[self.dtype].itemsize


def checked_header(header: Header) -> Header:
    """``header``, if a tensor can have its shape."""
    if any(type(n) is not int or n < 0 for n in header.shape):
        raise ArgumentError(f"shape: expected sizes of at least 0, got {list(header.shape)}")
    if len(header.shape) > MAX_DIMENSIONS or max(header.shape, default=0) >= MAX_NBYTES or header.nbytes >= MAX_NBYTES:
        raise ArgumentError(f"shape: {header.dtype}{list(header.shape)} is larger than any device")
    return header


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The header of version 1.0, padded so that the elements are aligned to 64 bytes."""
    if dtype not in _NPY:
        raise NotSupportedError(f"npy: there is no {dtype} in this format, ask for application/vnd.safetensors")
    text = repr({"descr": _NPY[dtype], "fortran_order": False, "shape": tuple(shape)}).encode()
    padding = -(_NPY_PREFIX.size + 2 + len(text) + 1) % 64
    text += b" " * padding + b"\n"
    return _NPY_PREFIX.pack(_NPY_MAGIC, 1, 0) + struct.pack("<H", len(text)) + text


async def read_npy_header(source: Source, name: str | None = None) -> Header:
    """Read a header of any version; little-endian arrays of the types we have."""
    magic, major, _ = _NPY_PREFIX.unpack(await source.read(_NPY_PREFIX.size))
    if magic != _NPY_MAGIC or major not in (1, 2, 3):
        raise ArgumentError("npy: the body does not begin with a header of this format")
    length_format = "<H" if major == 1 else "<I"
    (length,) = struct.unpack(length_format, await source.read(struct.calcsize(length_format)))
    descr, is_column_major, shape = _npy_fields(await source.read(_bounded("npy", length, MAX_NPY_HEADER_BYTES)))
    dtype = _FROM_NPY.get(descr)
    if dtype is None:
        raise DTypeError(f"npy: elements of type {descr[:40]!r} are not supported")
    if is_column_major and len(shape) > 1:
        return checked_header(Header(dtype, shape[::-1], is_transposed=True))
    return checked_header(Header(dtype, shape))


def _npy_fields(text: bytes) -> tuple[str, bool, tuple[int, ...]]:
    """The three members of a header, which NumPy writes as a dictionary of Python."""
    fields = dict(_NPY_MEMBER.findall(text)) if _NPY_DICTIONARY.fullmatch(text) else {}
    if fields.keys() != {b"descr", b"fortran_order", b"shape"} or text.count(b":") != 3:
        if b"[" in text:
            raise DTypeError("npy: arrays of structures are not supported, save one of their fields")
        raise ArgumentError(
            "npy: the header is malformed: expected descr, fortran_order and shape as NumPy writes them"
        )
    descr, order, shape = fields[b"descr"], fields[b"fortran_order"], fields[b"shape"]
    if descr[:1] not in b"'\"" or order not in (b"True", b"False") or shape[:1] != b"(":
        raise ArgumentError("npy: the header is malformed: descr, fortran_order or shape is of the wrong kind")
    return descr[1:-1].decode("ascii", "replace"), order == b"True", tuple(map(int, _NUMBER.findall(shape)))


def _bounded(what: str, length: int, most: int = MAX_HEADER_BYTES) -> int:
    if length > most:
        raise ArgumentError(f"{what}: a header of {length} bytes is longer than {most}")
    return length


def safetensors_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The header of a file that holds one tensor, named ``tensor``, aligned to 8 bytes."""
    if dtype not in CODES:
        raise NotSupportedError(f"safetensors: there is no {dtype} in this format, ask for application/x-npy")
    offsets = [0, Header(dtype, shape).nbytes]
    entry = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": offsets}
    text = json.dumps({"tensor": entry}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


async def read_safetensors_header(source: Source, name: str | None = None) -> Header:
    """Find the tensor ``name``, which may be left out where there is only one."""
    (length,) = struct.unpack("<Q", await source.read(8))
    try:
        entries = json.loads(await source.read(_bounded("safetensors", length)))
        entries.pop("__metadata__", None)
        entry = entries[_chosen(entries, name)]
        header = _safetensors_entry(entry)
        end = max(other["data_offsets"][1] for other in entries.values())
        return Header(header.dtype, header.shape, header.skip, entry["data_offsets"][1] == end)
    except ArgumentError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ArgumentError("safetensors: the header is malformed") from error


def _chosen(entries: Mapping[str, Any], name: str | None) -> str:
    if name is None and len(entries) == 1:
        return next(iter(entries))
    if name is None or name not in entries:
        raise ArgumentError(f"safetensors: say which with ?name=, the body holds {', '.join(list(entries)[:10])}")
    return name


def _safetensors_entry(entry: Any) -> Header:
    begin, end = entry["data_offsets"]
    if entry["dtype"] not in _FROMCODES:
        raise DTypeError(f"safetensors: elements of type {entry['dtype']!r} are not supported")
    header = checked_header(Header(_FROMCODES[entry["dtype"]], tuple(entry["shape"]), begin))
    if begin < 0 or end - begin != header.nbytes:
        raise ArgumentError("safetensors: offsets and shape contradict each other")
    return header


NPY: Final = "application/x-npy"
SAFETENSORS: Final = "application/vnd.safetensors"
RAW: Final = "application/octet-stream"
JSON: Final = "application/json"

_SYNONYMS: Final = {
    "application/npy": NPY, "application/vnd.numpy": NPY, "application/safetensors": SAFETENSORS,
    "application/x-safetensors": SAFETENSORS,
}  # fmt: skip
WRITERS: Final[dict[str, Callable[[str, tuple[int, ...]], bytes]]] = {
    NPY: npy_header, SAFETENSORS: safetensors_header, RAW: lambda dtype, shape: b"",
}  # fmt: skip
READERS: Final = {NPY: read_npy_header, SAFETENSORS: read_safetensors_header}


def media_type(header: str) -> str:
    """The media type that a Content-Type names, without parameters and synonyms."""
    plain = header.partition(";")[0].strip().lower()
    return _SYNONYMS.get(plain, plain)


def negotiate(accept: str, dtype: str) -> str | None:
    """The format that an Accept header wants most and that can hold ``dtype``; None where there is none."""
    preferred = SAFETENSORS if dtype == "bfloat16" else NPY
    offers = {JSON: JSON, NPY: NPY, SAFETENSORS: SAFETENSORS, RAW: RAW, "*/*": preferred, "application/*": preferred}
    return next((offers[kind] for kind in ranked(accept) if kind in offers), None)


def ranked(accept: str) -> list[str]:
    """The media types that an Accept header names, the most wanted first."""
    ranges = sorted((_quality(part), media_type(part)) for part in (accept or "*/*").split(","))
    return [kind for quality, kind in ranges if quality < 0]


def _quality(part: str) -> float:
    for parameter in part.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return -float(value)
            except ValueError:
                return 0.0
    return -1.0
