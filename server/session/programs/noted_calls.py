"""What a recorded stretch consists of, call by call: composites are told apart from the operations that they come to.

A composite looks at its operands' metas: ``reshape`` is a view of one tensor and a copy of another. Where sizes are
others in each run, it is executed as a whole. Two values that are the same memory in one run, such as a cache and its
last rows, need not be in the next, so they are told apart, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import ReferenceType, ref

from server.engine.operators import Operator
from server.engine.programs.graph import Slot, Step
from server.engine.programs.recorded.composites import Composite
from server.engine.value import Value, memory_of
from server.session.arguments import READERS
from server.session.state import SessionState
from telegrad_protocol import messages
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.meta import Meta

from .ending import EndOfCall
from .recording import SessionRecorder


class CallRecorder(SessionRecorder):
    """Knows a value by what it is, or by its memory and its meta where these are of one value only."""

    lets_spend = False

    def __init__(self, state: SessionState, rows: dict[int, int], can_capture: bool) -> None:
        super().__init__(state, rows, can_capture)
        self.composites: list[Composite] = []
        self._own: dict[int, tuple[ReferenceType[Value], Slot]] = {}
        self._shared: set[tuple[int, Meta]] = set()
        self._ended = 0
        self._given: set[int] = set()
        """The memory of the inputs, by ``id``."""

    def enter(self, value: Value) -> Slot:
        self._given.add(id(memory_of(value.storage)))
        return super().enter(value)

    def note_operation(self, operator: Operator, args: tuple[Any, ...], signature: Any, result: Any) -> None:
        targets = [
            each for p in operator.op.mutates for each in (args[p] if isinstance(args[p], tuple) else (args[p],))
        ]
        if any([each.__class__ is Value and id(memory_of(each.storage)) in self._given for each in targets]):
            self.note_write_to_input(operator)
        super().note_operation(operator, args, signature, result)

    def note_write_to_input(self, operator: Operator) -> None:
        """Give up: an operation changes an input, which cannot be taken back."""
        self.give_up(f"{operator.op.public} changes an input, which cannot be taken back")

    def slot_of(self, value: Value) -> Slot | None:
        known = self._own.get(id(value))
        if known is not None and known[0]() is value:
            return known[1]
        if (id(value.storage), value.meta) in self._shared:
            self.give_up("it is not known which of several values on the same memory an operation takes")
        return super().slot_of(value)

    def note_call(self, operator: Operator, args: tuple[Any, ...], results: Sequence[Any]) -> None:
        """Note the end of a call, which has executed the steps since the last one ended."""
        begin, self._ended = self._ended, len(self.steps)
        if operator.composite is None or self.reason:
            return
        bound = self._replaced(args)
        values = [one for one in results if one.__class__ is Value]
        outs = tuple([slot for slot in map(self.slot_of, values) if slot is not None])
        is_known = len(values) == len(results) == len(outs) and self._state.context.autocast is None
        self.composites.append(Composite(
            begin, self._ended, Step(operator, bound, outs if is_known else ()),
            tuple([one.base is None for one in values]), tuple([one.meta for one in values]),
        ))  # fmt: skip

    def _name(self, value: Value) -> Slot:
        key = id(value.storage), value.meta
        if key in self._slots:
            self._shared.add(key)
        slot = super()._name(value)
        self._own[id(value)] = ref(value), slot
        return slot


def with_ends(stretch: Any, recorder: CallRecorder, instructions: Sequence[Any]) -> list[Any]:
    """Return instructions with the end of each call behind it."""
    return [
        each for one in instructions
        for each in ((one, EndOfCall(stretch, recorder, one)) if one.__class__ is messages.Call else (one,))
    ]  # fmt: skip


def end_call(state: SessionState, end: EndOfCall) -> None:
    """Handle the end of a call in a stretch that is recorded to be executed on other sizes."""
    if state.is_stopped:
        return
    call, reader = end.call, READERS[end.call.op]
    try:
        args = reader.read(state, call.args)
    except TelegradError:  # another thread's failure has left them absent
        end.recorder.give_up("an operand was not computed")
    else:
        end.recorder.note_call(reader.operator, args, [state.values.get(id) for id in call.outs])
