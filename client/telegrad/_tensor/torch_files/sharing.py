"""Which storages a file of ``torch.save`` has: tensors that share memory share a storage there, and so do views.

As in PyTorch a view is saved with the whole memory that it is part of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import contiguous_strides

from .writing import Placed, storage_unit


class Storages:
    """The storages of one file: ``place`` tells how tensors lie in them, ``readers`` read them in their order.

    ``units`` are the bytes of the elements that each of them counts.
    """

    def __init__(self) -> None:
        self.readers: list[Callable[[], Any]] = []
        self.units: list[int] = []

    def place(self, tensors: list[Any]) -> list[Placed]:
        """Give tensors a storage each, or one together. One round trip for those of one session."""
        memories = _memories(tensors)
        known: dict[Any, int] = {}
        placed = []
        for tensor in tensors:
            memory, nbytes = memories.get(id(tensor), (None, 0))
            meta = tensor._meta
            size = nbytes // meta.dtype.itemsize
            if memory is None or not meta.numel or meta.extent > size:
                strides = contiguous_strides(meta.shape)
                placed.append(Placed(len(self.readers), meta.numel, 0, strides))
                self._add(_reader(tensor), meta.dtype)
                continue
            key = (memory, meta.dtype)
            if key not in known:
                known[key] = len(self.readers)
                is_whole = meta.is_contiguous and not meta.offset and meta.numel == size
                self._add(_reader(tensor) if is_whole else _whole_reader(tensor, size), meta.dtype)
            placed.append(Placed(known[key], size, meta.offset, tuple(meta.strides)))
        return placed

    def _add(self, read: Callable[[], Any], dtype: DType) -> None:
        self.readers.append(read)
        self.units.append(storage_unit(dtype))


def _memories(tensors: list[Any]) -> dict[int, tuple[Any, int]]:
    """Return a key of the memory that each tensor lies in, and its bytes, by ``id``; none for tensors without any."""
    by_session: dict[Any, list[Any]] = {}
    for tensor in tensors:
        if not tensor._session.holds_gradients:
            by_session.setdefault(tensor._session, []).append(tensor)
    return {
        id(tensor): ((session, number), nbytes)
        for session, own in by_session.items()
        for tensor, (number, nbytes, _) in zip(own, session.query("storages", [t._id for t in own]), strict=True)
    }


def _reader(tensor: Any) -> Callable[[], Any]:
    return lambda: tensor._session.read(tensor._id)[2]


def _whole_reader(tensor: Any, size: int) -> Callable[[], Any]:
    def read() -> Any:
        whole = tensor.detach().as_strided((size,), (1,), 0)
        return whole._session.read(whole._id)[2]

    return read
