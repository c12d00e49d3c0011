"""Values and their storage: the engine's tensors.

A ``Value`` is a view of a ``Storage`` as its ``Meta`` says; what autograd knows of it hangs on ``autograd``. Methods
and operators of values are attached by ``functional``; kernels never see values, only their arrays.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Device, Meta

from .keys import AUTOGRAD

if TYPE_CHECKING:
    from server.allocator import Block

    from .autograd.graph import AutogradMeta
    from .device.backend import Backend


class Storage:
    """A block of device memory shared by all views of it; freed with the last of them.

    ``version`` counts in-place modifications. ``keeper`` owns the block instead where a library allocated it.
    """

    __slots__ = ("__weakref__", "backend", "block", "keeper", "nbytes", "version")

    def __init__(self, backend: Backend, block: Block, nbytes: int, keeper: Any = None) -> None:
        self.backend = backend
        self.block = block
        self.nbytes = nbytes
        self.version = 0
        self.keeper = keeper

    def __del__(self) -> None:
        if self.keeper is not None:
            return
        backend = self.backend
        if backend._busy:
            backend.release(self.block)
            return
        backend._busy = True  # the same, without a call
        try:
            backend.allocator.free(self.block)
        finally:
            backend._busy = False
            if backend._late:
                backend._release_late()


new_storage = partial(object.__new__, Storage)
"""A storage without its attributes, for who sets them all: no detour through ``__init__`` with every operation."""
TRACKED, UNTRACKED, MULTIPLE = range(3)
"""How a view was made: with gradients on, with gradients off, or as one of several results."""


class Value:
    """The engine's tensor (the seeds' TensorImpl).

    Views have a ``base`` that is no view itself, an ``origin``, and the storage's version that their history has
    ``seen``.
    """

    __slots__ = ("__weakref__", "_array", "autograd", "backend", "base", "keys", "meta", "origin", "seen", "storage")

    def __init__(self, storage: Storage, meta: Meta, backend: Backend, base: Value | None = None) -> None:
        self.storage = storage
        self.meta = meta
        self.backend = backend
        self.base = base
        self.autograd: AutogradMeta | None = None
        self._array: Any = None
        if base is None:
            self.keys = backend.key
        else:
            self.keys = backend.key | AUTOGRAD
            self.seen = storage.version
            self.origin = TRACKED

    @property
    def array(self) -> Any:
        """The NumPy or CuPy array over this value's elements."""
        found = self._array
        if found is None:
            found = self._array = self.backend.array(self.storage, self.meta)
        return found

    @property
    def shape(self) -> Size:
        return self.meta.shape

    @property
    def dtype(self) -> DType:
        return self.meta.dtype

    @property
    def device(self) -> Device:
        return self.meta.device

    @property
    def ndim(self) -> int:
        return self.meta.ndim

    @property
    def numel(self) -> int:
        return self.meta.numel

    @property
    def T(self) -> Value:
        """The matrix transpose."""
        return self.t()  # type: ignore[no-any-return]

    def alias(self) -> Value:
        """The same elements without autograd history."""
        twin = Value(self.storage, self.meta, self.backend)
        twin._array = self._array
        return twin

    def __repr__(self) -> str:
        return f"Value({self.meta}, {self.device})"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


new_value = partial(object.__new__, Value)
"""A value without its attributes, as ``new_storage``."""
