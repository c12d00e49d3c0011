"""Instructions that have something the wire cannot carry: they are taken out of the queue, and their threads are told.

Operations refuse such arguments when they are called. This is for what is queued without such a check, such as requests
and arguments of kernels: one of them must not keep a session from sending all others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from telegrad._session.parts.mark import Part, without_parts
from telegrad._session.thread_modes import DEFAULT, Modes
from telegrad_protocol import messages, wire
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError
from telegrad_protocol.ops import BY_INDEX

from .encoding import EncodedBatch, encoded

if TYPE_CHECKING:
    from telegrad._session.call_sites import CallSites
    from telegrad._session.parts.mark import Holder
    from telegrad._session.parts.table import ProgramTable

UNENCODABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""What the encoder raises: for objects of other kinds, text that is not Unicode, large integers and deep nesting."""


class Refusal(NamedTuple):
    """An entry that cannot be sent: its place in the batch, the instruction at fault, its modes, and the reason."""

    place: int
    instruction: Any
    modes: Modes
    reason: Exception

    def failure(self, site: str) -> messages.Failure:
        """Return what a thread is told of it, ``site`` being the line of the program."""
        one = self.instruction
        name = BY_INDEX[one.op].public if isinstance(one, messages.Call) else type(one).__name__.lower()
        kind = ArgumentTypeError if isinstance(self.reason, TypeError) else ArgumentError
        text = f"{name}: an argument cannot be sent to the server, so this was left out: {self.reason}"
        request = getattr(one, "request", None)
        return messages.Failure(messages.DROPPED, request, kind.__name__, text, name, "", site, "", self.modes.thread)


def refusals(queued: Sequence[Any]) -> Iterator[Refusal]:
    """Find the entries that cannot be encoded. A part whose replacement cannot be is sent entry by entry from here on.

    What a part without entries stands for is one instruction, and is refused as a whole.
    """
    place = 0
    while place < len(queued):
        entry = queued[place]
        covered = entry.replaced if type(entry) is Part else None
        fault = _fault_of(entry if covered is None else [*covered[1]])
        if covered is not None and fault is None:
            place += covered[0]
        elif covered is not None and covered[0]:
            entry.replaced = None
        elif fault is not None:
            yield Refusal(place, *fault)
        place += 1


def _fault_of(entry: Any) -> tuple[Any, Modes, Exception] | None:
    """Return the first instruction of an entry, or of a list of them, that cannot be encoded; None if all can be."""
    for one in entry if type(entry) is list else [entry]:
        modes, instruction = one if type(one) is tuple else (DEFAULT, one)
        try:
            wire.encode_batch(without_parts([instruction]))
        except UNENCODABLE as error:
            return instruction, modes, error
    return None


class RefusingQueue:
    """The part of a queue that encodes batches, and leaves out what cannot be sent."""

    __slots__ = ("_has_parts",)
    _pending: deque[Any]
    _has_parts: bool
    _told: Modes
    holder: Holder | None
    programs: ProgramTable
    sites: CallSites

    @staticmethod
    def send_queued(queue: RefusingQueue) -> bool:
        """Send all that is queued, and return whether that is done. C does so where nothing is unusual (0117)."""
        return False

    def _tell_left_out(self, failure: messages.Failure) -> None:
        """Tell a thread of an instruction that is not sent."""
        raise NotImplementedError

    def _encoded(self, size: int) -> EncodedBatch | None:
        """Return so many entries as bytes, without those that no bytes can tell; None where these were all."""
        pending, has_parts = self._pending, self._has_parts
        while size:
            batch = list(pending)[:size]  # other threads queue meanwhile
            self._has_parts = self.holder is not None or (has_parts and len(pending) > size)
            try:
                return encoded(batch, self._told, has_parts or self._has_parts)
            except UNENCODABLE as error:
                size -= self._take_out_refused(batch, error)
        return None

    def _take_out_refused(self, batch: list[Any], error: Exception) -> int:
        """Take entries that cannot be sent out of the queue, and have their threads told; returns how many."""
        ran = [entry for entry in batch if type(entry) is Part and entry.replaced is not None]
        refused = list(refusals(batch))
        if any(entry.replaced is None for entry in ran):
            self.programs.forget()  # it may have noted what is not sent
        elif not refused:
            raise error
        for one in refused:
            self._tell_left_out(one.failure(self.sites.describe(getattr(one.instruction, "site", 0))))
        for one in reversed(refused):
            del self._pending[one.place]
        return len(refused)
