"""The transport of a session over a WebSocket that is made anew when it breaks.

The calling thread does the work: it writes what it sends, and reads while it waits. A transport knows frames and bodies
but not what is in them. A body is accepted when the call begins: an exception that a send raises later (an interrupt, a
lost session) never means that it has to be sent again.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from telegrad_protocol import wire
from telegrad_protocol.errors import CommunicationError, ConnectError, SessionLostError
from telegrad_protocol.link import ACK_SECONDS, WINDOW_BYTES, Link, Parts, heartbeat_seconds
from telegrad_protocol.messages import Hello

from .direct_channel import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, DirectChannel, connected_channel
from .flush_timer import FlushTimer
from .host_buffers import buffers
from .limits import Limits
from .open_transports import forget, keep_from_forked_processes
from .readiness import DIRECT_READ, DIRECT_SHIFT, OF_GATEWAY, READ_BOTH, wait_for_either
from .transport import INHERITED, PlaceOf, TransportStats, nowhere
from .websocket import WRITE, Address, WebSocketConnection, masked_message

FLUSH_SECONDS: Final = 0.002
"""What is queued and not sent is sent after so long: an operation's time to reach an idle server."""
CLOSE_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.25
"""A thread that waits checks again after so many seconds: another thread may have read the frame it waits for."""


class SocketTransport:
    """The stream of a session over a WebSocket that is made anew when it breaks, until the session's lease ends.

    A broken connection, and a send that an interrupt cut short in the middle, are the same to it: the connection is
    dropped, and the link resends. ``flush`` is called from a timer thread after ``arm``.

    With a direct channel, batches and chunks go to the worker and come from it over that; the connection to the gateway
    keeps the lease, carries interrupts, and tells the end of the session.
    """

    executes_at_once = False
    handshake_seconds = 0.0

    def __init__(
        self, address: Address, hello: Hello, flush: Callable[[], object] = lambda: None, window: int = WINDOW_BYTES
    ) -> None:
        self.hello = hello
        self.address = address
        self._flush = flush
        self._link = Link(min(window, hello.limits.get("window_bytes", window)))
        self._lock = threading.RLock()
        self._connection: WebSocketConnection | None = None
        self._direct: DirectChannel | None = None
        self._peeked = self._link.inbox
        """The inbox that ``drop`` takes a frame from."""
        self._counted = TransportStats()
        self._pid = os.getpid()
        self._heartbeat = heartbeat_seconds(hello.lease_seconds)
        self._patience = min(self._heartbeat, ACK_SECONDS * 0.8)
        self._last_alive = time.monotonic()
        self._last_error = ""
        self._pause = self._looks_at = 0.0
        self._interrupt = 0
        self._busy = self._closed = self._waiting = False
        self._fatal: CommunicationError | None = None
        self._limits: Limits | None = None
        self._timer: FlushTimer | None = None
        if not self._drive(lambda: self._connection is not None, CLOSE_SECONDS):
            raise ConnectError(
                f"{address.url} opened a session, but its WebSocket cannot be reached: {self._last_error}\n"
                "  a proxy in between must pass WebSockets on"
            )
        self._timer = FlushTimer(self, FLUSH_SECONDS, min(ACK_SECONDS * 0.8, self._heartbeat / 2))
        keep_from_forked_processes(self)

    @property
    def stats(self) -> TransportStats:
        connection, counted = self._connection, self._counted
        sent, received = counted.bytes_sent, counted.bytes_received
        if connection is not None:
            sent, received = sent + connection.bytes_written, received + connection.bytes_read
        if self._direct is not None:
            sent, received = sent + self._direct.bytes_sent, received + self._direct.bytes_received
        return TransportStats(counted.frames, sent, received, counted.reconnects)

    def go_direct(self, place_of: PlaceOf = nowhere) -> None:
        direct = connected_channel(self.address, place_of)
        if direct is None:
            return  # the gateway carries the frames, too
        with self._lock:
            self._direct = direct
        self._drive(lambda: direct.is_open or direct.socket is None, None)
        self._direct = direct if direct.is_open else None

    def send_batch(self, body: bytes) -> None:
        with self._lock:
            direct, connection = self._direct, self._connection
            if direct is None:
                self._send(wire.BATCH, body)
            else:
                self._check()
                self._busy = True
                self._counted.frames += 1
                direct.send_at_once(body)
                self._busy = False
                if connection is not None and direct.is_open and direct.has_room:
                    return  # the timer looks after the connection to the gateway
        self._drive(self._has_room, None)

    def send_chunk(self, owner: int, offset: int, data: memoryview) -> None:
        direct = self._direct
        if direct is not None and not direct.has_slot:
            self._drive(lambda: direct.has_slot, None)
        self._send(wire.CHUNK, wire.CHUNK_HEADER.pack(owner, offset), data.cast("B") if data.nbytes else b"")
        self._drive(self._has_room, None)

    @property
    def accepted(self) -> int:
        if self._busy:
            with self._lock:
                if self._busy:
                    self._recover()
        direct = self._direct
        return self._link.sent + (direct.link.sent if direct is not None else 0)

    def receive(self, timeout: float | None) -> tuple[int, memoryview] | None:
        frame = self.peek(timeout)
        if frame is not None:
            self.drop()
        return frame

    def peek(self, timeout: float | None) -> tuple[int, memoryview] | None:
        direct = self._direct
        has_arrived = self._link.inbox or (direct is not None and direct.link.inbox)
        if not has_arrived:
            happened = self._first_look(timeout)
            has_taken = timeout is None and happened == DIRECT_READ and self._has_taken()
            if not has_taken and not self._drive(self._has_arrived, timeout, happened):
                return None
        with self._lock:
            if self._busy:
                self._recover()
            direct = self._direct
            self._peeked = direct.link.inbox if direct is not None and direct.link.inbox else self._link.inbox
            _, kind, body = self._peeked[0]
        return kind, body

    def _has_taken(self) -> bool:
        """Take what the direct channel has to be read, and return whether that was a frame."""
        with self._lock:
            self._waiting = False
            self._check()
            self._advance(DIRECT_READ)
            return bool(self._direct is not None and self._direct.link.inbox)

    def drop(self) -> None:
        with self._lock:
            self._peeked.popleft()

    def interrupt(self, number: int) -> None:
        with self._lock:
            self._check()
            self._interrupt = number
            if self._connection is not None:
                self._connection.queue(self._interruption())
                self._advance(0)

    def arm(self) -> None:
        if self._timer is not None:
            self._timer.arm()

    def give_up_after(self, seconds: float, unreachable: float) -> None:
        self._limits = Limits(time.monotonic(), seconds, unreachable)

    def close(self) -> None:
        self._limits = None
        if self._closed or self._pid != os.getpid():
            return
        try:
            if self._fatal is None:
                self._send(wire.CLOSE)
                with self._lock:
                    self._drop_direct(for_good=True)
                self._drive(lambda: False, CLOSE_SECONDS)
        except (CommunicationError, OSError):
            pass  # it is closed already, or out of reach: its lease will end
        finally:
            self.leave()

    def leave(self) -> None:
        """Close the connection for good, without ending the session."""
        self._closed = True
        with self._lock:
            self._drop()
            self._drop_direct()
        if self._timer is not None:
            self._timer.stop()
        forget(self)

    def flush_late(self) -> None:
        """Send what is queued; the timer calls this some time after ``arm``."""
        if not self._closed and self._fatal is None:
            with contextlib.suppress(CommunicationError):  # the user's next call raises it
                self._flush()

    def tick(self) -> None:
        """Acknowledge what was received, send a heartbeat, reconnect; the timer calls this at intervals."""
        buffers.trim()
        if self._closed or self._fatal is not None or not self._lock.acquire(blocking=False):
            return  # the thread that holds the lock does all of this
        try:
            self._check()
            self._advance(0 if self._waiting else READ_BOTH)
        except (CommunicationError, OSError):
            pass  # the user's next call raises it
        finally:
            self._lock.release()

    def abandon(self) -> None:
        """In a forked process: close this copy of the connection, and use no lock that a thread elsewhere may hold."""
        self._lock = threading.RLock()
        self._timer = None
        for connection in (self._connection, self._direct):
            if connection is not None:
                connection.abandon()

    def _send(self, kind: int, *body: bytes | memoryview) -> None:
        with self._lock:
            self._check()
            self._busy = True
            self._counted.frames += 1
            if self._direct is not None and kind != wire.CLOSE:
                self._direct.send(kind, *body)
                self._busy = False
                return
            parts, length = masked_message(self._link.header(kind), *body)
            self._link.keep(parts, length)
            if self._connection is not None:
                self._connection.queue(parts)
            self._busy = False

    def _interruption(self) -> Parts:
        """Return the frame of the last interrupt. Sent again it changes nothing, so it is after a lost connection."""
        return masked_message(self._link.interruption(self._interrupt))[0]

    def _has_arrived(self) -> bool:
        return bool(self._link.inbox) or (self._direct is not None and bool(self._direct.link.inbox))

    def _has_room(self) -> bool:
        if self._direct is not None:
            return self._direct.has_room
        connection = self._connection
        return connection is not None and not connection.unsent and self._link.can_send

    def _drive(self, done: Callable[[], bool], timeout: float | None, happened: int = 0) -> bool:
        """Write, read and reconnect until ``done``, or until ``timeout`` seconds have passed.

        ``happened`` is what is known to have happened on the connection before.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                self._waiting = False
                self._check()
                self._advance(happened, may_connect=timeout != 0)
                if done():
                    return True
                connection = self._connection
                if timeout == 0:
                    return False
                self._waiting = True
                if self._limits is not None:
                    self._fatal = self._limits.exceeded(connection is not None, self.address.url, self._last_error)
                    self._check()
            left = LOOK_SECONDS if deadline is None else min(deadline - time.monotonic(), LOOK_SECONDS)
            if left <= 0:
                return False
            happened = wait_for_either(connection, self._direct, left if connection else min(left, self._pause))

    def _first_look(self, timeout: float | None) -> int:
        """Return what happened on the connection; waits for it where there is nothing to send or to read."""
        if timeout == 0:  # the connection to the gateway has something now and then, where there is another one
            return READ_BOTH if self._direct is None or time.monotonic() >= self._looks_at else DIRECT_READ
        if timeout is not None:
            return 0
        with self._lock:
            connection, direct = self._connection, self._direct
            is_quiet = direct is None or direct.is_quiet
            if connection is None or connection.unsent or self._busy or self._link.inbox or not is_quiet:
                return 0
            self._waiting = True
        return wait_for_either(connection, direct, LOOK_SECONDS)

    def _check(self) -> None:
        """Raise why nothing can be sent or received any more, if that is so."""
        if self._pid != os.getpid():
            raise CommunicationError(INHERITED)
        if self._fatal is not None:
            raise self._fatal
        if self._closed:
            raise SessionLostError("the session was closed by disconnect()")
        if self._busy:
            self._recover()

    def _recover(self) -> None:
        """Recover from an interrupt in the middle of a change: drop the connection, so that the link sends again."""
        if self._busy:
            self._link.finish_receive()
            self._drop()
            self._drop_direct()
            self._busy = False

    def _advance(self, happened: int, may_connect: bool = True) -> None:
        """Connect, or read and write, as far as that needs no waiting; ``happened`` is as in ``_drive``."""
        self._busy = True
        try:
            if self._direct is not None:
                self._direct.advance(happened >> DIRECT_SHIFT, may_connect)
            if self._connection is None:
                if may_connect:
                    self._connect()
            elif happened & OF_GATEWAY or self._connection.unsent or time.monotonic() >= self._looks_at:
                self._exchange(self._connection, happened & OF_GATEWAY)
        except CommunicationError as error:
            self._fatal = error
            if self._direct is not None:
                self._direct.drain()
            self._drop()
            self._drop_direct()
            self._busy = False
            if not self._has_arrived():
                raise
        except OSError as error:
            was_connected = self._connection is not None
            self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)
            self._drop()
            if not was_connected:  # the server has the last word on whether the lease has ended
                self._check_lease(error)
        self._busy = False

    def _exchange(self, connection: WebSocketConnection, happened: int) -> None:
        if happened & ~WRITE:
            connection.read()
        now = time.monotonic()
        self._looks_at = now + self._patience / 16
        if now - connection.last_read > 3 * self._heartbeat:
            connection.read()  # this process may have been stopped: what came meanwhile is still to be read
            if now - connection.last_read > 3 * self._heartbeat:
                raise TimeoutError("nothing was heard from the server")
        silent = now - connection.last_write
        if self._link.wants_acknowledgement or (silent >= self._patience and self._is_due(silent)):
            connection.queue(masked_message(self._link.header(wire.ACK))[0])
        if connection.unsent:
            connection.write()

    def _is_due(self, silent: float) -> bool:
        return silent >= self._heartbeat or (silent >= ACK_SECONDS * 0.8 and self._link.owes_acknowledgement)

    def _connect(self) -> None:
        link = self._link
        self._connection = connection = WebSocketConnection(self.address, link.received, link.receive)
        self._looks_at = 0.0
        self.handshake_seconds = connection.handshake_seconds
        for parts in link.resend_after(link.acknowledged):
            connection.queue(parts)
        if self._interrupt:
            connection.queue(self._interruption())
        connection.write()
        self._counted.reconnects += self._pause > 0
        self._pause = 0.0

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._pause = self._pause or FIRST_PAUSE_SECONDS
        if connection is not None:
            self._last_alive = connection.last_read
            self._counted.bytes_sent += connection.bytes_written
            self._counted.bytes_received += connection.bytes_read
            connection.close()

    def _drop_direct(self, for_good: bool = False) -> None:
        if self._direct is not None:
            self._direct.link.finish_receive()
            self._direct.drop(for_good)

    def _check_lease(self, error: OSError) -> None:
        self._last_error = cause = (error.strerror or str(error)).lower()
        lease = self.hello.lease_seconds
        if time.monotonic() - self._last_alive > lease:
            reason = f"the server could not be reached for {lease:g} s, and the session's lease ended: {cause}"
            self._fatal = SessionLostError(reason)
