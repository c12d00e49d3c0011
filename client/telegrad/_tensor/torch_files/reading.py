"""What the names in a pickle of ``torch.save`` stand for: tensors, parameters, and the plain types of state dicts."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pickle import UnpicklingError  # noqa: TID251  # what programs catch; nothing is unpickled
from typing import Any, Final

import numpy as np

from telegrad._tensor import layouts
from telegrad._tensor.layouts import sparse_coo
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, NotSupportedError
from telegrad_protocol.meta import META, Device

from .classes import of_class, with_attributes
from .objects import Objects
from .opcodes import Builder, require_key

STORAGE_TYPES: Final = {
    "FloatStorage": dtypes.float32, "DoubleStorage": dtypes.float64, "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16, "LongStorage": dtypes.int64, "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16, "CharStorage": dtypes.int8, "ByteStorage": dtypes.uint8,
    "BoolStorage": dtypes.bool_, "ComplexFloatStorage": dtypes.complex64, "ComplexDoubleStorage": dtypes.complex128,
}  # fmt: skip
"""Names in PyTorch's files by type; other types lie in untyped storages."""
_NESTED: Final = "torch.nested._internal.nested_tensor"
"""The module of PyTorch's whose function makes jagged tensors, and whose class they are of."""


def _made_by(name: str) -> Callable[..., Any]:
    """Return what makes a nested tensor of what a file has of it."""

    def make(*arguments: Any) -> Any:
        return getattr(import_module("telegrad._nested.files"), name)(*arguments)

    return make


class _Hint:
    """What PyTorch's compiler has noted of a size of a nested tensor; nothing here needs it."""

    def __setstate__(self, state: Any) -> None:
        """Take the noted state, as unpickling asks for, and keep nothing of it."""


_CLASSES: Final = {
    "numpy.ndarray": np.ndarray, "torch.Tensor": Tensor, "torch._dynamo.decorators._DimRange": _Hint,
}  # fmt: skip
"""Classes that files name as what something is to be an object of."""


class ForeignObjectError(NotSupportedError, UnpicklingError):
    """A file is none of PyTorch's, or has an object that is not read with ``weights_only``: an UnpicklingError."""


@dataclass(frozen=True)
class Storage:
    """Where the elements of tensors lie in a file: under ``key``; ``dtype`` is None for one that counts bytes."""

    key: str
    dtype: DType | None
    location: str
    numel: int


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in a storage, in elements."""

    storage: Storage
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def numel(self) -> int:
        """How many elements the storage has."""
        storage = self.storage
        return storage.numel if storage.dtype is not None else storage.numel // self.dtype.itemsize

    @property
    def is_whole(self) -> bool:
        """Whether the elements are all of the storage, in row-major order."""
        expected, wanted = 1, []
        for size in reversed(self.shape):
            wanted.append(expected)
            expected *= size
        in_order = all(size == 1 or a == b for size, a, b in zip(self.shape, self.strides, reversed(wanted)))
        return in_order and not self.offset and math.prod(self.shape) == self.numel

    def require_room(self) -> None:
        """Raise ArgumentError where the elements do not lie inside of the storage."""
        sizes = (self.offset, *self.shape, *self.strides)
        ok = len(self.shape) == len(self.strides) and all(type(size) is int and 0 <= size < 2**62 for size in sizes)
        if ok and 0 not in self.shape:
            last = self.offset + sum([(size - 1) * stride for size, stride in zip(self.shape, self.strides)])
            ok = last < self.numel
        if not ok:
            raise ArgumentError(
                f"load: a tensor of shape {self.shape} does not lie inside of its storage of {self.numel}"
            )


class TorchNames:
    """The names that may occur, for one file; tensors come from the two callbacks."""

    def __init__(
        self, where: str, tensor: Callable[[Layout, bool], Any], parameter: Callable[[Any, bool], Any],
        sparse: Callable[..., Any], wrapper: Callable[..., Any], objects: Objects,
    ) -> None:  # fmt: skip
        self.objects = objects
        self._where = where
        self._tensor = tensor
        self._parameter = parameter
        self._sparse = sparse
        makers: dict[str, Callable[..., Any]] = {
            "collections.OrderedDict": _ordered_dict, "collections.Counter": _counter,
            "builtins.set": _set, "builtins.frozenset": lambda items: frozenset(_set(items)),
            "builtins.complex": _complex, "builtins.bytearray": bytearray_of, "builtins.bytes": lambda: b"",
            "_codecs.encode": _encode,
            "numpy.dtype": objects.dtype, "numpy.core.multiarray._reconstruct": objects.array,
            "numpy._core.multiarray._reconstruct": objects.array, "numpy.core.multiarray.scalar": objects.scalar,
            "numpy._core.multiarray.scalar": objects.scalar,
            "torch.Size": _size, "torch.device": _device, "torch._utils._rebuild_tensor_v2": self._rebuild,
            "torch._utils._rebuild_tensor": self._rebuild_plain, "torch._utils._rebuild_tensor_v3": self._rebuild_typed,
            "torch._utils._rebuild_meta_tensor_no_storage": self._rebuild_meta,
            "torch.serialization._get_layout": _layout, "torch._utils._rebuild_sparse_tensor": self._rebuild_sparse,
            "torch._utils._rebuild_parameter": self._rebuild_parameter,
            "torch._utils._rebuild_parameter_with_state": self._rebuild_parameter,
            "torch._utils._rebuild_wrapper_subclass": wrapper, "torch._tensor._rebuild_from_type_v2": of_class,
            f"{_NESTED}._rebuild_njt": _made_by("jagged_from_file"),
            "torch._utils._rebuild_nested_tensor": _made_by("strided_from_file"),
        }  # fmt: skip
        self._builders = {name: Builder(name, make) for name, make in makers.items()}

    def named(self, module: str, name: str) -> Any:
        """Return what a name stands for; ForeignObjectError names what is refused."""
        full = f"{'builtins' if module == '__builtin__' else module}.{name}"
        builder = self._builders.get(full)
        if builder is not None:
            return builder
        if module in ("torch", "torch.storage"):
            if name in STORAGE_TYPES:
                return STORAGE_TYPES[name]
            if name == "UntypedStorage":
                return None
            if name.removesuffix("_") in dtypes.BY_NAME:
                return dtypes.BY_NAME[name]
        if full == f"{_NESTED}.NestedTensor":
            return import_module("telegrad._nested.tensor").NestedTensor
        if full in _CLASSES:
            return _CLASSES[full]
        known = self.objects.named("builtins" if module == "__builtin__" else module, name)
        if known is not None:
            return known
        raise ForeignObjectError(
            f"load: {self._where} has a {full}; with weights_only=True only tensors, parameters and plain containers "
            "of them, arrays, numbers and strings are loaded, and what serialization.add_safe_globals names; with "
            "weights_only=False also objects of classes that the program has imported, whose functions are not called. "
            "Save a state_dict() instead, or convert the file where PyTorch is installed"
        )

    def persistent(self, key: Any) -> Storage:
        """Return the storage that a pickle refers to."""
        kind, dtype, name, location, numel = key[:5]
        if kind != "storage" or not (dtype is None or isinstance(dtype, DType)) or type(numel) is not int:
            raise ValueError(f"a reference to {kind!r}")
        return Storage(str(name), dtype, str(location), numel)

    def _rebuild(
        self, storage: Storage, offset: int, size: Any, stride: Any, requires_grad: bool, hooks: Any,
        metadata: Any = None,
    ) -> Any:  # fmt: skip
        if storage.dtype is None:
            raise ValueError("a tensor without a type")
        return self._made(Layout(storage, storage.dtype, tuple(size), tuple(stride), offset), requires_grad, metadata)

    def _rebuild_plain(self, storage: Storage, offset: int, size: Any, stride: Any) -> Any:
        return self._rebuild(storage, offset, size, stride, False, None)

    def _rebuild_typed(
        self, storage: Storage, offset: int, size: Any, stride: Any, requires_grad: bool, hooks: Any, dtype: DType,
        metadata: Any = None,
    ) -> Any:  # fmt: skip
        return self._made(Layout(storage, dtype, tuple(size), tuple(stride), offset), requires_grad, metadata)

    def _rebuild_meta(self, dtype: DType, size: Any, stride: Any, requires_grad: bool) -> Any:
        shape, strides = tuple(size), tuple(stride)
        numel = 1 + sum([(length - 1) * step for length, step in zip(shape, strides)]) if 0 not in shape else 0
        storage = Storage(f"meta {shape} {strides}", dtype, META.name, numel)
        return self._made(Layout(storage, dtype, shape, strides, 0), requires_grad, None)

    def _made(self, layout: Layout, requires_grad: bool, metadata: Any) -> Any:
        layout.require_room()
        tensor = self._tensor(layout, bool(requires_grad))
        if isinstance(metadata, dict):
            tensor = tensor.conj() if metadata.get("conj") else tensor
            tensor = -tensor if metadata.get("neg") else tensor
        return tensor

    def _rebuild_sparse(self, layout: Any, data: Any) -> Any:
        *parts, size, coalesced = data if layout is sparse_coo and len(data) == 4 else (*data, None)
        if len(parts) != (2 if layout is sparse_coo else 3):
            raise ValueError("a sparse tensor of other parts")
        return self._sparse(layout, parts, [int(length) for length in size], bool(coalesced))

    def _rebuild_parameter(self, data: Any, requires_grad: bool, hooks: Any, state: Any = None) -> Any:
        return with_attributes(self._parameter(data, bool(requires_grad)), state)


def _ordered_dict(pairs: Any = ()) -> Any:
    return OrderedDict((require_key(key), value) for key, value in pairs)


def _counter(counts: Any = ()) -> Any:
    return Counter({require_key(key): value for key, value in dict(counts).items()})


def _set(items: Any = ()) -> Any:
    return set(map(require_key, list(items)))


def _complex(real: float, imag: float) -> complex:
    return complex(float(real), float(imag))


def bytearray_of(content: Any = b"", encoding: str = "") -> bytearray:
    """Return bytes that a program may change; of text, as the older protocols write them."""
    if isinstance(content, str):
        return bytearray(_encode(content, encoding))
    if not isinstance(content, (bytes, bytearray)):
        raise TypeError("a bytearray of what are no bytes")
    return bytearray(content)


def _encode(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1") or not isinstance(text, str):
        raise ValueError(f"text in the encoding {encoding!r}")
    return text.encode("latin-1")


def _size(sizes: Any = ()) -> Size:
    return Size([int(size) for size in sizes])


def _layout(name: str) -> Any:
    return layouts.BY_NAME[name.removeprefix("torch.")]


def _device(kind: str, index: int | None = None) -> Device:
    return Device(str(kind) if index is None else f"{kind}:{int(index)}")
