"""Channels between gateway and worker: frames over Unix sockets. Knows no session.

A worker has one control channel and one channel per session, so the kernel's own flow control holds back each session
by itself and a flood of one never delays another's frames or the control requests. File descriptors of new session
channels travel on the control channel, attached to the frame that announces them. ``number`` tells requests and their
answers; on a frame of a session's client it is when the gateway received it, in nanoseconds of ``time.monotonic``,
which on Linux is the clock of ``time.perf_counter`` too.

``AsyncChannel`` ties ``FrameReader`` and ``FrameWriter`` to the gateway's loop; the worker uses them as they are.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from telegrad_protocol.channels.frames import HEADER as HEADER
from telegrad_protocol.channels.frames import Frame as Frame
from telegrad_protocol.channels.frames import FrameReader as FrameReader
from telegrad_protocol.channels.frames import FrameWriter as FrameWriter
from telegrad_protocol.errors import CommunicationError, ProtocolError
from telegrad_protocol.link import Buffer as Buffer

CLOSE: Final = 4
"""On a session channel: the worker ended this session in good order. The numbers below it are the link's kinds."""
REQUEST: Final = 16
ANSWER: Final = 17
HELLO: Final = 18
CRASH: Final = 19
"""Why the worker is about to end by itself."""
NOTICES: Final = 20
"""What has happened in the worker, for logs, metrics and traces: a list of ``server.ipc.measures.Notice``."""
TRAFFIC: Final = 21
"""On a session channel: what has gone over the session's direct channel since the last such frame."""
TRAFFIC_COUNTS: Final = struct.Struct("<4Q")
"""Frames received and sent, bytes received and sent, as the body of a ``TRAFFIC``."""

SOCKET_BUFFER_BYTES: Final = 4 << 20
"""A few chunks of 1 MiB: neither end waits for the other within one. The gateway's listener has it too."""
NO_DESCRIPTORS: Final = (
    "the server has no file descriptors left for another session; close some, or have the operator raise the limit "
    "(ulimit -n, LimitNOFILE)"
)


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """The two non-blocking ends of a new channel."""
    try:
        ends = socket.socketpair()
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise CommunicationError(NO_DESCRIPTORS) from error
    for end in ends:
        prepare(end)
    return ends


def prepare(end: socket.socket) -> None:
    """Make a socket fit for a channel."""
    end.setblocking(False)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)


class EventLoop(Protocol):
    """What ``AsyncChannel`` wants of asyncio's event loop; the worker, which has none, need not import it."""

    def add_reader(self, fd: Any, callback: Callable[[], None], /) -> Any: ...
    def remove_reader(self, fd: Any, /) -> Any: ...
    def add_writer(self, fd: Any, callback: Callable[[], None], /) -> Any: ...
    def remove_writer(self, fd: Any, /) -> Any: ...


class AsyncChannel:
    """The gateway's end of a channel: calls ``on_frame`` for each frame, ``on_end`` once when the other end is gone.

    ``on_progress`` is called when the other end has taken some of what had to wait; ``writer.pending`` says how many
    bytes wait. ``loop`` is the running event loop.
    """

    def __init__(
        self, sock: socket.socket, loop: EventLoop, on_frame: Callable[[Frame], None], on_end: Callable[[], None],
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._socket = sock
        self._reader = FrameReader(sock)
        self.writer = FrameWriter(sock)
        self._on_frame, self._on_end, self._on_progress = on_frame, on_end, on_progress
        self.reading = self._writing = False
        self.closed = False
        self.resume_reading()

    def send(self, kind: int, number: int, parts: Sequence[Buffer]) -> None:
        """Write a frame, now or when there is room."""
        if not self.closed:
            self.writer.put(kind, number, parts)
            self._flush()

    def send_with_fd(self, kind: int, number: int, body: bytes, fd: int) -> None:
        """Write a frame that carries a descriptor, and close the descriptor here."""
        if self.closed:
            os.close(fd)
            return
        self.writer.put_with_fd(kind, number, body, fd)
        self._flush()

    def pause_reading(self) -> None:
        """Leave what comes in the socket, until the other process has to wait."""
        if self.reading:
            self.reading = False
            self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        if not self.reading and not self.closed:
            self.reading = True
            self._loop.add_reader(self._socket, self._readable)

    def close(self) -> None:
        """Stop, without calling ``on_end``."""
        if self.closed:
            return
        self.pause_reading()
        if self._writing:
            self._loop.remove_writer(self._socket)
        self.closed = True
        self._reader.close()
        self.writer.close()
        self._socket.close()

    def _readable(self) -> None:
        is_broken = False
        while True:
            try:
                frames = self._reader.read()
            except (EOFError, ProtocolError):
                self._end()
                return
            for frame in frames:
                self._on_frame(frame)
                if self.closed:
                    return
            # Where the other end has left bytes unread the socket has an error, of which libuv tells once and no more.
            is_broken = is_broken or bool(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            if not is_broken:
                return

    def _flush(self) -> None:
        if self._writing:
            return
        with contextlib.suppress(EOFError):  # the reading side finds out, after the last frames that came
            if not self.writer.flush():
                self._writing = True
                self._loop.add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        try:
            drained = self.writer.flush()
        except EOFError:
            self.writer.close()
            drained = True
        if drained:
            self._writing = False
            self._loop.remove_writer(self._socket)
        self._on_progress()

    def _end(self) -> None:
        if not self.closed:
            self.close()
            self._on_end()
