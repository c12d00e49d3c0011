"""One session in the worker: its socket, what waits to be executed, and what waits to be sent. Knows no other session.

A turn executes a bounded number of instructions. Neither direction holds more than its limit: beyond it the socket is
not read, or nothing is executed.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from server.ipc import channel
from server.ipc.channel import Frame, FrameReader, FrameWriter
from telegrad_protocol import wire
from telegrad_protocol.errors import InternalError, TelegradError
from telegrad_protocol.messages import Failure

INSTRUCTIONS_PER_TURN: Final = 64
CHUNK_COST: Final = 16
"""A chunk counts as this many instructions: about the time of copying 1 MiB."""
INBOX_BYTES: Final = 4 << 20
"""Beyond this a session's socket is not read, so that the gateway, and in turn the client, has to wait."""
OUTBOX_BYTES: Final = 16 << 20
"""Beyond this a session does not execute until the gateway has taken some of its replies."""


class Session(Protocol):
    """What the worker wants of a session."""

    def receive(self, kind: int, body: memoryview) -> None: ...
    def run(self, budget: int) -> int: ...
    @property
    def has_work(self) -> bool: ...
    def poll(self) -> None: ...
    @property
    def waits(self) -> bool: ...
    @property
    def holds(self) -> bool: ...
    def take_replies(self) -> list[tuple[int, list[channel.Buffer]]]: ...

    @property
    def shows_memory(self) -> bool: ...

    expects_more: bool
    send: Callable[[], None]

    def frames_left(self) -> None: ...
    def control(self, verb: str, args: list[Any]) -> Any: ...
    def close(self) -> None: ...


class SessionChannel:
    """One session and its socket."""

    def __init__(self, number: int, session: Session, sock: socket.socket) -> None:
        self.number, self.session, self.socket = number, session, sock
        self.writer = FrameWriter(sock)
        self.ended = False
        session.send = self._send_now
        self._reader = FrameReader(sock)
        self._inbox: deque[Frame] = deque()
        self._inbox_bytes = 0

    @property
    def runnable(self) -> bool:
        if self.ended or self.writer.pending > OUTBOX_BYTES:
            return False
        if self.session.shows_memory:
            if self.writer.pending:
                return False
            self.session.frames_left()
        return self.session.has_work or (bool(self._inbox) and not self.session.holds)

    @property
    def waits(self) -> bool:
        """Whether the device still has to deliver something."""
        return not self.ended and self.session.waits

    @property
    def interest(self) -> int:
        """Which of the socket's events to wait for, so that neither direction holds more than its limit."""
        read = selectors.EVENT_READ if self._inbox_bytes <= INBOX_BYTES and not self.ended else 0
        return read | (selectors.EVENT_WRITE if self.writer.pending else 0)

    def read(self) -> None:
        """Queue what the socket has."""
        for frame in self._reader.read():
            self._inbox.append(frame)
            self._inbox_bytes += len(frame.body)

    def turn(self) -> None:
        """Execute a bounded number of instructions, and write the replies."""
        budget = INSTRUCTIONS_PER_TURN
        while budget > 0 and self.runnable:
            budget -= self._step(budget)
            self._collect()
        self.writer.flush()

    def poll(self) -> None:
        """Write the replies whose data has arrived from the device."""
        self.session.poll()
        self._collect()
        self.writer.flush()

    def end(self, error: Exception) -> None:
        """Close the session; what is left is to tell its client why."""
        self.ended = True
        self._inbox.clear()
        self.session.close()
        self.writer.put(wire.BATCH, 0, [wire.encode_batch([failure_of(error)])])
        self.writer.put(channel.CLOSE, 0, [])
        self.writer.flush()

    def _step(self, budget: int) -> int:
        if self.session.has_work:
            self.session.expects_more = bool(self._inbox)
            return max(self.session.run(budget), 1)
        frame = self._inbox.popleft()
        self._inbox_bytes -= len(frame.body)
        self.session.receive(frame.kind, memoryview(frame.body))
        return CHUNK_COST if frame.kind == wire.CHUNK else 0

    def _send_now(self) -> None:
        """Write what there is in the middle of a turn; that the other end is gone shows at the turn's end."""
        self._collect()
        with contextlib.suppress(EOFError):
            self.writer.flush()

    def _collect(self) -> None:
        for kind, parts in self.session.take_replies():
            self.writer.put(kind, 0, parts)


def failure_of(error: Exception) -> Failure:
    """An error that ends a session, as its client is told."""
    trace = "".join(traceback.format_exception(error))
    if isinstance(error, TelegradError):
        return Failure(0, None, error.code, error.message, error.operation, error.operands, error.site, trace)
    message, site = f"{type(error).__name__}: {error}", getattr(error, "site", "")
    return Failure(0, None, InternalError.__name__, message, "", "", site, trace)
