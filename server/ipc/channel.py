"""Frames between gateway and worker over Unix sockets: ``(length, kind, number)`` and a body. Knows no session.

A worker has one control channel and one channel per session, so the kernel's own flow control holds back each session
by itself and a flood of one never delays another's frames or the control requests. File descriptors of new session
channels travel on the control channel, attached to the frame that announces them. ``number`` tells requests and their
answers; on a frame of a session's client it is when the gateway received it, in nanoseconds of ``time.monotonic``.

``FrameReader`` and ``FrameWriter`` never block and serve both sides; ``AsyncChannel`` ties them to the gateway's loop.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from telegrad_protocol.bulk import pool
from telegrad_protocol.errors import ProtocolError

CLOSE: Final = 4
"""On a session channel: the worker ended this session in good order. The numbers below it are the link's kinds."""
REQUEST: Final = 16
ANSWER: Final = 17
HELLO: Final = 18
CRASH: Final = 19
"""Why the worker is about to end by itself."""
NOTICES: Final = 20
"""What has happened in the worker, for logs, metrics and traces: a list of ``server.ipc.measures.Notice``."""

HEADER: Final = struct.Struct("<IBQ")
SOCKET_BUFFER_BYTES: Final = 4 << 20
"""A few chunks of 1 MiB: neither end waits for the other within one. The gateway's listener has it too."""
_STAGING_BYTES: Final = 1 << 18
_MAX_FDS: Final = 16
_MAX_BUFFERS: Final = 64

Buffer: TypeAlias = bytes | bytearray | memoryview


class Frame(NamedTuple):
    """A frame as it came from the other process; the body is the receiver's own."""

    kind: int
    number: int
    body: bytes | memoryview


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """The two non-blocking ends of a new channel."""
    ends = socket.socketpair()
    for end in ends:
        prepare(end)
    return ends


def prepare(end: socket.socket) -> None:
    """Make a socket fit for a channel."""
    end.setblocking(False)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)


class FrameReader:
    """Cuts what a socket has into frames; large bodies are received right into place."""

    def __init__(self, sock: socket.socket, max_bytes: int = (1 << 32) - 1) -> None:
        self.fds: deque[int] = deque()
        self._socket = sock
        self._max_bytes = max_bytes
        self._staging = bytearray(_STAGING_BYTES)
        self._view = memoryview(self._staging)
        self._end = 0
        self._large: tuple[int, int, memoryview] | None = None
        self._filled = 0

    def read(self, fds: bool = False) -> list[Frame]:
        """The frames that one system call completes; ``EOFError`` when the other end is gone."""
        if self._large is not None:
            return self._read_large()
        room = self._view[self._end :]
        try:
            count = self._receive_with_fds(room) if fds else self._socket.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return []
        except ConnectionError as error:
            raise EOFError(str(error)) from error
        if not count:
            raise EOFError("the other end closed the channel")
        self._end += count
        return self._parse()

    def _receive_with_fds(self, room: memoryview) -> int:
        data, fds, _, _ = socket.recv_fds(self._socket, len(room), _MAX_FDS)
        room[: len(data)] = data
        self.fds.extend(fds)
        return len(data)

    def _read_large(self) -> list[Frame]:
        assert self._large is not None
        kind, number, body = self._large
        try:
            count = self._socket.recv_into(body[self._filled :])
        except (BlockingIOError, InterruptedError):
            return []
        except ConnectionError as error:
            raise EOFError(str(error)) from error
        if not count:
            raise EOFError("the other end closed the channel in the middle of a frame")
        self._filled += count
        if self._filled < len(body):
            return []
        self._large = None
        return [Frame(kind, number, body)]

    def _parse(self) -> list[Frame]:
        frames: list[Frame] = []
        start, end, view = 0, self._end, self._view
        while end - start >= HEADER.size:
            length, kind, number = HEADER.unpack_from(view, start)
            if length > self._max_bytes:
                raise ProtocolError(f"channel frame of {length} bytes exceeds the limit of {self._max_bytes}")
            body = start + HEADER.size
            if body + length > end:
                if HEADER.size + length > len(view) // 2:
                    self._begin_large(kind, number, length, view[body:end])
                    start = end
                break
            start = body + length
            frames.append(Frame(kind, number, bytes(view[body:start])))
        if start:
            view[: end - start] = view[start:end]
        self._end = end - start
        return frames

    def _begin_large(self, kind: int, number: int, length: int, first: memoryview) -> None:
        body = pool.take(length)
        body[: len(first)] = first
        self._large = (kind, number, body)
        self._filled = len(first)


class FrameWriter:
    """Queues frames and writes what the socket takes."""

    def __init__(self, sock: socket.socket) -> None:
        self.pending = 0
        self._socket = sock
        self._queue: deque[Buffer] = deque()
        self._fds: deque[tuple[bytes, int]] = deque()

    def put(self, kind: int, number: int, parts: Sequence[Buffer]) -> None:
        """Queue a frame."""
        length = sum(map(len, parts))
        self._queue.append(HEADER.pack(length, kind, number))
        self._queue.extend(part for part in parts if len(part))
        self.pending += HEADER.size + length

    def put_with_fd(self, kind: int, number: int, body: bytes, fd: int) -> None:
        """Queue a small frame that carries a descriptor, which is closed here once it is sent."""
        frame = HEADER.pack(len(body), kind, number) + body
        self._queue.append(frame)
        self._fds.append((frame, fd))
        self.pending += len(frame)

    def flush(self) -> bool:
        """Write what the socket takes and return whether that was everything; ``EOFError`` if the other end is gone."""
        try:
            while self._queue:
                self._write_some()
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            raise EOFError(str(error)) from error
        return True

    def close(self) -> None:
        """Forget what is queued."""
        self._queue.clear()
        self.pending = 0
        for _, fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def _write_some(self) -> None:
        if self._fds and self._fds[0][0] is self._queue[0]:
            frame, fd = self._fds[0]
            written = socket.send_fds(self._socket, [frame], [fd])
            self._fds.popleft()
            os.close(fd)
        else:
            written = self._socket.sendmsg(self._writable())
        self.pending -= written
        self._drop(written)

    def _writable(self) -> list[Buffer]:
        buffers: list[Buffer] = []
        stop = self._fds[0][0] if self._fds else None
        for buffer in self._queue:
            if buffer is stop or len(buffers) == _MAX_BUFFERS:
                break
            buffers.append(buffer)
        return buffers

    def _drop(self, count: int) -> None:
        queue = self._queue
        while count:
            head = queue[0]
            if count < len(head):
                queue[0] = memoryview(head)[count:]
                return
            count -= len(head)
            queue.popleft()


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
        self.writer.close()
        self._socket.close()

    def _readable(self) -> None:
        try:
            frames = self._reader.read()
        except (EOFError, ProtocolError):
            self._end()
            return
        for frame in frames:
            if self.closed:
                return
            self._on_frame(frame)

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
