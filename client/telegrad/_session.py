"""The client's side of a session: numbers for tensors, batches of instructions, answers, and failures.

Everything that changes state goes through ``submit`` in one order. Nothing waits but ``request``. Knows no operations.

Any thread may submit, send and wait. One at a time sends, and one at a time reads for all that wait. An interrupt may
come between any two steps: what is queued leaves the queue after it was sent, and an answer the transport after it was
taken, so that neither is lost nor done twice.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from telegrad_protocol import messages, wire
from telegrad_protocol.dtypes import ALL, DType
from telegrad_protocol.errors import CommunicationError, SessionLostError, TelegradError, revive
from telegrad_protocol.messages import CHUNK_BYTES, INLINE_BYTES, Failure
from telegrad_protocol.meta import Device, Meta

from ._downloads import Download
from ._modes import DEFAULT, Modes
from ._sites import Sites

if TYPE_CHECKING:
    from ._transport import Transport

BATCH_OPERATIONS: Final = 64
BATCH_BYTES: Final = 1 << 15
_MODAL: Final = frozenset((messages.Call, messages.Backward, messages.Gradient))
"""What a thread's modes make a difference to."""


class _Draft(NamedTuple):
    """A batch on its way out: its last instruction, what had been sent before it, the modes that it ends in."""

    end: object
    accepted: int
    told: Modes


class Session:
    """One conversation with a server."""

    def __init__(self, open_transport: Callable[[Callable[[], object]], Transport]) -> None:
        self._pending: deque[Any] = deque()
        self._pending_bytes = 0
        self._dead: deque[int] = deque()
        self._draft: _Draft | None = None
        self._uploading: messages.Upload | None = None
        self._told = DEFAULT
        self._is_mixed = self._is_armed = False
        self._sending = threading.RLock()
        self._reading = threading.RLock()
        self._waiting: dict[int, threading.Event | None] = {}
        self._answers: dict[int, Any] = {}
        self._downloads: dict[int, Download] = {}
        self._failure: Failure | None = None
        self._raised = 0
        self._lost: TelegradError | None = None
        self.new_id = count(1).__next__
        self._new_request = count(1).__next__
        self.round_trips = self.operations = 0
        self.is_open = True
        self.was_left = False
        self.sites = Sites(self._pending.append)
        self.blocking = os.environ.get("TELEGRAD_LAUNCH_BLOCKING", "0") not in ("", "0")
        self._is_urgent = self.blocking
        self.transport = open_transport(self.flush_quietly)
        hello = self.transport.hello
        self.default_device = Device(hello.default_device)
        self.devices = [Device(name) for name in hello.devices]
        self.places = (self.default_device, *self.devices)

    # -- submitting -----------------------------------------------------------------------------------------------

    def submit(self, instruction: Any, modes: Modes = DEFAULT) -> None:
        """Queue an instruction that runs under ``modes``; sends the batch when it is full."""
        pending = self._pending
        if modes is DEFAULT:
            pending.append(instruction)
        else:
            self._is_mixed = True
            pending.append((modes, instruction))
        if self._dead:
            pending.append(self._frees())
        if not self._is_armed:
            self._is_armed = True
            self.transport.arm()
        self.operations = count = self.operations + 1
        if not count % BATCH_OPERATIONS or self._is_urgent:
            self._send_full()

    def _frees(self) -> messages.Free:
        """What died since the last instruction; freed in its place, so that memory is reused as PyTorch would."""
        dead = self._dead
        ids = []
        with contextlib.suppress(IndexError):  # another thread takes from it too
            while dead:
                ids.append(dead.popleft())
        return messages.Free(ids)

    def _send_full(self) -> None:
        if self.blocking:
            self.synchronize()
            return
        self.flush()
        self._poll()

    def free(self, id: int) -> None:
        """Forget a tensor; called by its finalizer, so it only notes the number."""
        self._dead.append(id)

    def flush(self) -> None:
        """Send what is queued."""
        self._require_open()
        with self._sending:
            self._send_pending()

    def _send_pending(self, uploading: messages.Upload | None = None) -> None:
        """Send a batch; the caller holds ``_sending``."""
        if self._draft is not None:
            self._settle(self._draft)
        self._is_armed = False
        pending = self._pending
        if self._uploading is not uploading:
            self._end_cut_upload()
        if self._dead:
            pending.append(self._frees())
        if not pending:
            return
        end = pending[-1]
        batch = list(pending)
        while batch[-1] is not end:  # other threads queue meanwhile
            batch.pop()
        told = self._told
        if self._is_mixed or told is not DEFAULT:
            self._is_mixed = False
            batch, told = _with_modes(batch, told)
        body = wire.encode_batch(batch)
        self._draft = _Draft(end, self.transport.accepted, told)
        try:
            self.transport.send_batch(body)
        except CommunicationError as error:
            self._lose(error)
            self._require_open()
        self._forget_sent(self._draft)

    def _end_cut_upload(self) -> None:
        """Tell the server that no more chunks follow, since an interrupt came between them."""
        cut = self._uploading
        if cut is not None:
            with contextlib.suppress(ValueError):  # it was sent
                self._pending.remove(cut)
            self._pending.appendleft(messages.Free([cut.id]))
            self._uploading = None

    def _settle(self, draft: _Draft) -> None:
        """Finish what an interrupt cut short: what went out leaves the queue, what did not stays in it."""
        if self.transport.accepted == draft.accepted:
            self._is_mixed = True
        elif any(item is draft.end for item in list(self._pending)):
            self._forget_sent(draft)
        self._draft = None

    def _forget_sent(self, draft: _Draft) -> None:
        self._told = draft.told
        self._pending_bytes = 0
        pending, end = self._pending, draft.end
        while pending.popleft() is not end:
            pass
        self._draft = None

    def flush_quietly(self) -> None:
        """Send what is queued, from the timer's thread: errors are left for the user's next call."""
        self._is_armed = False
        if self.is_open:
            with contextlib.suppress(CommunicationError):
                self.flush()

    def upload(self, meta: Meta, data: memoryview, site: int) -> int:
        """Make a tensor of row-major bytes."""
        id = self.new_id()
        shape, device = meta.shape, meta.device.name
        if len(data) <= INLINE_BYTES:
            self.submit(messages.Upload(id, site, meta.dtype.code, shape, device, bytes(data)))
            self._pending_bytes += len(data)
            if self._pending_bytes > BATCH_BYTES:
                self.flush()
            return id
        try:
            with self._sending:
                self._send_in_chunks(messages.Upload(id, site, meta.dtype.code, shape, device), data)
            self._poll()
        except BaseException:
            self.free(id)
            raise
        return id

    def _send_in_chunks(self, upload: messages.Upload, data: memoryview) -> None:
        self.flush()
        self._uploading = upload
        self._pending.append(upload)
        self.operations += 1
        self._send_pending(upload)
        try:
            for start in range(0, len(data), CHUNK_BYTES):
                self.transport.send_chunk(upload.id, start, data[start : start + CHUNK_BYTES])
        except CommunicationError as error:
            self._lose(error)
            self._require_open()
        self._uploading = None

    # -- waiting --------------------------------------------------------------------------------------------------

    def request(self, make: Callable[[int], Any]) -> Any:
        """Send a request and wait for its answer: one round trip."""
        self._require_open()
        number = self._new_request()
        self._waiting[number] = None
        try:
            if self._dead:
                self._pending.append(self._frees())  # before the request, which may be about memory
            self._pending.append(make(number))
            self.operations += 1
            self.round_trips += 1
            with self._sending:
                self._send_pending()
            answer = self._await(number)
        finally:
            del self._waiting[number]
            self._answers.pop(number, None)
            self._downloads.pop(number, None)
        if isinstance(answer, Failure):
            self._raise(answer)
        return answer

    def _await(self, number: int) -> Any:
        answers = self._answers
        answered: threading.Event | None = None
        while number not in answers:
            self._require_open()
            if self._reading.acquire(blocking=False):
                try:
                    if number not in answers:
                        self._receive(None)
                finally:
                    self._stop_reading(number)
            elif answered is None:
                answered = self._waiting[number] = threading.Event()  # and look again: the reader may be gone
            else:
                answered.wait()
                answered.clear()
        return answers[number]

    def _stop_reading(self, number: int | None = None) -> None:
        """Leave reading to another thread, if there is one that waits."""
        self._reading.release()
        if len(self._waiting) > (number in self._waiting):
            self._wake()

    def _wake(self) -> None:
        for answered in list(self._waiting.values()):
            if answered is not None:
                answered.set()

    def read(self, id: int) -> tuple[DType, tuple[int, ...], memoryview]:
        """The elements of a tensor, row-major: dtype, shape, bytes."""
        answer = self.request(lambda number: messages.Read(number, id))
        if isinstance(answer, Download):
            data = answer.message
            return ALL[data.dtype], data.shape, memoryview(answer.buffer)
        return ALL[answer.dtype], answer.shape, memoryview(answer.data or b"")

    def describe(self, ids: tuple[int, ...], device: Device) -> list[tuple[Meta, bool]]:
        """Metas of tensors whose shape only the data could tell, and whether they require grad."""
        answer = self.request(lambda number: messages.Describe(number, ids))
        return [
            (Meta.of(shape, ALL[dtype], device, strides, offset), grad)
            for shape, strides, offset, dtype, grad in answer.metas
        ]

    def query(self, what: str, *args: Any) -> Any:
        """Ask something in order with the operations."""
        return self.request(lambda number: messages.Query(number, what, list(args))).value

    def synchronize(self, device: str = "") -> None:
        """Wait until everything submitted so far has run; raises what failed."""
        self.query("synchronize", device)

    # -- receiving ------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Take what has arrived, and raise a failure that has."""
        if self._reading.acquire(blocking=False):
            try:
                while self._receive(0):
                    pass
            finally:
                self._stop_reading()
        self._require_open()
        failure = self._failure
        if failure is not None:
            self._raise(failure)

    def _receive(self, timeout: float | None) -> bool:
        """Take one frame; the caller holds ``_reading``. Taking it again after an interrupt changes nothing."""
        try:
            frame = self.transport.peek(timeout)
            if frame is None:
                return False
            kind, body = frame
            if kind == wire.CHUNK:
                self._take_chunk(body)
            else:
                for reply in wire.decode_replies(body):
                    self._take(reply)
        except CommunicationError as error:
            self._end(error)
            return False
        self.transport.drop()
        return True

    def _take(self, reply: Any) -> None:
        if isinstance(reply, Failure):
            self._take_failure(reply)
        elif isinstance(reply, messages.Data) and reply.data is None and reply.nbytes:
            if reply.request in self._waiting:
                self._downloads[reply.request] = Download(reply)
        else:
            self._answer(reply.request, reply)

    def _answer(self, request: int, reply: Any) -> None:
        """Hand an answer to who waits for it; whoever was interrupted does not."""
        if request in self._waiting:
            self._answers[request] = reply
            answered = self._waiting.get(request)
            if answered is not None:
                answered.set()

    def _take_failure(self, failure: Failure) -> None:
        if failure.number == 0:
            self._end(_error_of(failure))
        elif failure.request is not None:
            self._answer(failure.request, failure)
        elif failure.number > self._raised:
            self._failure = failure

    def _take_chunk(self, body: memoryview) -> None:
        request, offset, data = wire.split_chunk(body)
        download = self._downloads.get(request)
        if download is None:
            return  # who wanted it was interrupted
        download.write(offset, data)
        if download.is_complete:
            self._answer(request, download)

    def _raise(self, failure: Failure) -> None:
        """Raise a failure, once, and let the session go on."""
        if self._failure is not None and self._failure.number <= failure.number:
            self._failure = None
        self._raised = max(self._raised, failure.number)
        self._pending.append(messages.Resume(failure.number))
        raise _error_of(failure)

    # -- ending ---------------------------------------------------------------------------------------------------

    def _lose(self, error: TelegradError) -> None:
        """The transport gave up; the server may have said why before."""
        with self._reading:
            while self._receive(0):
                pass
        self._end(error)

    def _end(self, error: TelegradError) -> None:
        self._lost = self._lost or error
        self.is_open = False
        self._is_urgent = True
        self._wake()

    def _require_open(self) -> None:
        if self._lost is not None:
            raise copy.copy(self._lost)
        if not self.is_open:
            raise SessionLostError("this session was closed; connect() again")

    def close(self) -> None:
        """End the session; its tensors are gone."""
        self.is_open = False
        self._is_urgent = True
        with contextlib.suppress(CommunicationError, OSError):
            self.transport.close()
        self._wake()


def _with_modes(queued: list[Any], told: Modes) -> tuple[list[Any], Modes]:
    """The instructions, with the changes of mode between them; and the modes at the end."""
    batch: list[Any] = []
    for item in queued:
        modes, instruction = item if isinstance(item, tuple) else (DEFAULT, item)
        if modes is not told and type(instruction) in _MODAL:
            batch.extend(modes.changes_from(told))
            told = modes
        batch.append(instruction)
    return batch, told


def _error_of(failure: Failure) -> TelegradError:
    return revive(failure.code, failure.message, failure.operation, failure.operands, failure.site, failure.traceback)
