"""One session in the worker: its socket, what waits to be executed, and what waits to be sent. Knows no other session.

A turn executes a bounded number of instructions, which take a bounded time as far as the last turn tells. Neither
direction holds more than its limit: beyond it the socket is not read, or nothing is executed.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Final, Protocol

from server.disclosure import defect, traceback_for
from server.ipc import channel
from server.ipc.channel import TRAFFIC_COUNTS, Frame, FrameReader, FrameWriter
from server.ipc.heartbeat import BEGIN, SESSION, Heartbeat
from server.ipc.measures import SlowTurn, TenantLoad
from telegrad_protocol import wire
from telegrad_protocol.errors import InternalError, LimitExceededError, ProtocolError, TelegradError
from telegrad_protocol.link import WINDOW_BYTES
from telegrad_protocol.messages import Failure

from .direct_channel import DirectChannel
from .measures import COUNTED_TOGETHER, Measures
from .shares import Share

INSTRUCTIONS_PER_TURN: Final = 64
TURN_SECONDS: Final = 0.01
"""Where instructions take long, a turn has fewer of them, so that it takes about as long as this or executes one."""
CHUNK_COST: Final = 16
"""A chunk counts as this many instructions: about the time of copying 1 MiB."""
INBOX_BYTES: Final = 4 << 20
"""Beyond this a session's socket is not read, so that the gateway, and in turn the client, has to wait."""
DIRECT_INBOX_BYTES: Final = 2 * WINDOW_BYTES
"""Beyond this the socket of a direct channel is not read: its client has ignored the window of its link."""
TRAFFIC_SECONDS: Final = 0.25
"""While a session works over a direct channel, the gateway is told this often of what goes over it."""
LINGER_SECONDS: Final = 100e-6
"""A turn that has nothing else to do looks for so long whether a device has what is to be replied: that of a small read
comes sooner than the loop could look again."""
OUTBOX_BYTES: Final = 16 << 20
"""Beyond this a session does not execute until the gateway has taken some of its replies."""
LEAST_BYTES: Final = 256 << 10
"""What a session may hold in either direction, however many its tenant has."""

IDLE: Final = 0
WAITING: Final = 1
BUSY: Final = 2
"""What a session needs of the loop: a turn once its socket is ready; a turn soon, to look at a device; a turn now."""


class Session(Protocol):
    """What a connection wants of a session; ``server.session.session`` says what each of these means."""

    @property
    def has_work(self) -> bool: ...
    @property
    def blocked(self) -> bool: ...
    @property
    def waits(self) -> bool: ...
    @property
    def is_ahead(self) -> bool: ...
    @property
    def shows_memory(self) -> bool: ...
    @property
    def queued(self) -> int: ...
    @property
    def ahead(self) -> int: ...
    @property
    def has_kernels(self) -> bool: ...

    expects_more: bool
    send: Callable[[], None]
    on_failure: Callable[[Failure], None]

    def receive(self, kind: int, body: memoryview) -> None: ...
    def run(self, budget: int) -> int: ...
    def pause(self) -> None: ...
    def unpause(self) -> None: ...
    def suspend(self) -> Any: ...
    def resume(self, suspended: Any) -> None: ...
    def poll(self) -> None: ...
    def linger(self, seconds: float) -> None: ...
    def take_replies(self) -> list[tuple[int, list[channel.Buffer]]]: ...
    def frames_left(self) -> None: ...
    def close(self) -> None: ...
    def take_device_seconds(self) -> float: ...
    def describe_instruction(self) -> tuple[str, str]: ...
    def describe_last_run(self) -> tuple[str, str]: ...


class SessionConnection:
    """One session and its socket. The loop reads ``activity`` and ``interest``, which every turn sets anew.

    Frames come from the gateway, over ``gateway``, until the client opens a direct channel; then they come over its
    socket, and from the gateway comes only what changes the session's client, which ends the direct channel.
    """

    def __init__(
        self, number: int, session: Session, sock: socket.socket, heartbeat: Heartbeat, measures: Measures,
        tenant: str, tenant_share: Share,
    ) -> None:  # fmt: skip
        self.number, self.session, self.socket, self.gateway = number, session, sock, sock
        self.fd = sock.fileno()
        """Of the socket that frames of the client come over; -1 while a direct channel has none."""
        self.writer: FrameWriter | DirectChannel = FrameWriter(sock)
        self.direct: DirectChannel | None = None
        self.ended = False
        self.readable = False
        """Whether the loop has found bytes in the socket."""
        self.gateway_is_readable = False
        """Whether it has found bytes from the gateway beside a direct channel."""
        self.activity = IDLE
        self.interest = EVENT_READ
        """Which of the socket's events to wait for."""
        self._budget = INSTRUCTIONS_PER_TURN
        self._is_paused = False
        self.tenant, self.tenant_share, self.share = tenant, tenant_share, Share()
        self.is_granted = True
        """Whether it may have a turn in this round."""
        self.is_alone = False
        """Whether the worker has no other session."""
        self._heartbeat = heartbeat
        self._numbers = heartbeat.numbers
        self._notes_wait = False
        """Whether it is noted that the session waits for a device."""
        self._has_replied = False
        """Whether a device has delivered something since that was noted."""
        self._measures = measures
        self._turns, self._queued, self._round_trips = (
            histogram.times for histogram in (measures.turn, measures.queue, measures.round_trip)
        )
        self._received = 0.0
        """When the gateway received the last frame that was taken from the inbox, as ``perf_counter`` tells it; 0 where
        that is not known, or where a reply was sent since."""
        self._most_waiting, self._most_pending = INBOX_BYTES, OUTBOX_BYTES
        session.send = self._send_now
        session.on_failure = self._failed
        self._reader: FrameReader | DirectChannel = FrameReader(sock)
        self._gateway_reader, self._gateway_writer = self._reader, self.writer
        self._executing = 0
        """How many frames of its direct channel were given to the session, which is the number of the last one."""
        self._told_traffic = 0.0
        self._inbox: deque[Frame] = deque()
        self._inbox_bytes = 0

    def turn(self) -> None:
        """Read what the socket has, execute a bounded number of instructions, and write the replies."""
        session, writer, inbox, numbers = self.session, self.writer, self._inbox, self._numbers
        begin = numbers[BEGIN] = time.perf_counter()
        numbers[SESSION] = self.number
        if self.gateway_is_readable:
            self._read_gateway()
            writer = self.writer
        if self.readable:
            self.readable = False
            for frame in self._reader.read():
                inbox.append(frame)
                self._inbox_bytes += len(frame.body)
        if session.waits and (session.is_ahead or not session.has_work) and not self.ended:
            session.poll()
            self._collect()
        budget = self._budget
        while budget > 0 and not (self.ended or self._is_paused) and writer.pending <= self._most_pending:
            if session.shows_memory:
                if writer.pending:
                    break
                session.frames_left()
            if session.has_work:
                if session.is_ahead:
                    break
                session.expects_more = bool(inbox)
                budget -= session.run(budget) or 1
                for kind, parts in session.take_replies():
                    writer.put(kind, 0, parts)
                if time.perf_counter() - begin > TURN_SECONDS:
                    break
            elif inbox and not session.blocked:
                frame = inbox.popleft()
                self._inbox_bytes -= len(frame.body)
                self._executing += 1
                if frame.kind == wire.CHUNK:
                    budget -= CHUNK_COST
                if frame.number:
                    self._received = received = frame.number * 1e-9
                    self._queued.append(begin - received if begin > received else 0.0)
                session.receive(frame.kind, memoryview(frame.body))
            else:
                break
        if session.waits and budget < self._budget and self.is_alone and not (inbox or session.has_work):
            session.linger(LINGER_SECONDS)
            self._collect()
        answers = writer.pending
        if answers:
            writer.flush()
        if self.direct is not None:
            self._end_direct_turn(self.direct, begin)
        used = self._budget - budget
        if session.waits or self._notes_wait:
            self._note_wait(used > 0)
        now = time.perf_counter()
        if used:
            self._turns.append(now - begin)
        if answers and self._received:
            self._round_trips.append(now - self._received)
            self._received = 0.0
        if len(self._turns) + len(self._queued) > COUNTED_TOGETHER:
            self._measures.count()
        self._set_budget(used, now - begin)
        self._rate()
        numbers[SESSION] = 0.0

    def share_buffers(self, sessions: int) -> None:
        """Hold as much less in either direction as the session's tenant has sessions."""
        self._most_waiting = max(INBOX_BYTES // sessions, LEAST_BYTES)
        self._most_pending = max(OUTBOX_BYTES // sessions, LEAST_BYTES)

    def pause(self) -> None:
        """End the turn that is going on after its present instruction. A signal handler may call this."""
        self._is_paused = True
        self.session.pause()

    @property
    def is_paused(self) -> bool:
        """Whether turns execute nothing."""
        return self._is_paused

    def unpause(self) -> None:
        """Let turns execute again."""
        self._is_paused = False
        self.session.unpause()

    @property
    def load(self) -> TenantLoad:
        """What waits for this session."""
        session = self.session
        return TenantLoad(1, session.queued, self._inbox_bytes, self.writer.pending, session.ahead)

    def end(self, error: Exception) -> None:
        """Close the session; what is left is to tell its client why."""
        self.ended = True
        self._inbox.clear()
        self._inbox_bytes = 0
        failure = failure_of(error)
        self._measures.note_failure(self.number, failure, ends=True)
        self.session.close()
        self.writer.put(wire.BATCH, 0, [wire.encode_batch([failure])])
        self._gateway_writer.put(channel.CLOSE, 0, [])
        self.writer.flush()
        if self.direct is not None:
            self._gateway_writer.flush()
        self._rate()

    def limit_error(self, request: str = "") -> LimitExceededError:
        """Return what the session is told if its turn was cancelled, or the answer to a request."""
        operation, site = (request, "") if request else self.session.describe_instruction()
        error = LimitExceededError(
            f"{operation}: took longer than {self._heartbeat.limit:g} s, which is the limit "
            "(TELEGRAD_INSTRUCTION_SECONDS); the session has ended"
        )
        error.operation, error.site = operation, site
        return error

    def go_direct(self, sock: socket.socket, received: int, max_bytes: int) -> None:
        """Take frames over a socket of the client, which has the frames of its direct channel up to ``received``."""
        channel.prepare(sock)
        direct = self.direct
        if direct is None:
            if self.ended or self.writer.pending:
                raise ProtocolError("a direct channel is opened before anything is sent")
            direct, self._executing = DirectChannel(max_bytes), 0
        direct.open(sock, received)
        self.direct = self._reader = self.writer = direct
        self.socket, self.fd = sock, sock.fileno()
        self.readable = False

    def leave_direct(self) -> None:
        """End the direct channel: its client has the session no more, or the session ends."""
        if self.direct is not None:
            self._tell_traffic(self.direct)
            self.direct.close()
            self._reader, self.writer = self._gateway_reader, self._gateway_writer

    def close_retired(self, watch: Callable[[socket.socket, int, SessionConnection], None]) -> None:
        """Close the sockets that a direct channel uses no more; with ``watch`` the loop waits for them no longer."""
        direct = self.direct
        if direct is None:
            return
        retired, direct.retired = direct.retired, []
        if direct.socket is None:
            self.socket, self.fd = self.gateway, -1
        if self.writer is not direct:
            self.fd, self.direct = self.gateway.fileno(), None
        for sock in retired:
            watch(sock, 0, self)
            sock.close()

    def _read_gateway(self) -> None:
        """Take what the gateway sends beside a direct channel: that another client has the session."""
        self.gateway_is_readable = False
        frames = self._gateway_reader.read()
        if frames:
            self.leave_direct()
            self._inbox.extend(frames)
            self._inbox_bytes += sum(len(frame.body) for frame in frames)

    def _end_direct_turn(self, direct: DirectChannel, begin: float) -> None:
        """Acknowledge what was executed, and tell the gateway now and then that the session works."""
        session = self.session
        is_done = not (session.has_work or session.blocked)
        if direct.release(self._executing if is_done else self._executing - 1):
            direct.flush()
        if begin - self._told_traffic > TRAFFIC_SECONDS:
            self._told_traffic = begin
            self._tell_traffic(direct)

    def _tell_traffic(self, direct: DirectChannel) -> None:
        self._gateway_writer.put(channel.TRAFFIC, 0, [TRAFFIC_COUNTS.pack(*direct.take_traffic())])
        with contextlib.suppress(EOFError):  # the next turn finds that the gateway is gone
            self._gateway_writer.flush()

    def _note_wait(self, executed: bool) -> None:
        """Note whether the session waits for a device, and since when nothing has come of it."""
        self._notes_wait = self.session.waits
        if self._notes_wait:
            self._heartbeat.note_wait(self.number, executed or self._has_replied, self.session.has_kernels)
        else:
            self._heartbeat.end_wait(self.number)
        self._has_replied = False

    def _set_budget(self, used: int, seconds: float) -> None:
        """Give the next turn as many instructions as fit into its time, after one that used and took so much."""
        if seconds > TURN_SECONDS:
            self._budget = max(1, min(self._budget, int(used * TURN_SECONDS / seconds)))
            if seconds >= self._measures.slow_seconds:
                self._measures.note_slow(SlowTurn(self.number, time.time(), seconds, *self.session.describe_last_run()))
        elif self._budget < INSTRUCTIONS_PER_TURN and seconds < TURN_SECONDS / 2:
            self._budget = min(2 * self._budget, INSTRUCTIONS_PER_TURN)

    def _rate(self) -> None:
        """Set what the loop looks at, so that neither direction holds more than its limit."""
        session, pending, interest, is_owed = self.session, self.writer.pending, 0, False
        if pending:
            direct = self.direct
            is_direct = direct is not None and self.writer is direct
            interest = EVENT_WRITE if direct is None or not is_direct or direct.waits_for_socket else 0
            # A direct channel that waits for its client is read on, or acknowledgements would wait behind data.
            is_owed = direct is not None and direct.waits_for_client
        if self.ended:
            self.interest, self.activity = interest, IDLE
            return
        if self._inbox_bytes <= (DIRECT_INBOX_BYTES if is_owed else self._most_waiting):
            interest |= EVENT_READ
        self.interest = interest
        if pending <= self._most_pending and not (session.shows_memory and pending) and self._can_go_on():
            self.activity = BUSY
        else:
            self.activity = WAITING if session.waits else IDLE

    def _can_go_on(self) -> bool:
        session = self.session
        if session.is_ahead:
            return session.shows_memory
        return session.has_work or session.shows_memory or (bool(self._inbox) and not session.blocked)

    def _send_now(self) -> None:
        """Write what there is in the middle of a turn; the end of the turn shows if the other end is gone."""
        self._collect()
        with contextlib.suppress(EOFError):
            self.writer.flush()
        if self._received:
            self._round_trips.append(time.perf_counter() - self._received)
            self._received = 0.0

    def _failed(self, failure: Failure) -> None:
        self._measures.note_failure(self.number, failure)

    def _collect(self) -> None:
        for kind, parts in self.session.take_replies():
            self.writer.put(kind, 0, parts)
            self._has_replied = True


def is_defect(error: Exception) -> bool:
    """Whether an error shows a defect of the server, and not what a client has done."""
    return isinstance(error, InternalError) or not isinstance(error, TelegradError)


def failure_of(error: Exception) -> Failure:
    """Return the message that tells a client of an error which ends its session."""
    known = error if isinstance(error, TelegradError) else defect(error)
    site = getattr(error, "site", "")
    return Failure(
        0, None, known.code, known.message, known.operation, known.operands, site, traceback_for(error)
    )  # fmt: skip
