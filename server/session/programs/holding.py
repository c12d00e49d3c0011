"""Which calls in a row a stretch can hold: they only make new tensors, and change none that was there before them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from server.engine.operators import BY_INDEX
from server.session.state import SessionState
from telegrad_protocol import messages

_MAKES: Final = frozenset(
    [operator.op.index for operator in BY_INDEX if not (operator.op.mutates or operator.op.updates)]
)
_WRITES: Final = {
    operator.op.index: operator.op.mutates for operator in BY_INDEX
    if operator.op.mutates and not operator.op.updates and operator.composite is None
}  # fmt: skip
"""Operations that write to tensors, and the positions of these among the arguments."""
_checked: Final[set[int]] = set()
"""Operations that turned out to have a device check what they are given, other than indices."""


def note_check(operation: int) -> None:
    """Note that a device checks what an operation is given."""
    _checked.add(operation)


def divides_of(state: SessionState) -> tuple[Collection[int], ...]:
    """Return the operations that no stretch of a session may hold, as far as that turned out."""
    return _checked, state.divides


class Holding:
    """Goes through instructions, and tells of each whether a stretch that began before it can hold it.

    A tensor that the stretch has made may be written to. ``divides`` are operations that it never holds.
    """

    __slots__ = ("_made", "_never")

    def __init__(self, *divides: Collection[int]) -> None:
        self._never = frozenset[int]().union(*divides)
        self._made: set[int] = set()

    def holds(self, one: Any) -> bool:
        """Whether a stretch can hold an instruction; where it cannot, another stretch may begin after that."""
        if one.__class__ is messages.Call:
            op = one.op
            if op not in self._never and (op in _MAKES or self._writes_to_own(one)):
                self._made.update(one.outs)
                return True
        elif one.__class__ is messages.Free:
            return True
        self._made.clear()
        return False

    def end(self) -> None:
        """Note that the next instruction is the first of a stretch."""
        self._made.clear()

    def _writes_to_own(self, call: messages.Call) -> bool:
        positions = _WRITES.get(call.op, ())
        targets = [call.args[position] for position in positions if position < len(call.args)]
        return bool(targets) and all([self._is_own(target) for target in targets])

    def _is_own(self, target: Any) -> bool:
        """A client may send anything in the place of a tensor, also what no set can hold."""
        if target.__class__ is list:
            return all([each.__class__ is int and each in self._made for each in target])
        return target.__class__ is int and target in self._made
