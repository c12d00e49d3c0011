"""A batch of queued entries as bytes. Knows no queue."""

from __future__ import annotations

from typing import Any, NamedTuple

from telegrad._session.parts.mark import stood_for, without_parts
from telegrad._session.parts.modal import with_modes
from telegrad._session.thread_modes import DEFAULT, Modes
from telegrad_protocol import wire


class EncodedBatch(NamedTuple):
    """A batch as bytes; ``end`` is its last entry of the queue, ``told`` the modes after it.

    ``instructions`` is how many instructions the program has queued of it, or how many are sent, if these are more.
    """

    body: bytes
    end: Any
    told: Modes
    instructions: int


def encoded(queued: list[Any], told: Modes, has_parts: bool) -> EncodedBatch:
    """Return entries of a queue as a batch, where the server has been ``told`` of these modes."""
    batch, count = queued, len(queued)
    if has_parts:
        count += stood_for(batch)
        batch = without_parts(batch)
    if told is not DEFAULT or tuple in map(type, batch):
        batch, told = with_modes(batch, told)
    return EncodedBatch(wire.encode_batch(batch), queued[-1], told, max(count, len(batch)))
