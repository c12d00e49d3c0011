"""The elements of a tensor of integers, as far as the host knows them: kept with the memory, at a version of it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from server.engine.value import CHANGING, Storage, Value, memory_of
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

Bounds: TypeAlias = tuple[int, int]
"""The least and the greatest integer that can be there."""
LIMITS: Final = {
    dtypes.int64: 63, dtypes.int32: 31, dtypes.int16: 15, dtypes.int8: 7,
}  # fmt: skip
"""Bits of the integers that each type holds, whose bounds are noted."""
_INTEGRAL: Final = frozenset((*LIMITS, dtypes.uint8))


class Elements(NamedTuple):
    """What a tensor of integers holds, at a version of its storage, in the layout of ``meta``.

    ``low`` and ``high`` are its least and greatest element, ``negative`` is the greatest negative one, if there is one.
    Where they are not exact, they are bounds that operations have told, and nobody has looked.
    """

    version: int
    meta: Meta
    low: int
    high: int
    negative: int
    is_exact: bool = True


def tells(known: Any, storage: Storage, read: Meta) -> bool:
    """Whether elements that are known are those that are read now."""
    return known.__class__ is Elements and known.version == storage.version and covers(known.meta, read)


def is_integral(meta: Meta) -> bool:
    """Whether a tensor can hold indices."""
    return meta.dtype in _INTEGRAL


def covers(known: Meta, read: Meta) -> bool:
    """Whether elements that are read are among those that are known."""
    if known is read:
        return True
    begin, end = known.offset, known.extent
    return known.is_contiguous and known.dtype is read.dtype and begin <= read.offset and read.extent <= end


def bounds_of(value: Any) -> Bounds | None:
    """The bounds of what a value holds, where they are known; a number's are itself."""
    if value.__class__ is int:
        return value, value
    if value.__class__ is not Value:
        return None
    storage = memory_of(value.storage)
    known: Any = getattr(storage, "elements", None)
    return (known.low, known.high) if tells(known, storage, value.meta) else None


def note_bounds(value: Value, bounds: Bounds | None) -> None:
    """Note the bounds of what was just written to a value, unless others may write there uncounted."""
    storage, limit = value.storage, LIMITS.get(value.meta.dtype)
    if bounds is None or limit is None or storage.keeper is not None:
        return
    low, high = bounds
    if low >= -1 << limit and high < 1 << limit and getattr(storage, "elements", None) is not CHANGING:
        storage.elements = Elements(storage.version, value.meta, low, high, min(high, -1), False)


def uncount_write(storage: Storage) -> None:
    """Take back that a storage was counted as written to; what is known of its elements may be of a later count."""
    storage.version -= 1
    if getattr(storage, "elements", None) is not CHANGING:
        storage.elements = None
