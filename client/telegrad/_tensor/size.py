"""``Size``: a shape as users hold it. Knows nothing of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from operator import index
from typing import Any, Final

from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.shown_name import shown_name

_item = tuple.__getitem__
_new = tuple.__new__
_PLAIN: Final[set[type]] = {int}


def _integer(place: int, size: Any) -> int:
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    if getattr(size, "is_size", False):
        return size  # type: ignore[no-any-return]  # that of a ragged dimension, which has no number
    try:
        return index(size)
    except TypeError:
        kind = type(size).__name__
        raise ArgumentTypeError(
            f"{shown_name('Size')}() takes an iterable of 'int' (item {place} is '{kind}')"
        ) from None


class Size(tuple[int, ...]):
    """The shape of a tensor. Raises TypeError where a size is no integer, as PyTorch's does."""

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Size:
        listed = tuple(sizes)
        are_plain = {*map(type, listed)} <= _PLAIN
        return _new(cls, listed if are_plain else [_integer(place, size) for place, size in enumerate(listed)])

    @staticmethod
    def of(sizes: tuple[int, ...]) -> Size:
        """Return sizes that are known to be integers."""
        return _new(Size, sizes)

    def numel(self) -> int:
        """The number of elements."""
        return prod(self)

    def __getitem__(self, index: Any) -> Any:
        part = _item(self, index)
        return Size.of(part) if part.__class__ is tuple else part

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: Any) -> Any:
        return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Any:
        return Size.of(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return shown_name(f"Size({list(self)})")
