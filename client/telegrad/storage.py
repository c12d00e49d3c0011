"""The memory that tensors show, as PyTorch's storages: which tensors share it, where it is and how large it is.

The memory is the server's: a storage tells of it, and hands out elements by way of tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from typing import Any, Final
from weakref import WeakValueDictionary, finalize

from telegrad._session.shapes.shape_session import ShapeSession
from telegrad._tensor.number_checks import is_integer
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType, uint8
from telegrad_protocol.errors import ArgumentError, NotSupportedError
from telegrad_protocol.meta import Device

__all__ = ["TypedStorage", "UntypedStorage", "storage_of"]


class UntypedStorage:
    """The bytes that a tensor and its views show. ``tensor.untyped_storage()`` gives it; programs make none."""

    _tensor: Tensor
    """The tensor that shows all of the memory that is known of."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotSupportedError(
            f"{type(self).__name__}: memory is the server's, and a storage is only had from a tensor: use "
            "tensor.untyped_storage(), or a tensor of uint8"
        )

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

    def __repr__(self) -> str:
        return f"[telegrad.storage.{type(self).__name__}(device={self.device}) of size {self.size()}]"


def is_storage(obj: Any) -> bool:
    """Tell whether ``obj`` is the memory of a tensor."""
    return isinstance(obj, UntypedStorage)


class TypedStorage(UntypedStorage):
    """The elements that a tensor and its views show. ``tensor.storage()`` gives it; programs make none."""

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
    known = None if is_typed else _OF_BASES.get(id(base))
    if known is not None:
        return known
    storage: UntypedStorage = object.__new__(TypedStorage if is_typed else UntypedStorage)
    storage._tensor = base
    if not is_typed:
        _OF_BASES[id(base)] = storage
    return storage


_RESIZED: Final[dict[int, int]] = {}
"""By the identity of the tensor that shows all of it, how many bytes memory was resized to."""
_OF_BASES: WeakValueDictionary[int, UntypedStorage] = WeakValueDictionary()
"""By the identity of the tensor that a storage keeps, so that no other tensor has that identity meanwhile."""


def _load_from_bytes(written: bytes) -> Any:
    """Return the storage that a pickle of PyTorch's keeps as a file of ``torch.save``; pickles name this function."""
    return import_module("telegrad.serialization").load(BytesIO(written), weights_only=False)
