"""Pickles of tensors, parameters and plain containers, in the instructions that ``torch.load`` reads."""

from __future__ import annotations

import copyreg
import struct
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final, NoReturn

import numpy as np

from telegrad._tensor.layouts import Layout
from telegrad._tensor.size import Size
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError
from telegrad_protocol.meta import META, Device

from .descriptions import Described, DescribedCall, DescribedSparse, DescribedWrapper, Description
from .objects import address_of, reduced
from .reading import STORAGE_TYPES

_DICTS: Final = (dict, OrderedDict, defaultdict)
"""Dictionaries that are written as plain or ordered ones, so that ``weights_only=True`` reads them."""
_STORAGE_NAMES: Final = {dtype: name for name, dtype in STORAGE_TYPES.items()}


@dataclass(frozen=True)
class Placed:
    """How a tensor lies in a storage of the file, in elements: the storage's number and size, and what is in it."""

    storage: int
    numel: int
    offset: int
    strides: tuple[int, ...]


def pickled(
    obj: Any, describe: Callable[[Any], Description | None], place: Callable[[list[Any]], list[Placed]],
    is_older: bool = False,
) -> bytes:  # fmt: skip
    """Return the pickle of a structure; ``describe`` knows what is a tensor.

    ``place`` is told all tensors, one that occurs several times once, and tells how each lies in a storage.
    ``is_older`` is for the files that PyTorch wrote before it had archives.
    """
    writer = _Writer(describe)
    writer.write(obj, ())
    for (part, tensor), placed in zip(writer.places, place([tensor for _, tensor in writer.places]), strict=True):
        described = describe(tensor)
        assert isinstance(described, Described)
        writer.parts[part] = _place(described, placed, is_older)
    return b"\x80\x02" + b"".join(writer.parts) + b"."


class _Writer:
    """Writes one saved object as a pickle, and collects the tensors that it meets on the way."""

    def __init__(self, describe: Callable[[Any], Description | None]) -> None:
        self.describe = describe
        self.parts: list[bytes] = []
        self.places: list[tuple[int, Any]] = []
        """Tensors, with the number of the part that is to tell how each lies in a storage."""
        self.memo: dict[int, int] = {}
        self.kept: list[Any] = []
        self.open: set[int] = set()

    def write(self, obj: Any, path: tuple[str, ...]) -> None:
        if id(obj) in self.memo:
            self.emit(b"j" + struct.pack("<I", self.memo[id(obj)]))
        elif isinstance(obj, np.generic):
            self.write(obj.item(), path)
        elif not self.write_scalar(obj):
            described = self.describe(obj)
            if described is None:
                self.write_container(obj, path)
            elif isinstance(described, DescribedSparse):
                self.write_sparse(obj, described)
            elif isinstance(described, DescribedWrapper):
                self.write_wrapper(obj, described, path)
            elif isinstance(described, DescribedCall):
                self.write_call(obj, described, path)
            else:
                self.write_tensor(obj, described, path)

    def emit(self, *parts: bytes) -> None:
        self.parts += parts

    def remember(self, obj: Any) -> None:
        self.memo[id(obj)] = len(self.kept)
        self.emit(b"r" + struct.pack("<I", len(self.kept)))
        self.kept.append(obj)

    def name(self, module: str, name: str) -> None:
        self.emit(f"c{module}\n{name}\n".encode())

    def write_scalar(self, obj: Any) -> bool:
        if obj is None or isinstance(obj, bool):
            self.emit(b"N" if obj is None else b"\x88" if obj else b"\x89")
        elif isinstance(obj, int):
            self.integer(int(obj))
        elif isinstance(obj, float):
            self.emit(b"G" + struct.pack(">d", obj))
        elif isinstance(obj, str):
            self.text(str.__str__(obj))
        elif isinstance(obj, complex):
            self.call("__builtin__", "complex", obj.real, obj.imag)
        elif isinstance(obj, bytes):
            self.call("_codecs", "encode", obj.decode("latin-1"), "latin1")
        elif isinstance(obj, DType):
            self.name("torch", obj.name)
        elif isinstance(obj, Layout):
            self.call("torch.serialization", "_get_layout", f"torch.{obj.name}")
        elif isinstance(obj, Device):
            kind, _, index = obj.name.partition(":")
            self.call("torch", "device", kind, *([int(index)] if index else []))
        else:
            return False
        return True

    def integer(self, value: int) -> None:
        self.emit(_integer(value))

    def text(self, value: str) -> None:
        self.emit(_text(value))

    def call(self, module: str, name: str, *arguments: Any) -> None:
        self.name(module, name)
        self.emit(b"(")
        for argument in arguments:
            self.write_scalar(argument)
        self.emit(b"tR")

    def integers(self, values: tuple[int, ...]) -> None:
        self.emit(_integers(values))

    def write_tensor(self, obj: Any, described: Described, path: tuple[str, ...]) -> None:
        has_state = described.attributes is not None
        if described.is_parameter:
            self.name("torch._utils", "_rebuild_parameter_with_state" if has_state else "_rebuild_parameter")
            self.emit(b"(")
            self.rebuilt(obj, described, False)
            self.emit(b"\x88" if described.requires_grad else b"\x89")
            self.call("collections", "OrderedDict")
            if has_state:
                self.write(described.attributes, path)
            self.emit(b"tR")
        elif has_state or described.kind is not None:
            self.name("torch._tensor", "_rebuild_from_type_v2")
            self.emit(b"(")
            self.name_of_tensor(described)
            self.write_class(described.kind, path)
            self.placed(obj, described, described.requires_grad)
            self.write(described.attributes, path)
            self.emit(b"tR")
        else:
            self.rebuilt(obj, described, described.requires_grad)
        self.remember(obj)

    def write_class(self, kind: type | None, path: tuple[str, ...]) -> None:
        if kind is None:
            self.name("torch", "Tensor")
        else:
            self.write_name(kind, path)

    def write_wrapper(self, obj: Any, described: DescribedWrapper, path: tuple[str, ...]) -> None:
        self.name("torch._tensor", "_rebuild_from_type_v2")
        self.emit(b"(")
        self.name("torch._utils", "_rebuild_wrapper_subclass")
        self.write_name(described.kind, path)
        self.emit(b"(")
        self.write_name(described.kind, path)
        for argument in described.arguments:
            self.write(argument, path)
        self.emit(b"t")
        self.write(described.attributes, path)
        self.emit(b"tR")
        self.remember(obj)

    def write_call(self, obj: Any, described: DescribedCall, path: tuple[str, ...]) -> None:
        self.name(described.module, described.name)
        self.emit(b"(")
        for argument in described.arguments:
            self.write(argument, path)
        self.emit(b"tR")
        self.remember(obj)
        self.kept.append(described)  # its tensors have numbers, which others may not get meanwhile

    def write_sparse(self, obj: Any, described: DescribedSparse) -> None:
        self.name("torch._utils", "_rebuild_sparse_tensor")
        self.emit(b"(")
        self.call("torch.serialization", "_get_layout", f"torch.{described.layout}")
        self.emit(b"(")
        for part in described.parts:
            own = self.describe(part)
            assert isinstance(own, Described)
            self.rebuilt(part, own, False)
        self.name("torch", "Size")
        self.integers(described.shape)
        self.emit(b"\x85R")
        if described.is_coalesced is not None:
            self.emit(b"\x88" if described.is_coalesced else b"\x89")
        self.emit(b"ttR")
        self.remember(obj)

    def rebuilt(self, obj: Any, described: Described, requires_grad: bool) -> None:
        self.name_of_tensor(described)
        self.placed(obj, described, requires_grad)
        self.emit(b"R")

    def name_of_tensor(self, described: Described) -> None:
        if described.location == META.name:
            self.name("torch._utils", "_rebuild_meta_tensor_no_storage")
            return
        is_typed = described.dtype in _STORAGE_NAMES
        self.name("torch._utils", "_rebuild_tensor_v2" if is_typed else "_rebuild_tensor_v3")

    def placed(self, obj: Any, described: Described, requires_grad: bool) -> None:
        """Write the arguments that tell where the elements of a tensor lie; on the meta device there are none."""
        if described.location == META.name:
            self.emit(b"(")
            self.write_scalar(described.dtype)
            self.integers(described.shape)
            self.integers(tuple(obj.stride()))
            self.emit(b"\x88t" if requires_grad else b"\x89t")
            return
        self.places.append((len(self.parts), obj))
        self.emit(b"")
        self.emit(b"\x88" if requires_grad else b"\x89")
        self.call("collections", "OrderedDict")
        if described.dtype not in _STORAGE_NAMES:
            self.write_scalar(described.dtype)
        self.emit(b"t")

    def write_container(self, obj: Any, path: tuple[str, ...]) -> None:
        if id(obj) in self.open:
            raise ArgumentError(f"save: {_where(path)} contains itself")
        self.open.add(id(obj))
        if type(obj) in _DICTS:
            self.write_dict(obj, path)
        elif isinstance(obj, Size):
            self.name("torch", "Size")
            self.integers(tuple(obj))
            self.emit(b"\x85R")
        elif isinstance(obj, list) or (isinstance(obj, tuple) and not hasattr(obj, "_fields")):
            self.write_elements(obj, path)
        elif type(obj) in (set, bytearray):
            self.write_called(obj, path)
        else:
            self.write_object(obj, path)
            self.open.remove(id(obj))
            return
        self.open.remove(id(obj))
        self.remember(obj)

    def write_object(self, obj: Any, path: tuple[str, ...]) -> None:
        """Write a class or function by its name, any other object by its class and attributes."""
        if isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
            self.write_name(obj, path)
            return
        described = reduced(obj)
        if not isinstance(described, tuple):
            _refuse(obj, path)
        make, arguments, state, elements, items = (*described, None, None, None)[:5]
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]
            self.write_name(arguments[0], path)
            self.write(tuple(arguments[1:]), path)
            self.emit(b"\x81")
        else:
            self.write_name(make, path)
            self.write(tuple(arguments), path)
            self.emit(b"R")
        self.remember(obj)
        self.write_content(path, elements, items)
        if state is not None:
            self.write(state, path)
            self.emit(b"b")

    def write_name(self, thing: Any, path: tuple[str, ...]) -> None:
        address = address_of(thing)
        if address is None:
            _refuse(thing, path)
        self.name(*address)

    def write_content(self, path: tuple[str, ...], elements: Any, items: Any) -> None:
        if elements is not None:
            self.emit(b"(")
            for element in elements:
                self.write(element, path)
            self.emit(b"e")
        if items is not None:
            self.emit(b"(")
            for key, value in items:
                self.write(key, path)
                self.write(value, (*path, str(key)))
            self.emit(b"u")

    def write_elements(self, obj: Any, path: tuple[str, ...]) -> None:
        self.emit(b"](" if isinstance(obj, list) else b"(")
        for place, value in enumerate(obj):
            self.write(value, (*path, str(place)))
        self.emit(b"e" if isinstance(obj, list) else b"t")

    def write_called(self, obj: Any, path: tuple[str, ...]) -> None:
        self.name("__builtin__", type(obj).__name__)
        if isinstance(obj, bytearray):
            self.write_scalar(bytes(obj))
        else:
            self.write_elements(list(obj), path)
        self.emit(b"\x85R")

    def write_dict(self, obj: dict[Any, Any], path: tuple[str, ...]) -> None:
        if isinstance(obj, OrderedDict):
            self.call("collections", "OrderedDict")
        else:
            self.emit(b"}")
        self.emit(b"(")
        for key, value in obj.items():
            self.write(key, path)
            self.write(value, (*path, str(key)))
        self.emit(b"u")
        metadata = getattr(obj, "_metadata", None)
        if isinstance(obj, OrderedDict) and metadata is not None:
            self.emit(b"}")
            self.text("_metadata")
            self.write(metadata, (*path, "_metadata"))
            self.emit(b"sb")


def storage_unit(dtype: DType) -> int:
    """Return how many bytes the elements of a storage have, as it counts them: it counts bytes of types without one."""
    return dtype.itemsize if dtype in _STORAGE_NAMES else 1


def _place(described: Described, placed: Placed, is_older: bool) -> bytes:
    """Return the arguments that tell where a tensor lies: the storage, and the offset, shape and strides there.

    In an older file a storage might also be a part of another, which none is.
    """
    named = _STORAGE_NAMES.get(described.dtype)
    kind = "ctorch.storage\nUntypedStorage\n" if named is None else f"ctorch\n{named}\n"
    size = placed.numel * described.dtype.itemsize // storage_unit(described.dtype)
    parts = [
        b"((", _text("storage"), kind.encode(), _text(str(placed.storage)), _text(described.location), _integer(size),
        b"NtQ" if is_older else b"tQ", _integer(placed.offset), _integers(described.shape), _integers(placed.strides),
    ]  # fmt: skip
    return b"".join(parts)


def _integer(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    if len(data) > 255:
        raise ArgumentError("save: an integer of more than 255 bytes")
    return b"\x8a" + bytes([len(data)]) + data


def _integers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join([_integer(value) for value in values]) + b"t"


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def _where(path: tuple[str, ...]) -> str:
    return repr(".".join(path)) if path else "the object"


def _refuse(obj: Any, path: tuple[str, ...]) -> NoReturn:
    kind = type(obj).__name__
    named = f"the {kind} {obj.__qualname__}" if hasattr(obj, "__qualname__") else f"a {kind}"
    raise ArgumentTypeError(
        f"save: {_where(path)} is {named}, which no module has by its name, or which no such function makes "
        "again; save a state_dict(), or plain values"
    )
