"""Whether indices are in range before anything runs, so that nothing has to be undone after it.

A device checks indices while it uses them, and the host learns of it when later operations have run. What a program
does to its inputs cannot be undone. So the host finds out beforehand what a tensor of indices holds: an upload passes
through its hands, and anything else is looked at once for as long as nobody writes to it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from server.engine.integers.elements import Elements, is_integral, tells
from server.engine.integers.ranges import IndexRange
from server.engine.value import CHANGING, Value, memory_of
from telegrad_protocol.meta import Meta

_LARGEST: Final = 4 << 20
"""Bytes of indices that are looked at; a program on more of them is executed as instructions."""
_LARGEST_UPLOAD: Final = 1 << 20
"""Bytes of an upload that are looked at as they pass."""


class IndexCheck(NamedTuple):
    """What must hold of an input of a program: its number, the layout that it is read in, and the range."""

    input: int
    meta: Meta
    range: IndexRange


def note_upload(value: Value, data: memoryview) -> None:
    """Look at all elements of a tensor of integers, as they are uploaded to a device that the host cannot look into."""
    if value.backend.can_capture and is_integral(value.meta) and 0 < len(data) <= _LARGEST_UPLOAD:
        array = np.frombuffer(data, value.meta.dtype.name)
        value.storage.elements = _elements(array, value.storage.version, value.meta)


def _elements(array: np.ndarray[Any, Any], version: int, meta: Meta) -> Elements:
    low, high = (int(array.min()), int(array.max())) if array.size else (0, -1)
    return Elements(version, meta, low, high, int(array[array < 0].max()) if low < 0 else -1)


def are_good(check: IndexCheck, value: Value) -> bool:
    """Whether the indices that an input holds are in range; waits for the device where they are not known."""
    storage = memory_of(value.storage)
    known: Any = getattr(storage, "elements", None)
    if known is CHANGING and storage is value.storage and check.meta.nbytes <= _LARGEST:
        view = Value(storage, check.meta, value.backend)
        return check.range.holds(_elements(value.backend.host_array(view), storage.version, check.meta))
    if tells(known, storage, check.meta) and (known.is_exact or check.range.holds(known)):
        return check.range.holds(known)
    if check.meta.nbytes > _LARGEST or storage is not value.storage:
        return False
    view = Value(storage, check.meta, value.backend)
    known = _elements(value.backend.host_array(view), storage.version, check.meta)
    if getattr(storage, "elements", None) is not CHANGING:
        storage.elements = known
    return check.range.holds(known)
