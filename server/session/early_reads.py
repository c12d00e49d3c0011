"""Reads that are answered before their turn: what a backward pass and an optimizer's step leave alone is ready now.

A training loop asks for its loss after the step, as ``loss.item()``, in the frame that has the pass and the step. Where
nothing that waits before the read can fail or change what is read, the answer leaves before the pass begins, and the
client prepares its next step meanwhile. A pass that is replayed, on saved values that nobody has modified, fails for
lack of memory alone; the client learns of that at its next synchronisation, as of all that is wrong with what it sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from server.engine.operators import BY_INDEX
from server.engine.value import Storage, Value
from telegrad_protocol import messages

if TYPE_CHECKING:
    from .session import Session

_UPDATES = frozenset(operator.op.index for operator in BY_INDEX if operator.op.updates)
_HARMLESS = frozenset((messages.Site, messages.DropGrads, messages.Free))
_MOST = 16
"""Behind more instructions than these no read is looked for."""


class Ahead:
    """One session's answers before their turn."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __call__(self, is_sound: Callable[[], bool]) -> None:
        """Answer the read that waits, if there is one: a pass begins that cannot fail where ``is_sound()``."""
        session = self._session
        if not session.inbox or session.failure or session.waits:
            return
        before = _until_read(session)
        if before and _leaves_alone(session, before) and is_sound():
            session.answer_now(before[-1])


def _until_read(session: Session) -> list[Any]:
    """What waits up to a small read; nothing where anything else than updates is before it."""
    found: list[Any] = []
    for instruction in islice(session.inbox, _MOST):
        found.append(instruction)
        kind = instruction.__class__
        if kind is messages.Read:
            return found
        if kind not in _HARMLESS and not (kind is messages.Call and instruction.op in _UPDATES):
            break
    return []


def _leaves_alone(session: Session, before: list[Any]) -> bool:
    """Whether neither the pass that is being executed nor the updates touch the value that the last one reads."""
    *updates, read = before
    value, backward = session.values.get(read.id), session.instruction
    if value.__class__ is not Value or value.meta.nbytes > messages.INLINE_BYTES:
        return False
    if backward.__class__ is not messages.Backward or any([read.id == gradient for _, gradient in backward.leaves]):
        return False
    touched: set[Storage] = set()
    for each in updates:
        if each.__class__ is messages.Call:
            if read.id in each.outs or read.id in each.freed:
                return False
            touched.update(_storages(session, each.args))
        elif each.__class__ is messages.Free and read.id in each.ids:
            return False
    for leaf, _ in backward.leaves:
        touched.update(_gradient_storage(session.values.get(leaf)))
    return value.storage not in touched


def _storages(session: Session, args: list[Any]) -> Iterator[Storage]:
    """The memory of everything that an instruction's numbers may stand for."""
    for arg in args:
        for id in arg if arg.__class__ is list else (arg,):
            value = session.values.get(id) if id.__class__ is int else None
            if value.__class__ is Value:
                yield value.storage


def _gradient_storage(leaf: Any) -> Iterator[Storage]:
    known = leaf.autograd if leaf.__class__ is Value else None
    if known is not None and known.grad is not None:
        yield known.grad.storage
