"""``RaggedSize``: the size of a ragged dimension, which is another one in every element of a batch."""

from __future__ import annotations

from itertools import count
from typing import Any, NoReturn

from telegrad._programs.private.symbols import SymInt
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

_numbers = count()


class RaggedSize(SymInt):
    """A size that has no number, shown as ``j1``: equal to that of tensors that share its offsets, and to no other.

    ``factor`` times the size is what strides have.
    """

    is_size = True

    def __init__(self, number: int | None = None, factor: int = 1) -> None:
        self._number = next(_numbers) if number is None else number
        self._factor = factor

    def __repr__(self) -> str:
        return f"j{self._number}" if self._factor == 1 else f"{self._factor}*j{self._number}"

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, RaggedSize) and other._number == self._number
        return same and other._factor == self._factor  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self._number, self._factor))

    def __mul__(self, factor: Any) -> RaggedSize:
        if not isinstance(factor, int):
            return NotImplemented
        return RaggedSize(self._number, self._factor * factor)

    __rmul__ = __mul__

    def __ge__(self, other: Any) -> bool:
        """Compare as PyTorch does: the size is at least two, and more is not known of it."""
        if isinstance(other, RaggedSize) and other._number == self._number:
            return self._factor >= other._factor
        if isinstance(other, int) and other <= 2:
            return True
        self._refuse(other)

    def __le__(self, other: Any) -> bool:
        if isinstance(other, RaggedSize):
            return other >= self
        if isinstance(other, int) and other < 2:
            return False
        self._refuse(other)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def _refuse(self, other: Any) -> NoReturn:
        raise ArgumentError(f"the ragged size {self} cannot be compared with {other}: relation is indeterminate")

    def __index__(self) -> int:
        """Raise ArgumentTypeError: the size has no number."""
        raise ArgumentTypeError(
            f"the ragged size {self} is another number in every element; see offsets().diff() of the nested tensor"
        )

    __int__ = __index__
