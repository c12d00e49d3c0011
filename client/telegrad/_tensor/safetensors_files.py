"""Nested structures of tensors to and from safetensors files.

Tensors lie in the file under their path (``model.0.weight``), so every safetensors reader sees them; the structure
around them, numbers and strings are JSON in the file's metadata. Nothing is ever pickled. Works on raw bytes: what a
tensor is and where its bytes come from is known only to the callbacks ``to_raw`` and ``from_raw``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
from safetensors import SafetensorError, TensorSpec, safe_open, serialize_file

from telegrad._tensor.torch_files.file_errors import EmptyFileError, UnreadableFileError
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from telegrad_protocol.exported.container import CODES

from .atomic_files import write_atomically
from .nested import flatten, unflatten

PathLike: TypeAlias = "str | os.PathLike[str]"

_METADATA_KEY: Final = "telegrad"
_VERSION: Final = 1
_ABSENT: Final = object()
_PICKLE_BEGINS: Final = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_BY_CODE: Final = {code: dtypes.BY_NAME[name] for name, code in CODES.items()}

_STORED_AS_PAIRS: Final = (dtypes.complex128, dtypes.complex32)
"""Types that the format does not have: they are stored as pairs of real numbers, and the metadata says so."""


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A dense tensor in row-major order, little-endian."""

    dtype: DType
    shape: tuple[int, ...]
    data: bytes | bytearray | memoryview

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    @property
    def fits(self) -> bool:
        """Whether there are as many bytes as shape and type need."""
        return memoryview(self.data).nbytes == self.nbytes

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def save(obj: Any, path: PathLike, *, to_raw: Callable[[Any], RawTensor | None]) -> None:
    """Write nested dicts, lists and tuples of tensors, numbers, strings and None; ``to_raw`` knows what is a tensor.

    The file appears complete or not at all. A tensor that occurs twice is written once and is one tensor again after
    ``load``.
    """
    target = _as_path(path, "save")
    tree, tensors = flatten(obj, to_raw, "save")
    for name, raw in tensors.items():
        if not raw.fits:
            raise ArgumentError(
                f"save: {name!r} is {raw}, {raw.nbytes} bytes, but came with {memoryview(raw.data).nbytes}"
            )
    pairs = {
        dtype.name: [name for name, raw in tensors.items() if raw.dtype is dtype]
        for dtype in _STORED_AS_PAIRS
        if dtype is dtypes.complex128 or any(raw.dtype is dtype for raw in tensors.values())
    }
    structure = json.dumps({"version": _VERSION, **pairs, "tree": tree}, allow_nan=False)
    # Some readers refuse a file whose format is not a framework's name; "pt" means no more than row-major.
    metadata = {_METADATA_KEY: structure, "format": "pt"}
    write_atomically(os.path.realpath(target), lambda path: _serialize(tensors, path, metadata))


def load(path: PathLike, *, from_raw: Callable[[RawTensor], Any]) -> Any:
    """Read what ``save`` wrote; a safetensors file of other origin gives a flat dict of its tensors."""
    with _Reader(_as_path(path, "load")) as file:
        made: dict[str, Any] = {}

        def tensor(name: str) -> Any:
            if name not in made:
                made[name] = from_raw(file.tensor(name))
            return made[name]

        if file.tree is _ABSENT:
            return {name: tensor(name) for name in file.entries}
        return unflatten(file.tree, tensor)


def _serialize(tensors: dict[str, RawTensor], path: str, metadata: dict[str, str]) -> None:
    # The library is given addresses: these arrays keep the memory alive until it has written.
    arrays = {name: np.frombuffer(raw.data if raw.nbytes else b"\0", dtype=np.uint8) for name, raw in tensors.items()}
    specs = {name: _spec(raw, arrays[name].ctypes.data) for name, raw in tensors.items()}
    try:
        serialize_file(specs, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(f"save: cannot write {path!r}: {error}") from error


def _spec(raw: RawTensor, address: int) -> TensorSpec:
    name, shape = raw.dtype.name, list(raw.shape)
    if raw.dtype in _STORED_AS_PAIRS:
        name, shape = raw.dtype.to_real().name, [*shape, 2]
    return TensorSpec(dtype=name, shape=shape, data_ptr=address, data_len=raw.nbytes)


class _Reader:
    """One open file: its structure, what it holds by name, and its tensors one at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open(path, "rb")  # noqa: SIM115 - closed by __exit__
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> _Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def tensor(self, name: str) -> RawTensor:
        """Read one tensor's bytes."""
        entry = self.entries[name]
        dtype, shape = _BY_CODE.get(entry["dtype"]), tuple(entry["shape"])
        if dtype is None:
            raise NotSupportedError(
                f"load: {name!r} in {self.path!r} is {entry['dtype']}, which telegrad does not have"
            )
        if name in self._pairs:
            dtype, shape = self._pairs[name], shape[:-1]
        begin, end = entry["data_offsets"]
        self._file.seek(self._start + begin)
        raw = RawTensor(dtype, shape, self._file.read(end - begin))
        if not raw.fits:
            raise ArgumentError(f"load: {name!r} in {self.path!r} should be {raw}, but has {len(raw.data)} bytes")
        return raw

    def _read_header(self) -> None:
        try:
            # It checks what the reading below relies on: sizes, offsets, and a header of sane length.
            with safe_open(self.path, framework="numpy"):
                pass
        except SafetensorError as error:
            self._refuse(error)
        size = int.from_bytes(self._file.read(8), "little")
        self._start = 8 + size
        self.entries: dict[str, Any] = json.loads(self._file.read(size))
        metadata = self.entries.pop("__metadata__", None) or {}
        self._pairs: dict[str, DType] = {}
        self.tree = self._read_structure(metadata[_METADATA_KEY]) if _METADATA_KEY in metadata else _ABSENT

    def _refuse(self, error: SafetensorError) -> NoReturn:
        begin = self._file.read(4)
        if not begin:
            raise EmptyFileError(f"load: {self.path!r} is not a safetensors file: it has no bytes: Ran out of input")
        if begin.startswith(_PICKLE_BEGINS):
            raise NotSupportedError(
                f"load: {self.path!r} is a pickle, as torch.save writes it; loading one runs whatever code is in it."
                " Convert it where you trust it: safetensors.torch.save_file(torch.load(path), new_path)"
            ) from error
        raise UnreadableFileError(f"load: {self.path!r} is not a safetensors file: {error}") from error

    def _read_structure(self, text: str) -> Any:
        try:
            described = json.loads(text)
            version = described["version"]
            if version == _VERSION:
                for dtype in _STORED_AS_PAIRS:
                    self._pairs |= dict.fromkeys(described.get(dtype.name, ()), dtype)
                unflatten(described["tree"], self.entries.__getitem__)
                return described["tree"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ArgumentError(f"load: the structure in the metadata of {self.path!r} is damaged") from error
        raise NotSupportedError(f"load: {self.path!r} is of version {version!r}, this telegrad reads {_VERSION}")


def _as_path(path: PathLike, operation: str) -> str:
    try:
        return os.fsdecode(os.fspath(path))
    except TypeError:
        raise ArgumentTypeError(f"{operation}: expected a path, got a {type(path).__name__}") from None
