"""The transport to a server's ``Session`` in this process: no socket, and no frame is ever lost."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Any, Final, Protocol

from telegrad_protocol import wire
from telegrad_protocol.messages import Hello

from .transport import PlaceOf, TransportStats, nowhere

_AWAKE_SECONDS: Final = 2e-3
"""For how long a reader looks again and again: kernels take less, and compilers, which need the core, take more."""
_PAUSE_SECONDS: Final = 1e-3


class LocalSession(Protocol):
    """What the transport asks of the server's session."""

    def receive(self, kind: int, body: memoryview) -> None: ...
    def run(self, budget: int) -> int: ...
    @property
    def has_work(self) -> bool: ...
    def poll(self) -> None: ...
    @property
    def waits(self) -> bool: ...
    def take_replies(self) -> list[tuple[int, list[Any]]]: ...
    def frames_left(self) -> None: ...
    def close(self) -> None: ...


class InProcessTransport:
    """Drives a server's ``Session`` that lives in this process; what is sent is executed before the call returns."""

    executes_at_once = True
    handshake_seconds = 0.0
    _engine = threading.RLock()
    """The engine expects one thread at a time; the threads of this process take turns."""

    def __init__(self, session: LocalSession, hello: Hello) -> None:
        self.hello = hello
        self.stats = TransportStats()
        self._session = session
        self._inbox: deque[tuple[int, memoryview]] = deque()

    @property
    def accepted(self) -> int:
        return self.stats.frames

    def go_direct(self, place_of: PlaceOf = nowhere) -> None:
        """Do nothing: nothing is between client and session."""

    def send_batch(self, body: bytes) -> None:
        self._send(wire.BATCH, body)

    def send_chunk(self, owner: int, offset: int, data: memoryview) -> None:
        self._send(wire.CHUNK, b"".join((wire.CHUNK_HEADER.pack(owner, offset), data)))

    def receive(self, timeout: float | None) -> tuple[int, memoryview] | None:
        frame = self.peek(timeout)
        if frame is not None:
            self.drop()
        return frame

    def peek(self, timeout: float | None) -> tuple[int, memoryview] | None:
        start = time.monotonic()
        while not self._inbox:
            waited = time.monotonic() - start
            if not self._session.waits or (timeout is not None and waited >= timeout):
                return None
            if waited > _AWAKE_SECONDS:
                time.sleep(_PAUSE_SECONDS)
            with self._engine:
                self._session.poll()
                self._execute()
        return self._inbox[0]

    def drop(self) -> None:
        self._inbox.popleft()

    def interrupt(self, number: int) -> None:
        """Do nothing: nothing is on its way."""

    def arm(self) -> None:
        """Do nothing: whoever reads flushes first, and nobody else sees what was not sent."""

    def leave(self) -> None:
        """Do nothing: the session lives in this process, so nobody else can come back to it."""

    def give_up_after(self, seconds: float, unreachable: float) -> None:
        """Do nothing: what was sent has been executed."""

    def close(self) -> None:
        with self._engine:
            self._session.close()

    def _send(self, kind: int, body: bytes) -> None:
        with self._engine:
            self.stats.frames += 1
            self.stats.bytes_sent += len(body)
            self._session.receive(kind, memoryview(body))
            self._execute()

    def _execute(self) -> None:
        while self._session.has_work:
            self._session.run(1 << 30)
            self._collect()
        self._collect()

    def _collect(self) -> None:
        for kind, parts in self._session.take_replies():
            body = memoryview(b"".join(parts))
            self.stats.bytes_received += len(body)
            self._inbox.append((kind, body))
        self._session.frames_left()


def _replace_lock() -> None:
    """In a forked process: forget that a thread of the other one may have been in the engine."""
    InProcessTransport._engine = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock)
