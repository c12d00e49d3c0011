"""``Size``: a shape as users hold it. Knows nothing of tensors."""

from __future__ import annotations

from math import prod

from telegrad_protocol.shown_name import shown_name


class Size(tuple[int, ...]):
    """The shape of a tensor."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        return prod(self)

    def __repr__(self) -> str:
        return shown_name(f"Size({list(self)})")
