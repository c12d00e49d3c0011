"""The memory that tensors show, as PyTorch's storages: which tensors share it, where it is and how large it is.

The memory is the server's: a storage tells of it, and hands out elements by way of tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from typing import Any, Final
from weakref import WeakValueDictionary, finalize

from telegrad._functions.memory import new_storages
from telegrad._session.shapes.shape_session import ShapeSession
from telegrad._tensor.number_checks import is_integer
from telegrad._tensor.tensor import Tensor
from telegrad._tensor.torch_files.reading import STORAGE_TYPES
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType, uint8
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from telegrad_protocol.meta import Device
from telegrad_protocol.shown_name import shown_name

__all__ = ["TypedStorage", "UntypedStorage", "storage_of"]


class UntypedStorage:
    """The bytes that a tensor and its views show, as ``tensor.untyped_storage()`` gives them, or new ones.

    A new one is made of a number of bytes, or of a list of them, on the server's CPU unless a device is named.
    """

    _tensor: Tensor
    """The tensor that shows all of the memory that is known of."""

    def __init__(self, *args: Any, device: Any = None) -> None:
        self._tensor = new_storages.elements_of("UntypedStorage", args, uint8, device)
        _OF_BASES[id(self._tensor)] = self

    @classmethod
    def from_buffer(cls, buffer: Any, count: int = -1, offset: int = 0, *, dtype: DType = uint8, **order: Any) -> Any:
        """Return a storage with the bytes of an object with Python's buffer: a copy.

        ``dtype`` tells how large its elements are, and ``byte_order``, "little", "big" or "native", how they lie.
        """
        elements = new_storages.elements_in("from_buffer", buffer, order.get("byte_order"), count, offset, dtype)
        return storage_of(elements)

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> Any:
        """Return a storage with the first bytes of a file: a copy, so that ``shared`` is refused."""
        return storage_of(new_storages.elements_in_file(filename, shared, nbytes, uint8))

    def nbytes(self) -> int:
        """Return how many bytes the memory has, or was resized to. One round trip, but for tensors without elements."""
        resized = _RESIZED.get(id(self._tensor))
        return self._held() if resized is None else resized

    def _held(self) -> int:
        tensor = self._tensor
        if isinstance(tensor._session, ShapeSession) or not tensor._meta.numel:
            return tensor._meta.extent * tensor._meta.dtype.itemsize
        ((_, nbytes, _),) = tensor._session.query("storages", [tensor._id])
        return int(nbytes)

    def size(self) -> int:
        """Return the number of elements, which are bytes."""
        return self.nbytes() // self.element_size()

    def __len__(self) -> int:
        return self.size()

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return 1

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return uint8

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self._tensor.device

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is a GPU's."""
        return self._tensor.is_cuda

    @property
    def is_sparse(self) -> bool:
        """Whether the elements are those of a sparse tensor: they are not."""
        return False

    def data_ptr(self) -> int:
        """Return the address of the beginning, which tells which tensors share memory. One round trip."""
        meta = self._tensor._meta
        address = self._tensor.data_ptr()
        return address - meta.offset * meta.dtype.itemsize if address else 0

    _cdata = property(data_ptr)

    def is_pinned(self, device: Any = None) -> bool:
        """Return False: the server pins the memory that its copies need."""
        return False

    def is_shared(self) -> bool:
        """Return False: the memory is the server's."""
        return False

    def shown_as(self, dtype: DType) -> Tensor:
        """Return a tensor of one dimension that shows this memory as elements of a type, without odd bytes."""
        flat: Tensor = self._tensor.detach().as_strided((self._tensor._meta.extent,), (1,), 0)
        if flat.dtype is dtype:
            return flat
        shown: Tensor = flat.view(uint8)
        return shown[: len(shown) // dtype.itemsize * dtype.itemsize].view(dtype)

    def _elements(self) -> Tensor:
        return self.shown_as(self.dtype)

    def tolist(self) -> list[Any]:
        """Return the elements. One round trip."""
        elements: list[Any] = self._elements().tolist()
        return elements

    def __getitem__(self, index: Any) -> Any:
        part = self._elements()[index]
        return part.item() if not part.ndim else part

    def __setitem__(self, index: Any, value: Any) -> None:
        self._elements()[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def fill_(self, value: Any) -> Any:
        """Write a value into all elements."""
        self._elements().fill_(value)
        return self

    def copy_(self, source: UntypedStorage, non_blocking: bool | None = None) -> Any:
        """Write the elements of another storage."""
        self._elements().copy_(source._elements())
        return self

    def clone(self) -> UntypedStorage:
        """Return a storage of its own with the same bytes, on the same device."""
        return storage_of(self._elements().clone(), isinstance(self, TypedStorage))

    def resizable(self) -> bool:
        """Return True: a storage can be made smaller."""
        return True

    def byteswap(self, dtype: DType) -> None:
        """Reverse the bytes of each element of a type."""
        new_storages.swap_bytes(self.shown_as(uint8), dtype)

    def to(self, *, device: Any, non_blocking: bool = False) -> Any:
        """Return the memory on a device: the same storage where it is there already."""
        moved = self._elements().to(device)
        return self if moved.device == self.device else storage_of(moved, isinstance(self, TypedStorage))

    def cpu(self) -> Any:
        """Return the memory on the server's CPU."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        """Return the memory on a GPU, the current one if none is named."""
        return self.to(device="cuda" if device is None else device)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """Return the name of the storage's type; or, given a type, its elements in that type."""
        if dtype is None:
            return shown_name(self._type_name())
        return self._cast(dtype)

    def _type_name(self) -> str:
        return "storage.UntypedStorage"

    def _cast(self, dtype: DType) -> Any:
        return storage_of(self._elements().to(dtype, copy=True), is_typed=True)

    def resize_(self, size: int) -> Any:
        """Note another size, up to that at first. The server frees the memory with the last tensor that shows it.

        Raises NotSupportedError for more, which other memory would have to be found for.
        """
        if not is_integer(size):
            raise ArgumentError(f"resize_ expects an int, but got {type(size).__name__}")
        wanted, held = size * self.element_size(), self._held()
        if not 0 <= wanted <= held:
            raise NotSupportedError(
                f"resize_: {wanted} bytes are not within the {held} that the server holds here; use "
                "Tensor.resize_(), or set_() to show other memory"
            )
        if id(self._tensor) not in _RESIZED:
            finalize(self._tensor, _RESIZED.pop, id(self._tensor), None)
        _RESIZED[id(self._tensor)] = wanted
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self.data_ptr() == other.data_ptr()

    def __hash__(self) -> int:
        return hash(self.data_ptr())

    def _described(self) -> str:
        return f"device={self.device}"

    def __repr__(self) -> str:
        elements = "" if self.device.type == "meta" else " " + "\n ".join(map(str, self.tolist())) + "\n"
        return f"{elements}[{shown_name('storage.' + type(self).__name__)}({self._described()}) of size {self.size()}]"


def is_storage(obj: Any) -> bool:
    """Tell whether ``obj`` is the memory of a tensor."""
    return isinstance(obj, UntypedStorage)


class TypedStorage(UntypedStorage):
    """The elements that a tensor and its views show, as ``tensor.storage()`` gives them, or new ones.

    A new one is made of a number of elements or a list of them, or shows ``wrap_storage`` as elements of ``dtype``.
    """

    def __init__(
        self, *args: Any, wrap_storage: Any = None, dtype: DType | None = None, device: Any = None,
        _internal: bool = False,
    ) -> None:  # fmt: skip
        if wrap_storage is None:
            kind = dtypes.get_default_dtype() if dtype is None else dtype
            self._tensor = new_storages.elements_of("TypedStorage", args, kind, device)
            return
        if args or device is not None or dtype is None:
            raise ArgumentError(
                "TypedStorage: No positional arguments should be given when using 'wrap_storage', nor a device; "
                "Argument 'dtype' must be specified"
            )
        if type(wrap_storage) is not UntypedStorage:
            raise ArgumentTypeError(
                f"TypedStorage: Argument 'wrap_storage' must be UntypedStorage, not {wrap_storage!r}"
            )
        self._tensor = wrap_storage.shown_as(dtype)

    def _type_name(self) -> str:
        return self.pickle_storage_type()

    def pickle_storage_type(self) -> str:
        """Return the name of the class of storages of these elements, such as FloatStorage."""
        return next((name for name, dtype in STORAGE_TYPES.items() if dtype is self.dtype), "TypedStorage")

    def _described(self) -> str:
        return f"dtype={self.dtype}, device={self.device}"

    def element_size(self) -> int:
        return self._tensor._meta.dtype.itemsize

    @property
    def dtype(self) -> DType:
        return self._tensor.dtype

    def untyped(self) -> UntypedStorage:
        """Return the same memory as bytes."""
        return storage_of(self._tensor)

    _untyped_storage = property(untyped)


def storage_of(tensor: Tensor, is_typed: bool = False) -> UntypedStorage:
    """Return the memory that a tensor shows: for bytes the same object as long as the program keeps it."""
    base = tensor if tensor._base is None else tensor._base
    if is_typed and base.dtype is not tensor.dtype:
        base = storage_of(base).shown_as(tensor.dtype)
    known = None if is_typed else _OF_BASES.get(id(base))
    if known is not None:
        return known
    storage: UntypedStorage = object.__new__(TypedStorage if is_typed else UntypedStorage)
    storage._tensor = base
    if not is_typed:
        _OF_BASES[id(base)] = storage
    return storage


def _casting(name: str, dtype: DType) -> Any:
    def cast(self: UntypedStorage) -> Any:
        return self._cast(dtype)

    cast.__name__, cast.__qualname__ = name, f"UntypedStorage.{name}"
    cast.__doc__ = f"Return the elements as {dtype.name}, in memory of their own."
    return cast


for _name, _dtype in {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
    "long": dtypes.int64, "int": dtypes.int32, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
    "bool": dtypes.bool_, "complex_float": dtypes.complex64, "complex_double": dtypes.complex128,
}.items():  # fmt: skip
    setattr(UntypedStorage, _name, _casting(_name, _dtype))


class StorageType(type):
    """The class of ``FloatStorage`` and its like."""

    dtype: DType

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype

    def __call__(cls, *args: Any, wrap_storage: Any = None, _internal: bool = False) -> Any:
        """Return a storage of a number of elements, or of a list of them, on the server's CPU."""
        return TypedStorage(*args, wrap_storage=wrap_storage, dtype=cls.dtype)

    def from_buffer(cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0) -> Any:
        """Return a storage with the elements of an object with Python's buffer: a copy."""
        return storage_of(new_storages.elements_in(cls.__name__, buffer, byte_order, count, offset, cls.dtype), True)

    def from_file(cls, filename: str, shared: bool = False, size: int = 0) -> Any:
        """Return a storage with the first elements of a file: a copy, so that ``shared`` is refused."""
        return storage_of(new_storages.elements_in_file(filename, shared, size, cls.dtype), True)


STORAGE_CLASSES: Final = {name: StorageType(name, (), {"dtype": dtype}) for name, dtype in STORAGE_TYPES.items()}
"""``torch.FloatStorage`` and its like, by name."""

_RESIZED: Final[dict[int, int]] = {}
"""By the identity of the tensor that shows all of it, how many bytes memory was resized to."""
_OF_BASES: WeakValueDictionary[int, UntypedStorage] = WeakValueDictionary()
"""By the identity of the tensor that a storage keeps, so that no other tensor has that identity meanwhile."""


def _load_from_bytes(written: bytes) -> Any:
    """Return the storage that a pickle of PyTorch's keeps as a file of ``torch.save``; pickles name this function."""
    return import_module("telegrad.serialization").load(BytesIO(written), weights_only=False)
