"""Metas: all that is known of a tensor without its data, which is shape, strides, offset, dtype and device.

Metas are interned: equal ones are the same object, so that they are compared and hashed by identity. Shape rules take
and return them on both ends of the wire.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from . import layout
from .dtypes import DType
from .errors import ArgumentError, ArgumentTypeError, ShapeError
from .layout import Size

MAX_DIMENSIONS = 64
"""As many dimensions as a tensor of PyTorch can have."""
MAX_BYTES = 1 << 62
"""Bytes that a tensor may span; larger ones would overflow arithmetic in 64 bits."""
_SMALL_REACH: Final = 1 << 48
"""Fewer elements than this are within ``MAX_BYTES``, whatever their type."""


_TYPES: Final = ("cpu", "cuda", "xpu", "xla", "mps", "meta", "hpu", "mtia", "privateuseone")
"""Types of devices that programs may name, in PyTorch's order; servers have the first two, and clients ``meta``."""
_INDEX: Final = re.compile("0|[1-9][0-9]{0,2}")
_LAST_INDEX: Final = 127
"""PyTorch's indices have no more bits; names come from outside, and each is kept."""


class Device:
    """Where a tensor lives: ``cpu``, ``cuda`` with an index, or ``meta``, where it has no elements.

    Programs compare with devices of other types, such as ``mps``, where no tensor can live.

    Interned: equal devices are the same object. ``cpu`` and ``meta`` may be named with an index, which their tensors
    do not have; see ``place``. ``cuda`` without an index stands for the current GPU of whoever uses
    it; no tensor lives there. The client makes devices context managers: a ``with`` block has its tensors made on the
    device where none is named.
    """

    __slots__ = ("index", "name", "type")
    _known: dict[str, Device] = {}

    type: str
    index: int | None
    name: str

    def __new__(
        cls, type: str | Device | int | None = None, index: int | None = None, *,
        device: str | Device | int | None = None,
    ) -> Device:  # fmt: skip
        if device is not None or type is None:
            return cls._by_keyword(type, index, device)
        if isinstance(type, Device):
            return type
        if not isinstance(type, str):
            return cls._of_index(type)
        key = type if index is None else cls._numbered(type, index)
        return cls._known.get(key) or cls._parse(key)

    @classmethod
    def _by_keyword(cls, type: object, index: object, device: str | Device | int | None) -> Device:
        if device is None or type is not None or index is not None:
            raise ArgumentTypeError("device: expected a name with or without an index, or device= and nothing else")
        return cls(device)

    @classmethod
    def _of_index(cls, index: int) -> Device:
        """Return the GPU of an index."""
        if not isinstance(index, int) or isinstance(index, bool):
            raise ArgumentTypeError(f"device: expected a name such as 'cuda:0' or the index of a GPU, got {index!r}")
        return cls("cuda", index)

    @staticmethod
    def _numbered(type: str, index: int) -> str:
        """Return the name of the device of a type and an index."""
        if not isinstance(index, int) or isinstance(index, bool):
            raise ArgumentTypeError(f"device: expected an integer as index, got {index!r}")
        if index < 0 or ":" in type:
            raise ArgumentError(f"device: expected a type without an index, and an index from 0, got {type!r}, {index}")
        return f"{type}:{index}"

    @classmethod
    def _parse(cls, text: str) -> Device:
        kind, colon, number = text.partition(":")
        if kind not in _TYPES:  # programs read the types that there are from these words, which are PyTorch's
            types = ", ".join(_TYPES)
            raise ArgumentError(f"device: Expected one of {types} device type at start of device string: {text}")
        if colon and (_INDEX.fullmatch(number) is None or int(number) > _LAST_INDEX):
            raise ArgumentError(f"device: expected 'cpu', 'cuda' or 'cuda:N' up to {_LAST_INDEX}, got {text!r}")
        device = object.__new__(cls)
        device.type, device.name, device.index = kind, text, int(number) if colon else None
        return cls._known.setdefault(text, device)

    @property
    def place(self) -> Device:
        """The device of the tensors that a program makes here: those of ``cpu:3`` are on ``cpu``."""
        return CPU if self.type == "cpu" else META if self.type == "meta" else self

    @property
    def on_server(self) -> Device:
        """The device that a name from outside stands for on a server, which has no current GPU: its first one."""
        return FIRST_GPU if self is CURRENT_GPU else self.place

    if TYPE_CHECKING:  # the client library attaches them

        def __enter__(self) -> Device: ...
        def __exit__(self, *_: object) -> None: ...

    def __repr__(self) -> str:
        return (
            f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"
        )

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and self.name == other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Callable[[str], Device], tuple[str]]:
        return Device, (self.name,)


CPU = Device("cpu")
CURRENT_GPU = Device("cuda")
"""Stands for the current GPU of whoever uses it."""
FIRST_GPU = Device("cuda", 0)
META = Device("meta")
"""Where tensors have a shape and no elements; only clients have it."""


# Not attributes of the class: CPython forgets what it knows of the instances' attributes whenever one is set.
_interned: WeakValueDictionary[tuple[object, ...], Meta] = WeakValueDictionary()
"""The metas of the domain whose turn it is."""
_of_domains: dict[int, WeakValueDictionary[tuple[object, ...], Meta]] = {0: _interned}


class Meta:
    """Shape, strides (in elements), offset (in elements), dtype and device of a tensor; made by ``Meta.of``."""

    __slots__ = (
        "__weakref__", "_at_start", "device", "dtype", "extent", "is_contiguous", "ndim", "numel", "offset", "shape",
        "strides",
    )  # fmt: skip

    shape: Size
    strides: Size
    offset: int
    dtype: DType
    device: Device
    ndim: int
    numel: int
    is_contiguous: bool
    extent: int
    """Length of storage, in elements from its beginning, that the tensor needs."""
    _at_start: Meta | None

    @staticmethod
    def use_domain(number: int) -> None:
        """Make metas that only those of one domain share, from here on: its calls take no time less for others'."""
        global _interned
        metas = _of_domains.get(number)
        if metas is None:
            metas = _of_domains[number] = WeakValueDictionary()
        _interned = metas

    @staticmethod
    def of(
        shape: Iterable[int], dtype: DType, device: Device = CPU, strides: Size | None = None, offset: int = 0
    ) -> Meta:
        """Return the domain's one meta of these properties; it is row-major where no strides are given."""
        shape = tuple(shape)
        key = (shape, strides, offset, dtype, device.name)
        kept = _interned.data.get(key)  # type: ignore[attr-defined]  # `get`, without a call in Python
        meta: Meta | None = None if kept is None else kept()
        return meta if meta is not None else Meta._make(key, shape, dtype, device, strides, offset)

    @staticmethod
    def _make(
        key: tuple[object, ...], shape: Size, dtype: DType, device: Device, strides: Size | None, offset: int
    ) -> Meta:
        if len(shape) > MAX_DIMENSIONS:
            raise ShapeError(f"shape: a tensor has at most {MAX_DIMENSIONS} dimensions, not {len(shape)}")
        row_major = layout.contiguous_strides(shape)
        if strides == row_major:
            meta = Meta.of(shape, dtype, device, None, offset)
            _interned[key] = meta
            return meta
        numel = math.prod(shape)
        if strides is None:
            strides, is_contiguous = row_major, True
        else:
            is_contiguous = layout.is_contiguous(shape, strides)
        _check_bounds(shape, strides, offset, dtype, numel)
        meta = object.__new__(Meta)
        meta.shape, meta.strides, meta.offset, meta.dtype, meta.device = shape, strides, offset, dtype, device
        meta.ndim, meta.numel, meta.is_contiguous = len(shape), numel, is_contiguous
        meta._at_start = None
        meta.extent = (offset + (numel if is_contiguous else layout.extent(shape, strides))) if numel else 0
        _interned[key] = meta
        return meta

    def like(
        self,
        shape: Iterable[int] | None = None,
        dtype: DType | None = None,
        device: Device | None = None,
        strides: Size | None = None,
        offset: int = 0,
    ) -> Meta:
        """Return the meta of a new tensor with this one's properties, but for those given; row-major by default."""
        return Meta.of(
            self.shape if shape is None else shape, dtype or self.dtype, device or self.device, strides, offset
        )

    def view(self, shape: Iterable[int], strides: Size, offset: int | None = None) -> Meta:
        """Return the meta of a view of the same memory."""
        return Meta.of(shape, self.dtype, self.device, strides, self.offset if offset is None else offset)

    @property
    def at_start(self) -> Meta:
        """The meta of a tensor that is like this one and begins where its storage does."""
        if not self.offset:
            return self
        meta = self._at_start
        if meta is None:
            meta = self._at_start = Meta.of(self.shape, self.dtype, self.device, self.strides)
        return meta

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, wherever they lie: ``numel * itemsize``."""
        return self.numel * self.dtype.itemsize

    @property
    def is_dense(self) -> bool:
        """Whether the elements fill one block of memory exactly."""
        return self.is_contiguous or layout.is_dense(self.shape, self.strides)

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


def _check_bounds(shape: Size, strides: Size, offset: int, dtype: DType, numel: int) -> None:
    """Refuse sizes that no memory holds, so that arithmetic on sizes and strides cannot overflow 64 bits."""
    if numel and min(strides, default=0) >= 0:
        reach = offset + numel + len(shape) * max(shape, default=0) * max(strides, default=0)
        if reach < _SMALL_REACH:
            return
    sizes = [max(size, 1) for size in shape]
    reach = offset + sum([abs(stride) * size for stride, size in zip(strides, sizes, strict=True)])
    if max(reach, math.prod(sizes)) * dtype.itemsize >= MAX_BYTES:
        raise ShapeError(f"shape: sizes {list(shape)} with strides {list(strides)} are beyond what any memory holds")
