"""``Size``: a shape as users hold it. Knows nothing of tensors."""

from __future__ import annotations

from math import prod
from typing import Any

from telegrad_protocol.shown_name import shown_name

_item = tuple.__getitem__


class Size(tuple[int, ...]):
    """The shape of a tensor."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        return prod(self)

    def __getitem__(self, index: Any) -> Any:
        part = _item(self, index)
        return Size(part) if part.__class__ is tuple else part

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: Any) -> Any:
        return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Any:
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return shown_name(f"Size({list(self)})")
