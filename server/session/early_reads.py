"""Early reads: replies that leave before a backward pass and an optimizer's step which do not touch what is read.

A training loop asks for its loss after the step, as ``loss.item()``, in the frame that has the pass and the step. Where
nothing that waits before the read can fail or change what is read, the reply leaves before the pass begins, and the
client prepares its next step meanwhile. A pass that is replayed, on saved values that nobody has modified, fails for
lack of memory alone; the client learns of that at its next synchronisation, as of all that is wrong with what it sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from server.engine.operators import BY_INDEX
from server.engine.value import Storage, Value, memory_of
from telegrad_protocol import messages

from .state import SessionState

_UPDATES = frozenset(operator.op.index for operator in BY_INDEX if operator.op.updates)
_HARMLESS = frozenset((messages.Site, messages.DropGrads, messages.Free))
_MAX_DISTANCE = 16
"""No read is looked for behind more instructions than these."""


class EarlyReads:
    """Looks for the read of one session that may be answered now; ``answer`` answers it."""

    def __init__(self, state: SessionState, answer: Callable[[messages.Read], None]) -> None:
        self._state = state
        self._answer = answer

    def __call__(self, is_sound: Callable[[], bool]) -> None:
        """Answer the read that waits, if there is one: a pass begins that cannot fail where ``is_sound()``."""
        state = self._state
        if not state.inbox or state.is_stopped or state.replies.pending or state.context.checks.outstanding:
            return
        waiting = _until_read(state)
        if waiting and _leaves_alone(state, waiting) and is_sound():
            self._answer(waiting[-1])


def _until_read(state: SessionState) -> list[Any]:
    """Return what waits up to and with the first read; nothing where anything else than updates is before it."""
    waiting: list[Any] = []
    for instruction in islice(state.inbox, _MAX_DISTANCE):
        waiting.append(instruction)
        kind = instruction.__class__
        if kind is messages.Read:
            return waiting
        if kind not in _HARMLESS and not (kind is messages.Call and instruction.op in _UPDATES):
            break
    return []


def _leaves_alone(state: SessionState, waiting: list[Any]) -> bool:
    """Return whether neither the pass that is being executed nor the updates touch what the last one reads."""
    *updates, read = waiting
    value, backward = state.values.get(read.id), state.instruction
    if value.__class__ is not Value or value.meta.nbytes > messages.INLINE_BYTES:
        return False
    if backward.__class__ is not messages.Backward or any([read.id == gradient for _, gradient in backward.leaves]):
        return False
    touched: set[Storage] = set()
    for update in updates:
        if update.__class__ is messages.Call:
            if read.id in update.outs or read.id in update.freed:
                return False
            touched.update(_storages(state, update.args))
        elif update.__class__ is messages.Free and read.id in update.ids:
            return False
    for leaf, _ in backward.leaves:
        touched.update(_gradient_storage(state.values.get(leaf)))
    return memory_of(value.storage) not in touched


def _storages(state: SessionState, args: list[Any]) -> Iterator[Storage]:
    """Yield the memory of everything that an instruction's numbers may stand for."""
    for arg in args:
        for id in arg if arg.__class__ is list else (arg,):
            value = state.values.get(id) if id.__class__ is int else None
            if value.__class__ is Value:
                yield memory_of(value.storage)


def _gradient_storage(leaf: Any) -> Iterator[Storage]:
    meta = leaf.autograd if leaf.__class__ is Value else None
    if meta is not None and meta.grad is not None:
        yield memory_of(meta.grad.storage)
