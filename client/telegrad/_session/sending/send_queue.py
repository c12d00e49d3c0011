"""The queue of a session's instructions. They are sent in batches, in one order whichever threads they come from.

Any thread may queue; one at a time sends. An interrupt may come between any two steps: what is queued leaves the queue
after the transport accepted it, so that it is neither lost nor sent twice. Knows no answers.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from telegrad._session import sync_debug
from telegrad._session.call_sites import CallSites
from telegrad._session.parts.draft import Draft
from telegrad._session.parts.mark import Part
from telegrad._session.parts.table import ProgramTable
from telegrad._session.thread_modes import DEFAULT, Modes, thread
from telegrad._transport.ahead import Ahead, max_ahead_seconds
from telegrad_protocol import messages
from telegrad_protocol.errors import CommunicationError, TelegradError
from telegrad_protocol.pytorch_variables import is_blocking

from .batch_ends import BatchEnds
from .refusing import UNENCODABLE, RefusingQueue, refusals

if TYPE_CHECKING:
    from telegrad._session.parts.mark import Holder
    from telegrad._transport.transport import Transport

BATCH_OPERATIONS: Final = 64
"""A batch is sent when it has so many instructions: few enough that the server need not wait for work."""
LONG_BATCH: Final = 128
"""So many make a batch of a program that has waited for nothing for long: to send a batch has its price."""
_LONG_RUN: Final = 4 * LONG_BATCH
"""A program that has queued so many instructions since it last waited does not notice when the last ones are sent."""
FIRST_NUMBER: Final = 1 << 16
"""Of tensors and requests: from here on numbers take as many bytes, so that batches that do the same are as long."""
_ALLOCATING: Final[frozenset[type]] = frozenset(
    (messages.Backward, messages.Gradient, messages.Upload, messages.BeginPass, messages.GiveGradients)
)
"""Instructions, beside calls, that allocate: tensors that died before them are freed first, so that memory is reused.

A call carries the numbers of the tensors that died before it.
"""


class SendQueue(RefusingQueue):
    """The sending part of a session. The receiving part, ``ClientSession``, implements the methods that raise here."""

    __slots__ = (  # what every call reads
        "__dict__", "__weakref__", "_dead", "_full_at", "_is_armed", "_is_urgent", "_pending", "free", "new_id",
        "operations", "sites",
    )  # fmt: skip
    holds_gradients = is_for_all_sizes = False
    """Whether gradients are objects of the program, which no number names, and calls are to hold for other sizes."""
    adopt: Callable[[Any], Any] | None = None
    """Gives new gradients the class that tensors of the session have, where that is not ``Tensor``."""

    def __init__(self, open_transport: Callable[[Callable[[], object]], Transport]) -> None:
        self._pending: deque[Any] = deque()
        self._pending_bytes = 0
        self._dead: deque[int] = deque()
        self.free: Callable[[int], None] = self._dead.append
        """Free a tensor with the next instruction. Finalizers call this, so it only appends the number to a list."""
        self._draft: Draft | None = None
        self._uploading: messages.Upload | None = None
        self._told = DEFAULT
        self._is_armed = self._has_parts = self._waits_for_room = self._has_new_line = False
        self._is_due = False  # whether a batch was full while its last part was held back, after which it is sent
        self.programs = ProgramTable()
        self.holder: Holder | None = None
        """What keeps instructions from being sent before their part of the program is complete."""
        self._sending = threading.RLock()
        self.new_id = count(FIRST_NUMBER).__next__
        self.operations = self._waited = 0
        """How many instructions were queued, and how many of them before the program last waited for an answer."""
        self._full_at = BATCH_OPERATIONS
        self._ends = BatchEnds()
        self._new_interrupt, self._new_request = count(1).__next__, count(FIRST_NUMBER).__next__
        self.is_open = True
        self.kernels: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
        """What devices have loaded, by device, for objects of the program that stand for code: see ``_kernels``."""
        self.sites = CallSites(self._introduce)
        self.blocking = self._is_urgent = is_blocking()
        self.ahead = Ahead(max_ahead_seconds())
        self.transport = open_transport(self.flush_quietly)
        if self.transport.executes_at_once:
            self.ahead = Ahead(math.inf)
        self._full_at = self.ahead.room(BATCH_OPERATIONS)

    def synchronize(self, device: str = "") -> None:
        """Wait until everything submitted so far has run; raises what failed."""
        raise NotImplementedError

    def _poll(self) -> None:
        """Take what has arrived, and raise a failure that has."""
        raise NotImplementedError

    def _lose(self, error: TelegradError) -> None:
        """End the session, since the transport cannot reach the server any more."""
        raise NotImplementedError

    def _require_open(self) -> None:
        """Raise why the session has ended, if it has."""
        raise NotImplementedError

    def _await_condition(self, holds: Callable[[], bool]) -> bool:
        """Wait until what arrives makes ``holds`` true, or something has failed; returns False where it has."""
        raise NotImplementedError

    def call(self, op: int, site: int, outs: tuple[int, ...], args: list[Any], modes: Modes) -> None:
        """Queue a call. Tensors that died before are freed before it runs, so that memory is reused as in PyTorch."""
        self.queue(messages.Call(op, site, outs, args, self.take_dead() if self._dead else ()), modes)

    def submit(self, instruction: Any, modes: Modes = DEFAULT) -> None:
        """Queue an instruction that runs under ``modes``; sends the batch when it is full."""
        if self._dead and type(instruction) in _ALLOCATING:
            self._pending.append(self._frees())
        self.queue(instruction, modes)

    def queue(self, instruction: Any, modes: Modes) -> None:
        """Queue an instruction that allocates nothing, or that carries the numbers of dead tensors itself."""
        self._pending.append(instruction if modes is DEFAULT else (modes, instruction))
        if not self._is_armed:
            self._is_armed = True
            self.transport.arm()
        self.operations = count = self.operations + 1
        if count >= self._full_at or self._is_urgent:
            self._send_full()

    def _under_modes(self, instruction: Any) -> Any:
        """Return an instruction as it is queued: with this thread's modes, where they are not the default ones."""
        modes = thread.modes
        return instruction if modes is DEFAULT else (modes, instruction)

    def _frees(self) -> messages.Free:
        return messages.Free(self.take_dead())

    def take_dead(self) -> list[int]:
        """Return the numbers of tensors that died and were not freed yet; the caller frees them."""
        dead = self._dead
        ids: list[int] = []
        try:
            while dead:
                ids.append(dead.popleft())
        except IndexError:  # another thread emptied it
            pass
        return ids

    def send_within(self, operations: int) -> None:
        """Send the batch after so many further instructions, or as many as were sent and may be yet to be done."""
        pace = self.ahead.pace
        full_at = self.operations + max(operations, pace.submitted - pace.completed)
        if full_at < self._full_at:
            self._full_at = full_at

    def _announce(self, asked: Any) -> Holder | None:
        """Tell of a request before it is queued; returns what has ended a part for it, and is to resume."""
        self._waited = self.operations
        if self._dead:
            self._pending.append(self._frees())  # they are freed before the request, which may be about memory
        if sync_debug.mode and not self.blocking:
            sync_debug.tell(asked)
        return self.holder.pause(asked) if self.holder is not None else None

    def begin_part(self, part: Part, holder: Holder) -> None:
        """Mark the beginning of a part: what follows in the queue, and is held back from here on."""
        if self._dead:
            self._pending.append(self._frees())  # what died before is no part of what the program does again
        with self._sending:  # who sends in between would find the mark, and not know that there are any
            self._has_parts = True
            self._pending.append(part)
            self.holder = holder

    def end_part(self, part: Part, replace: Callable[[list[Any], int], list[Any] | None]) -> None:
        """Replace what was queued since the part began by ``replace(instructions, first)``, unless it was sent.

        Nothing is held back any more.
        """
        if self._dead:
            self._pending.append(self._frees())
        with self._sending:
            self.holder = None
            queued = list(self._pending)
            place = len(queued) - 1
            while place >= 0 and queued[place] is not part:
                place -= 1
            if place < 0:
                return
            queued = queued[place + 1 :]
            try:
                instructions = replace(queued, part.first)
                if instructions is not None:
                    part.replaced = len(queued), instructions  # at once: an interrupt finds it done, or not
            except BaseException as error:
                if part.replaced is None:  # the table may have noted a run that is not sent
                    self.programs.forget()
                if not isinstance(error, UNENCODABLE) or not any(refusals(queued)):
                    raise  # else the instruction at fault is refused where all are sent one by one

    def release(self, sends: bool) -> None:
        """Go on after a part has ended: send what is queued if that ``sends`` and there is enough, or soon."""
        if sends and (self._is_due or self.operations >= self._full_at):
            self._send_full()
        else:
            self._send_soon()

    def _send_soon(self) -> None:
        """Have the timer send what is queued, if anything is."""
        if self._pending and not self._is_armed:
            self._is_armed = True
            self.transport.arm()

    def _send_full(self) -> None:
        if self.blocking:
            self.synchronize()
            return
        if self.holder is not None and self.holder.holds():
            self._is_due = True
            self._full_at = self.operations + BATCH_OPERATIONS
            return
        self._require_open()
        with self._sending:
            if self._waits_for_more():
                return
            self._send_pending(size=self._size_of_full())
        self._poll()
        if self.ahead.is_full():
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        """Wait until the server has come far enough for the program to go on. What is queued is not sent meanwhile."""
        ahead = self.ahead
        self._waits_for_room = True
        try:
            while ahead.is_full():
                if not ahead.is_reported:
                    with self._sending:
                        self._ask_for_report(ahead.pace.submitted, 0)
                        self._send_pending(size=1)
                if not self._await_condition(lambda: not (ahead.is_reported and ahead.is_full())):
                    break
        finally:
            self._waits_for_room = False
        self._full_at = self.operations + max(ahead.room(BATCH_OPERATIONS) - len(self._pending), 1)
        self._send_soon()

    def note_interrupt(self) -> int:
        """Note where an interrupt came, and return its number; signal handlers call this, so it only appends."""
        number = self._new_interrupt()
        self._pending.append(messages.Interrupt(number))
        self._has_new_line = True
        return number

    def announce_interrupt(self, number: int) -> None:
        """Tell the server of an interrupt, past what is queued; then send what is queued."""
        self.transport.interrupt(number)
        self.flush_quietly()

    def _introduce(self, site: messages.Site) -> None:
        """Queue a line of the program that is new; it may do what takes longer than anything before."""
        self._pending.append(site)
        self._has_new_line = True
        self._full_at = min(self._full_at, self.operations + self.ahead.first_portion)

    def _ask_for_report(self, submitted: int, place: int) -> None:
        """Queue a question at a place, which is answered when all before it is completed. Nobody waits for it."""
        report = self._new_request()
        query = messages.Query(report, "synchronize", [""])
        # Under the modes of what stands before it, or was sent last, so that asking changes none.
        last = self._pending[place - 1] if place else (self._told, None)
        modes = last[0] if type(last) is tuple else DEFAULT
        self._pending.insert(place, query if modes is DEFAULT else (modes, query))
        self.ahead.expect(report, submitted)

    def flush(self) -> None:
        """Send what is queued."""
        self._require_open()
        with self._sending:
            self._send_pending()

    def _send_pending(self, uploading: messages.Upload | None = None, size: int = 0) -> None:
        """Send a batch of so many instructions, or of all that are queued; the caller holds ``_sending``."""
        if not size and uploading is None and self.send_queued(self):
            return
        if self._draft is not None:
            self._recover(self._draft)
        self._is_armed = self._is_due = False
        pending, ahead, transport = self._pending, self.ahead, self.transport
        self._full_at = self.operations + BATCH_OPERATIONS  # in case that an interrupt comes
        if self._uploading is not uploading:
            self._end_cut_upload()
        if not size:
            if self._dead:
                pending.append(self._frees())
            size = len(pending)
            self._ends.note_sent(size)
        if not pending:
            self._full_at = self.operations + ahead.room(self._batch_size())
            return
        ahead.begin_batch(transport.handshake_seconds)
        submitted = ahead.pace.submitted + size
        if self._has_new_line:
            self._has_new_line = False
            ahead.forget(submitted)
        if ahead.wants_report(submitted):
            self._ask_for_report(submitted, size)
            size += 1
        try:
            batch = self._encoded(size)
            if batch is None:
                self._full_at = self.operations + ahead.room(self._batch_size())
                return
            self._draft = Draft(batch.end, transport.accepted, batch.told, ahead.pace.submitted + batch.instructions)
        except BaseException:  # an interrupt: what is queued stays so
            self._has_parts = True
            raise
        try:
            transport.send_batch(batch.body)
        except CommunicationError as error:
            self._lose(error)
            self._require_open()
        self._forget_sent(self._draft)
        if pending:
            self._send_soon()

    def _waits_for_more(self) -> bool:
        """Return whether the rest of a turn of the program's outer loop is to come, and to be sent with what is queued.

        The timer begins anew: the program goes on.
        """
        left = self._ends.left_of_turn(len(self._pending), self.operations - self._waited)
        if not left or not self._may_choose(left):
            return False
        self._full_at = self.operations + min(left, BATCH_OPERATIONS)
        self.transport.arm()
        return True

    def _batch_size(self) -> int:
        """Return how many instructions make a batch full."""
        return BATCH_OPERATIONS if self.operations - self._waited < _LONG_RUN else LONG_BATCH

    def _may_choose(self, room: int) -> bool:
        """Return whether a batch may end where it is best: if nothing else decides, and there is so much room."""
        return not self._has_parts and self._draft is None and self.ahead.room(room) >= room

    def _size_of_full(self) -> int:
        """Return how many of the instructions that are queued make the next batch; 0 for all of them."""
        if not self._may_choose(BATCH_OPERATIONS):
            return 0
        queued = list(self._pending)
        size = self._ends.count(queued)
        return size if size < len(queued) else 0

    def _end_cut_upload(self) -> None:
        """End an upload that an interrupt cut short between two chunks: free its tensor; no chunks follow."""
        cut = self._uploading
        if cut is not None:
            queued = [item for item in list(self._pending) if item is cut or (type(item) is tuple and item[1] is cut)]
            for item in queued:  # there is none if the upload was sent
                self._pending.remove(item)
            self._pending.appendleft(messages.Free([cut.id]))
            self._uploading = None

    def _recover(self, draft: Draft) -> None:
        """Recover from an interrupt during a send: remove the batch from the queue if the transport had accepted it."""
        if self.transport.accepted == draft.accepted:
            self._has_parts = True
        elif any(item is draft.end for item in list(self._pending)):
            self._forget_sent(draft)
        self._draft = None

    def _forget_sent(self, draft: Draft) -> None:
        self._told = draft.told
        self._pending_bytes = 0
        self.ahead.submit(draft.submitted)
        pending, end = self._pending, draft.end
        while pending.popleft() is not end:
            pass
        self._full_at = self.operations + max(self.ahead.room(self._batch_size()) - len(pending), 1)
        self._draft = None

    def flush_quietly(self) -> None:
        """Send what is queued, for the timer's thread: the user's next call raises what goes wrong.

        What follows is sent where it would have been without this, so that the batches of a loop stay alike.
        """
        self._is_armed = False
        with self._sending, contextlib.suppress(CommunicationError):
            if self.is_open and self.holder is None and not self._waits_for_room:
                end = self._full_at
                self._ends.note_early(len(self._pending))
                self.flush()
                self._full_at = min(end, self._full_at) if end > self.operations else self._full_at
