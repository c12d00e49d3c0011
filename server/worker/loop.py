"""The worker process: one thread, one loop over its sockets, nothing that blocks while there is work.

It reads frames from the gateway, lets sessions execute them in turn, a bounded number of instructions at a time, writes
their replies, and answers control requests between turns. A control request ends the turn that is going on, after its
present instruction: the socket that it comes over signals it. What is in a frame it leaves to sessions. A defect that
shows in one session ends this session and no other; the death of the gateway ends the process, and so does a device
that will never answer again: the gateway is told why, tells all sessions, and starts another process.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Final

import msgspec

from server.compilations import compilations
from server.ipc import channel
from server.ipc.channel import FrameReader, FrameWriter
from server.ipc.heartbeat import BEGIN, SESSION, Cancelled, Heartbeat
from server.ipc.measures import ChoiceCounts, CompilationCounts, TenantLoad, WorkerState
from server.library_choices import library_choices
from telegrad_protocol import wire
from telegrad_protocol.errors import CommunicationError, UnknownIdError, WorkerCrashedError

from .connection import BUSY, IDLE, SessionConnection, failure_of, is_defect
from .garbage import wait_and_collect
from .host_protocol import Host
from .measures import Measures, resident_bytes
from .rounds import Rounds, light_first
from .shares import SLICE_SECONDS, may_pass
from .slices import Slices
from .sockets import Event, Sockets

SPIN_SECONDS: Final = 0.001
POLL_SECONDS: Final = 50e-6
"""While replies wait for a device, look this often, after a millisecond of looking all the time."""
CRASH_SECONDS: Final = 1.0
"""How long a worker that gives up tries to tell the gateway why."""

log = logging.getLogger("server.worker.loop")


class Worker:
    """The loop."""

    def __init__(self, control: socket.socket, host: Host, heartbeat: Heartbeat, measures: Measures) -> None:
        self._host, self._heartbeat, self._measures = host, heartbeat, measures
        self._control = control
        self._reader, self._writer = FrameReader(control), FrameWriter(control)
        self._connections: dict[int, SessionConnection] = {}
        self._rounds = Rounds(measures.device.times)
        self._sockets = Sockets()
        self._watch = self._sockets.watch
        self._watch(control, EVENT_READ, None)
        self._own_requests: dict[str, Callable[[int, list[Any]], Any]] = {
            "open": self._open, "close": self._close, "measurements": self._measured, "go_direct": self._go_direct,
        }  # fmt: skip
        self._waiting_since = 0.0
        self._is_called = False
        """Whether a control request may have come since the sockets were last looked at."""
        self._slices = Slices(heartbeat, self._rounds, host.request_pause, self._has_trips, self._let_round_trips_pass)

    def run(self) -> None:
        """Serve until the gateway is gone; raises WorkerCrashedError where a device is beyond use."""
        self._have_requests_signalled()
        self._send(channel.HELLO, 0, self._host.hello())
        try:
            self._serve()
        except EOFError:
            log.info("the gateway is gone")
        except WorkerCrashedError as crash:
            self._report_crash(crash)
            raise
        self._close_all()

    def _serve(self) -> None:
        self._flush_control()
        activity = IDLE
        while True:
            if self._is_called:
                self._is_called = False
                for connection in self._connections.values():
                    connection.unpause()
            for waiting, fd, mask in self._wait(activity):
                if waiting is None:
                    self._serve_control(mask)
                else:
                    _wake(waiting, fd, mask)
            activity = self._run_sessions()
            if self._measures.has_notices and not self._writer.pending:
                self._send(channel.NOTICES, 0, self._measures.take_notices())
                self._flush_control()

    def _have_requests_signalled(self) -> None:
        """Let the control socket send a signal when something comes; without it requests wait for the turn's end."""
        if threading.current_thread() is not threading.main_thread():
            return  # as in tests: only the main thread handles signals
        signal.signal(signal.SIGIO, self._control_signalled)
        signal.siginterrupt(signal.SIGIO, False)
        self._slices.allow_timer()
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._control, fcntl.F_SETOWN, os.getpid())
            flags = fcntl.fcntl(self._control, fcntl.F_GETFL)
            fcntl.fcntl(self._control, fcntl.F_SETFL, flags | os.O_ASYNC)

    def _control_signalled(self, *_: object) -> None:
        self._is_called = True
        self._slices.pause()

    def _report_crash(self, crash: WorkerCrashedError) -> None:
        """Tell the gateway why; what the sessions hold is gone with the device, and they cannot be closed."""
        log.critical("the engine gives up: %s", crash.message, exc_info=crash)
        self._control.settimeout(CRASH_SECONDS)
        self._send(channel.CRASH, 0, crash.message)
        with contextlib.suppress(EOFError):
            self._writer.flush()

    def _wait(self, activity: int) -> list[Event]:
        """Return the sockets' events; wait for them only where no session is busy, and shortly where one waits."""
        if activity == BUSY:
            self._waiting_since = 0.0
            return self._sockets.wait(self._rounds.held_seconds)
        if activity == IDLE:
            return wait_and_collect(self._sockets.wait)
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        if now - self._waiting_since > SPIN_SECONDS:
            self._sockets.wait_shortly(POLL_SECONDS)
        return self._sockets.wait(0)

    def _run_sessions(self) -> int:
        """Give each session that needs one a turn; return the highest activity that any has afterwards."""
        highest = IDLE
        connections = list(self._connections.values())
        is_alone = len(connections) < 2
        if not is_alone or self._rounds.are_shared:
            self._begin_round(connections)
        looked = 0.0
        if self._rounds.are_shared:
            connections = light_first(connections)
            looked = time.perf_counter()
        for connection in connections:
            if connection.activity == IDLE:
                continue
            # One that waits for a device is always looked at: that costs little.
            if not (is_alone or connection.is_granted) and connection.activity == BUSY:
                highest = BUSY
                continue
            self._slices.running = connection
            if self._is_called:
                return BUSY
            connection.is_alone = is_alone
            self._take_turn(connection)
            if connection.activity > highest:
                highest = connection.activity
            if self._rounds.are_shared and time.perf_counter() - looked > SLICE_SECONDS:
                self._let_round_trips_pass()
                looked = time.perf_counter()
        return highest

    def _take_turn(self, connection: SessionConnection) -> None:
        """Give a session a turn; it may end with it."""
        try:
            connection.turn()
        except EOFError:
            self._heartbeat.numbers[SESSION] = 0.0
            self._discard(connection)
            return
        except WorkerCrashedError:
            raise
        except Cancelled:
            self._end(connection, connection.limit_error())
        except Exception as error:
            self._end(connection, error)
        if self._slices.crash is not None:
            raise self._slices.crash
        if len(self._connections) > 1:
            self._rounds.charge(connection, self._heartbeat.numbers[BEGIN], self._connections.values())
            if connection.is_paused and not self._is_called:
                connection.unpause()
        if connection.ended and not connection.writer.pending:
            self._discard(connection)
            return
        direct = connection.direct
        if direct is not None and (direct.retired or connection.writer is not direct):
            connection.close_retired(self._watch)
        self._watch(connection.socket, connection.interest, connection)

    def _trips(self) -> list[tuple[SessionConnection, int, int]]:
        """Sessions that make short round trips and now have something to do, with the socket that says so."""
        shared, running = self._rounds.do_tenants_share, self._slices.running
        return [
            (connection, fd, mask)
            for connection, fd, mask in self._sockets.wait(0)
            if connection is not None
            and connection.activity != BUSY
            and connection is not running
            and may_pass(connection, shared)
        ]

    def _has_trips(self) -> bool:
        return not self._is_called and bool(self._trips())

    def _let_round_trips_pass(self) -> None:
        """Give sessions that make short round trips, and now have something to do, their turns before all others."""
        for connection, fd, mask in self._trips():
            _wake(connection, fd, mask)
            self._slices.running = connection
            if self._is_called:
                return
            self._take_turn(connection)

    def _begin_round(self, connections: list[SessionConnection]) -> None:
        """Say who may have a turn, and have turns end with their slices where several sessions are active.

        While all that have work are held back nobody has a turn, and the timer would only wake this process.
        """
        self._rounds.begin(connections)
        self._slices.end_turns(self._rounds.are_shared and not self._rounds.held_seconds)

    def _end(self, connection: SessionConnection, error: Exception) -> None:
        """End a session because of what its client sent, or of a defect that showed in it."""
        self._heartbeat.numbers[SESSION] = 0.0
        self._host.check_devices(error)
        if is_defect(error):  # the gateway logs the others
            log.error("session %d ends", connection.number, exc_info=error)
        try:
            connection.end(error)
        except Exception as another:
            self._host.check_devices(another)
            log.exception("session %d could not be ended in good order", connection.number)
            self._discard(connection)

    def _discard(self, connection: SessionConnection) -> None:
        """Close a session and its socket."""
        if self._connections.pop(connection.number, None) is None:
            return
        self._share_buffers(connection.tenant)
        connection.activity = IDLE
        connection.leave_direct()
        connection.close_retired(self._watch)
        self._watch(connection.gateway, 0, connection)
        self._heartbeat.end_wait(connection.number)
        connection.writer.close()
        connection.gateway.close()
        if connection.ended:
            return
        try:
            connection.ended = True
            connection.session.close()
        except Exception as error:
            self._host.check_devices(error)
            log.exception("session %d could not be closed in good order", connection.number)

    def _serve_control(self, mask: int) -> None:
        if mask & EVENT_READ:
            self._read_control()
        self._flush_control()

    def _read_control(self) -> None:
        for frame in self._reader.read(fds=True):
            session, name, args = msgspec.msgpack.decode(frame.body)
            try:
                answer = self._answer(session, name, args)
                self._send(channel.ANSWER, frame.number, [True, answer])
            except WorkerCrashedError:
                raise
            except Exception as error:
                self._host.check_devices(error)
                self._send(channel.ANSWER, frame.number, [False, failure_of(error)])

    def _answer(self, number: int | None, name: str, args: list[Any]) -> Any:
        own = self._own_requests.get(name)
        if own is not None:
            return own(number or 0, args)
        if number is None:
            return self._host.control(None, name, args)
        connection = self._connections.get(number)
        if connection is None or connection.ended:
            raise UnknownIdError(f"session {number} is not open here")
        connection.activity = BUSY  # it may have replies now
        numbers = self._heartbeat.numbers
        numbers[BEGIN], numbers[SESSION] = time.perf_counter(), number
        try:
            return self._host.control(connection.session, name, args)
        except Cancelled:
            error = connection.limit_error(name)
            self._end(connection, error)
            if not connection.writer.pending:
                self._discard(connection)
            raise error from None
        finally:
            numbers[SESSION] = 0.0

    def _open(self, number: int, args: list[Any]) -> None:
        sock = self._sent_socket()
        try:
            channel.prepare(sock)
            session = self._host.open(number, args[0])
        except BaseException:
            sock.close()
            raise
        tenant = str(args[0].get("tenant", ""))
        share = self._rounds.share_of(tenant)
        connection = SessionConnection(number, session, sock, self._heartbeat, self._measures, tenant, share)
        self._connections[number] = connection
        self._watch(sock, connection.interest, connection)
        self._share_buffers(tenant)

    def _share_buffers(self, tenant: str) -> None:
        """Divide among a tenant's sessions what they may hold of frames."""
        own = [connection for connection in self._connections.values() if connection.tenant == tenant]
        for connection in own:
            connection.share_buffers(len(own))

    def _sent_socket(self) -> socket.socket:
        """Return the socket that came with the control request which is being answered."""
        if not self._reader.fds:  # the system had no descriptor for the one that was sent
            raise CommunicationError(channel.NO_DESCRIPTORS)
        return socket.socket(fileno=self._reader.fds.popleft())

    def _go_direct(self, number: int, args: list[Any]) -> None:
        sock = self._sent_socket()
        try:
            connection = self._connections.get(number)
            if connection is None:
                raise UnknownIdError(f"session {number} is not open here")
            connection.go_direct(sock, *args)
        except BaseException:
            sock.close()
            raise
        connection.activity = BUSY
        connection.close_retired(self._watch)
        self._watch(connection.gateway, EVENT_READ, connection)
        self._watch(sock, EVENT_READ, connection)

    def _close(self, number: int, args: list[Any]) -> None:
        connection = self._connections.get(number)
        if connection is not None:
            self._discard(connection)

    def _measured(self, number: int, args: list[Any]) -> WorkerState:
        """Answer ``Measurements``."""
        loads: defaultdict[str, TenantLoad] = defaultdict(TenantLoad)
        for connection in self._connections.values():
            loads[connection.tenant] = loads[connection.tenant].plus(connection.load)
        measures = self._measures
        return WorkerState(
            measures.turn.state, measures.queue.state, measures.round_trip.state, measures.device.state, dict(loads),
            resident_bytes(), time.process_time(),
            CompilationCounts(compilations.on_path, compilations.beside, compilations.failed),
            ChoiceCounts(library_choices.asked, library_choices.borrowed),
        )  # fmt: skip

    def _send(self, kind: int, number: int, value: Any) -> None:
        self._writer.put(kind, number, [wire.encoder.encode(value)])

    def _flush_control(self) -> None:
        drained = self._writer.flush()
        self._watch(self._control, EVENT_READ | (0 if drained else EVENT_WRITE), None)

    def _close_all(self) -> None:
        for connection in list(self._connections.values()):
            self._discard(connection)
        self._sockets.close()
        self._control.close()


def _wake(connection: SessionConnection, fd: int, mask: int) -> None:
    """Let a session have a turn, since one of its sockets is ready."""
    connection.activity = BUSY
    if fd == connection.fd:
        connection.readable = bool(mask & EVENT_READ)
    else:
        connection.gateway_is_readable = True
