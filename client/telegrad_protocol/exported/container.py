"""Safetensors as a container: the header is parsed strictly, and elements are read and written piece by piece.

Specification: github.com/huggingface/safetensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Final, NamedTuple

from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.errors import NotSupportedError, ProgramError

MAX_HEADER_BYTES: Final = 32 << 20
MAX_DATA_BYTES: Final = 1 << 48
CODES: Final = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "float16": "F16",
    "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "uint16": "U16", "uint32": "U32", "uint64": "U64",
}  # fmt: skip
"""Types of elements by our names."""
_BY_CODE: Final = {code: name for name, code in CODES.items()}


class Entry(NamedTuple):
    """A tensor of a file: where its elements begin and end, counted from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.end - self.begin


class Contents(NamedTuple):
    """The header of a file; ``start`` is where the elements begin."""

    metadata: dict[str, str]
    entries: dict[str, Entry]
    start: int


def entry_of(dtype: str, shape: Sequence[int], begin: int) -> Entry:
    """Return the entry of a tensor that begins there."""
    if dtype not in CODES:
        raise NotSupportedError(f"safetensors: there is no {dtype} in this format; convert it to float32 or complex64")
    return Entry(dtype, tuple(shape), begin, begin + math.prod(shape) * BY_NAME[dtype].itemsize)


def header(metadata: Mapping[str, str], tensors: Iterable[tuple[str, str, Sequence[int]]]) -> bytes:
    """Return the header of a file with these tensors, each a name, a type and a shape; they follow in this order."""
    described: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    begin = 0
    for name, dtype, shape in tensors:
        entry = entry_of(dtype, shape, begin)
        described[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [begin, entry.end]}
        begin = entry.end
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise ProgramError(f"safetensors: the header would have {len(text)} bytes; the most is {MAX_HEADER_BYTES}")
    return len(text).to_bytes(8, "little") + text


def read_header(file: BinaryIO, size: int) -> Contents:
    """Read the header of a file, or of a body in memory, of ``size`` bytes. ProgramError where it is malformed."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(MAX_HEADER_BYTES, size - 8):
        raise ProgramError("safetensors: this is no file of the format, or it is cut off")
    try:
        described = json.loads(file.read(length))
        metadata = described.pop("__metadata__", None) or {}
        entries = {name: _entry(name, described[name]) for name in described}
        texts = all([type(item) is str for pair in metadata.items() for item in pair])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ProgramError("safetensors: the header is malformed") from None
    if not texts:
        raise ProgramError("safetensors: the metadata must be texts")
    end = 0
    for name, entry in sorted(entries.items(), key=lambda pair: pair[1][2:]):
        if entry.begin != end:
            raise ProgramError(f"safetensors: {name!r} overlaps another tensor, or a gap is before it")
        end = entry.end
    if 8 + length + end != size:
        raise ProgramError(f"safetensors: the file should have {8 + length + end} bytes, and has {size}")
    return Contents(metadata, entries, 8 + length)


def _entry(name: str, described: Any) -> Entry:
    (begin, end), shape = described["data_offsets"], described["shape"]
    if type(shape) is not list or not all([type(n) is int and 0 <= n < MAX_DATA_BYTES for n in (*shape, begin, end)]):
        raise ProgramError(f"safetensors: {name!r} has no sensible shape and offsets")
    dtype = _BY_CODE.get(described["dtype"])
    if dtype is None:
        raise NotSupportedError(f"safetensors: {name!r} is {described['dtype']!r:.20}, which telegrad does not have")
    if len(shape) > 64 or entry_of(dtype, shape, begin).end != end:
        raise ProgramError(f"safetensors: the offsets and the shape of {name!r} contradict each other")
    return Entry(dtype, tuple(shape), begin, end)
