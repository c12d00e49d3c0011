"""The client's side of a session: requests, answers and failures, on top of what ``SendQueue`` sends.

Nothing waits but ``request``. Any thread may wait; one at a time reads for all that do. An interrupt may come between
any two steps: an answer leaves the transport after it was taken, so that it is not lost. Knows no operations.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import convert, structs

from telegrad._transport.chunked_data import Downloads
from telegrad._transport.transport import INHERITED
from telegrad_protocol import messages, wire
from telegrad_protocol.errors import CommunicationError, SessionLostError, TelegradError
from telegrad_protocol.failures import error_of, with_remedy
from telegrad_protocol.messages import Failure, Kept
from telegrad_protocol.meta import Device

from . import interrupts
from .catching import warned
from .parts.repeating import RepeatingQueue
from .sending import watching
from .sending.requests import Requests
from .sending.send_queue import FIRST_NUMBER
from .thread_modes import DEFAULT, has_ended, thread

if TYPE_CHECKING:
    from telegrad._transport.transport import Transport


class ClientSession(Requests, RepeatingQueue):
    """One session on a server: its queue of instructions, the requests that wait, and what has failed.

    ``default_device`` may be ``cuda`` without an index, the current GPU of whoever makes a tensor. ``places`` are it
    and all devices: they are part of the key of calls that make tensors.
    """

    def __init__(self, open_transport: Callable[[Callable[[], object]], Transport]) -> None:
        self._reading = threading.RLock()
        self._waiting: dict[int, threading.Event | None] = {}
        self._answers: dict[int, Any] = {}
        self._downloads = Downloads()
        self._failures: dict[int, Failure] = {}
        """Failures that have arrived and were not raised, by the number of the thread whose instruction failed."""
        self._raised: dict[int, int] = {}
        """The last failure that was raised, by the number of the thread."""
        self._lost: TelegradError | None = None
        self._is_lost_told = False
        self._confirmed = 0
        self.round_trips = 0
        self.was_left = self.ends_with_program = False
        self.stream_turns: dict[tuple[str, int], count[int]] = {}
        super().__init__(open_transport)
        hello = self.transport.hello
        self.kept = self._take_over() if hello.attachment > 1 else Kept([], {})
        """What the session kept for this client, with the numbers 1 and up; empty for a new session."""
        self.transport.go_direct(self._downloads.place_of)
        self.named: dict[str, Any] | None = None
        """What the session keeps, by name, as ``telegrad.kept`` shows it; None before it was looked at."""
        self._given_default = given = Device(hello.default_device)
        self.devices = [Device(name) for name in hello.devices]
        gpus = [device for device in (given, *self.devices) if device.type == "cuda"]
        self.first_gpu = gpus[0] if gpus else None
        """The current GPU of threads that have chosen none."""
        self.set_default_device(None)

    def set_default_device(self, device: Device | None) -> None:
        """Set where tensors are made if no device is named; None: where the server has it, a GPU if there is one."""
        if device is None:
            device = Device("cuda") if self._given_default.type == "cuda" else self._given_default
        self.default_device = device
        self.places = (device, *self.devices)

    def _take_over(self) -> Kept:
        """Wait for what the session keeps; what comes before it was for the client that had the session before."""
        while True:
            kind, body = self.transport.receive(None) or (wire.CHUNK, b"")
            for reply in wire.decode_replies(body) if kind == wire.BATCH else ():
                if isinstance(reply, messages.Answer) and reply.request == messages.ATTACHED:
                    kept = convert(reply.value, Kept)
                    self.new_id = count(max(FIRST_NUMBER, len(kept.tensors) + 1)).__next__
                    return kept
                if isinstance(reply, Failure) and reply.number == 0:
                    raise error_of(reply)

    def request(self, make: Callable[[int], Any]) -> Any:
        """Send a request and wait for its answer: one round trip."""
        if not self.is_open:
            self._require_open()
        number, answers, modes = self._new_request(), self._answers, thread.modes
        self._waiting[number] = None
        try:
            sent, began = self.operations + 1, time.monotonic()
            asked = make(number)
            paused = self._announce(asked)
            self._pending.append(asked if modes is DEFAULT else (modes, asked))
            self.operations += 1
            self.round_trips += 1
            with self._sending:
                self._send_pending()
                submitted = self.ahead.pace.submitted
            if not self.take_answer(self, number):
                self._await(number, partial(answers.__contains__, number))
            answer = answers[number]
            self.ahead.complete(submitted, began)
        except KeyboardInterrupt:
            interrupts.note_unhandled(self)
            raise
        finally:  # without a call or a loop: another interrupt comes only there
            del self._waiting[number]
            if number in self._answers:
                del self._answers[number]
            if number in self._downloads:
                del self._downloads[number]
        if isinstance(answer, Failure):
            self._raise(answer)
        if self._failures:
            self._raise_own_failure()
        self._confirmed = sent
        if paused is not None:
            paused.resume()
        if warned.arrived:
            warned.tell()
        return answer

    @staticmethod
    def take_answer(session: ClientSession, request: int) -> bool:
        """Wait for an answer a little, and return whether it is here. C does so where nothing is unusual (0117)."""
        return False

    def settle(self, seconds: float) -> bool:
        """Wait up to ``seconds`` until all that was queued has run, and tell whether it has; raises what failed.

        Nothing that the program asked for waits here, so this counts as no round trip.
        """
        self._require_open()
        number = self._new_request()
        self._waiting[number] = None
        sent, began = self.operations, time.monotonic()
        try:
            self._pending.append(self._under_modes(messages.Query(number, "synchronize", [""])))
            with self._sending:
                self._send_pending()
                submitted = self.ahead.pace.submitted
            answers = self._answers
            has_arrived = self._await(number, partial(answers.__contains__, number), time.monotonic() + seconds)
            answer = answers[number] if has_arrived else None
            if has_arrived:
                self.ahead.complete(submitted, began)
        finally:  # without a call, as in ``request``
            del self._waiting[number]
            if number in self._answers:
                del self._answers[number]
        if isinstance(answer, Failure):
            self._raise(answer)
        self._poll()
        if answer is not None:
            self._confirmed = sent
        return answer is not None

    @property
    def is_confirmed(self) -> bool:
        """Whether an answer has followed all that was queued."""
        return self._confirmed == self.operations

    def unraised(self) -> list[TelegradError]:
        """Return what is known to have failed and was not raised, of all threads."""
        lost = [self._lost] if self._lost is not None and not (self._is_lost_told or self.is_confirmed) else []
        return [*map(copy.copy, lost), *map(error_of, self._failures.values())]

    @property
    def is_idle(self) -> bool:
        """Whether no request waits and nothing is kept of an answer."""
        return not (self._waiting or self._answers or self._downloads)

    def _await_condition(self, holds: Callable[[], bool]) -> bool:
        number = self._new_request()  # of no request: whoever reads wakes all that wait
        self._waiting[number] = None
        try:
            self._await(number, lambda: holds() or self._own_failure() is not None)
        except KeyboardInterrupt:
            interrupts.note_unhandled(self)
            raise
        finally:  # without a call, as in ``request``
            del self._waiting[number]
            if number in self._answers:
                del self._answers[number]
        return self._own_failure() is None

    def _await(self, number: int, has_arrived: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until that has arrived, and return whether it has before ``deadline`` on the monotonic clock."""
        answered: threading.Event | None = None
        left: float | None = None
        while not has_arrived():
            if not self.is_open:
                self._require_open()
            if deadline is not None and (left := deadline - time.monotonic()) <= 0:
                return False
            if self._reading.acquire(blocking=False):
                try:
                    if not has_arrived():
                        self._receive(left)
                finally:
                    self._reading.release()
                    if len(self._waiting) > (number in self._waiting):
                        self._wake()
            elif answered is None:
                answered = self._waiting[number] = (
                    threading.Event()
                )  # and look again: the thread that was reading may have stopped
            else:
                answered.wait(left)
                answered.clear()
        return True

    def _wake(self) -> None:
        """Wake the threads that wait, so that one of them reads."""
        for answered in list(self._waiting.values()):
            if answered is not None:
                answered.set()

    def _poll(self) -> None:
        """Process what has arrived without waiting, and raise the failure that it reports, if any."""
        self.receive_arrived()
        self._require_open()
        if self._failures:
            self._raise_own_failure()
        if warned.arrived:
            warned.tell()

    def receive_arrived(self) -> None:
        """Process what has arrived, without waiting."""
        if self._reading.acquire(blocking=False):
            try:
                while self._receive(0):
                    pass
            finally:
                self._reading.release()
                if self._waiting:
                    self._wake()

    def _raise_own_failure(self) -> None:
        """Raise what has failed of this thread's work, or of that of a thread which has ended."""
        failure = self._own_failure()
        if failure is not None:
            self._raise(failure)

    def _own_failure(self) -> Failure | None:
        failures = self._failures
        own = failures.get(thread.modes.thread)
        return own or next((failure for number, failure in list(failures.items()) if has_ended(number)), None)

    def _receive(self, timeout: float | None) -> bool:
        """Process one frame; the caller holds ``_reading``. Processing it again after an interrupt changes nothing."""
        try:
            frame = self.transport.peek(timeout)
            if frame is None:
                return False
            kind, body = frame
            if kind == wire.BATCH:
                for reply in wire.decode_replies(body):
                    self._take(reply)
            else:
                request, download = self._downloads.take(kind, body)
                if download is not None and download.is_complete:
                    self._answer(request, download)
        except CommunicationError as error:
            self._end(error)
            return False
        self.transport.drop()
        return True

    def _take(self, reply: Any) -> None:
        kind = reply.__class__
        if kind is Failure:
            self._take_failure(reply)
        elif kind is messages.Data and reply.data is None and reply.nbytes:
            if reply.request in self._waiting:
                self._downloads.announce(reply)
        else:
            self._answer(reply.request, reply)

    def _answer(self, request: int, reply: Any) -> None:
        """Hand an answer to the thread that waits for it; one that was interrupted does not wait any more."""
        if request in self._waiting:
            self._answers[request] = reply
            answered = self._waiting.get(request)
            if answered is not None:
                answered.set()
        elif request == messages.WATCHED:
            watching.note(self, bool(reply.value))
        elif request == messages.WARNED:
            warned.arrived.append((self, *reply.value))
        else:
            self.ahead.take_report(request)

    def _take_failure(self, failure: Failure) -> None:
        if failure.number == 0:
            self._end(error_of(failure))
        elif failure.request is not None:
            self._answer(failure.request, failure)
        elif failure.number > self._raised.get(failure.thread, 0):
            refused = self._failures.get(failure.thread)
            if refused is not None and refused.number == messages.DROPPED:  # what it left out is why this failed
                failure = structs.replace(refused, number=failure.number)
            self._failures[failure.thread] = failure

    def _tell_left_out(self, failure: Failure) -> None:
        if failure.request is not None:
            self._answer(failure.request, failure)
        else:
            self._failures.setdefault(failure.thread, failure)

    def _raise(self, failure: Failure) -> None:
        """Raise a failure, once, and let the session go on."""
        number = failure.thread
        pending = self._failures.get(number)
        if failure.number == messages.DROPPED:
            if pending is failure:
                del self._failures[number]
            raise error_of(failure)
        if pending is not None and pending.number <= failure.number:
            self._failures.pop(number, None)
        self._raised[number] = max(self._raised.get(number, 0), failure.number)
        self._pending.append(messages.Resume(failure.number))
        self._has_new_line = True  # what was passed over has measured nothing
        self.programs.forget()  # a definition may have been what failed
        told = failure if pending is None or pending.number not in (messages.DROPPED, failure.number) else pending
        error = error_of(told)  # what was left out is the reason of what failed after it
        if number != thread.modes.thread:
            error.add_note("It failed in a thread that has ended.")
        raise error

    def _lose(self, error: TelegradError) -> None:
        """End the session after the transport failed; the server may have said why, in frames that have arrived."""
        with self._reading:
            while self._receive(0):
                pass
        self._end(error)

    def _end(self, error: TelegradError) -> None:
        self._lost = self._lost or with_remedy(error)
        self.is_open = False
        watching.note(self, False)
        self._is_urgent = True
        self._wake()

    def _require_open(self) -> None:
        if self.is_open:
            return
        if self.ends_with_program and threading.current_thread().daemon:
            raise SystemExit  # ends the thread without a word, as the end of the program does
        if self._lost is not None:
            self._is_lost_told = True
            raise copy.copy(self._lost) from None
        raise SessionLostError(
            "this session was ended by disconnect() or its block, and its tensors are gone; connect() opens another"
        )

    def abandon(self) -> None:
        """Give the session up in a forked process: it stays the other one's, and nothing is sent or waited for here.

        A thread that is not in this process may have held any of the locks, so they are replaced.
        """
        self._reading, self._sending = threading.RLock(), threading.RLock()
        self._waiting = {}
        self.free = _forget
        self._end(CommunicationError(INHERITED))

    def leave(self, why: TelegradError) -> None:
        """Use the session no more, without ending it; ``why`` is raised where it is used after all."""
        self._end(why)
        self.transport.leave()

    def flush_quietly(self) -> None:
        is_told = self._is_lost_told
        super().flush_quietly()
        self._is_lost_told = is_told  # nobody was told: the timer's thread ignores errors

    def close(self) -> None:
        """End the session; its tensors are gone."""
        self.is_open = False
        watching.note(self, False)
        self._is_urgent = True
        with contextlib.suppress(CommunicationError, OSError):
            self.transport.close()
        self._wake()


def _forget(id: int) -> None:
    """Stand for ``free`` in a forked process, whose handles of tensors are copies."""
