"""Frames over Unix sockets: ``(length, kind, number)`` and a body, read and written without ever blocking.

Gateway and worker talk so, and a client and a worker where they share a machine. Knows neither sessions nor links.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..bulk import pool
from ..errors import ProtocolError
from ..link import Buffer, Parts

HEADER: Final = struct.Struct("<IBQ")
_HEADER_BYTES: Final = HEADER.size
_unpack: Final = HEADER.unpack_from
_new: Final = tuple.__new__
"""Makes a frame of a tuple; to call its class takes a function of Python's more."""
_STAGING_BYTES: Final = 1 << 18
_MAX_FDS: Final = 16
_MAX_BUFFERS: Final = 64


class Frame(NamedTuple):
    """A frame as it came from the other process; the body is the receiver's own."""

    kind: int
    number: int
    body: bytes | memoryview


def frame_parts(kind: int, number: int, parts: Sequence[Buffer]) -> Parts:
    """Return a frame in the form in which ``FrameWriter.put_parts`` takes it."""
    if len(parts) == 1 and len(parts[0]):
        return HEADER.pack(len(parts[0]), kind, number), parts[0]
    return (HEADER.pack(sum(map(len, parts)), kind, number), *(part for part in parts if len(part)))


class FrameReader:
    """Cuts what a socket has into frames; large bodies are received right into place."""

    def __init__(self, sock: socket.socket, max_bytes: int = (1 << 32) - 1) -> None:
        self.fds: deque[int] = deque()
        self._socket = sock
        self._max_bytes = max_bytes
        self._view = memoryview(bytearray(_STAGING_BYTES))
        self._end = self.unparsed = 0
        """How many bytes are here of frames, and how many of them were received by somebody else, for ``take``."""
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
        self._end = end = self._end + count
        if end >= _HEADER_BYTES:
            length, kind, number = _unpack(self._view)
            if _HEADER_BYTES + length == end and length <= self._max_bytes:  # as with what is waited for
                self._end = 0
                return [_new(Frame, (kind, number, bytes(self._view[_HEADER_BYTES:end])))]
        return self._parse()

    def take(self) -> list[Frame]:
        """The frames that bytes complete which somebody else has received into the memory."""
        self._end += self.unparsed
        self.unparsed = 0
        return self._parse()

    def close(self) -> None:
        """Give the memory up, with what a frame lacks: nothing more is read."""
        self._view, self._large, self._end = memoryview(b""), None, 0

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

    def put_parts(self, parts: Parts) -> None:
        """Queue a frame that ``frame_parts`` has made."""
        self.put_framed(parts, sum(map(len, parts)))

    def put_framed(self, parts: Parts, nbytes: int) -> None:
        """Queue a frame of so many bytes, its header included."""
        self._queue.extend(parts)
        self.pending += nbytes

    def write_parts(self, parts: Parts, nbytes: int) -> bool:
        """Write a frame of so many bytes that ``frame_parts`` has made, at once if nothing is queued before it.

        What the socket does not take is queued. Returns whether nothing is; ``EOFError`` if the other end is gone.
        """
        if self.pending or len(parts) > _MAX_BUFFERS:
            self.put_parts(parts)
            return self.flush()
        try:
            written = self._socket.sendmsg(parts)
        except (BlockingIOError, InterruptedError):
            written = 0
        except OSError as error:
            raise EOFError(str(error)) from error
        if written == nbytes:
            return True
        self.keep_rest(parts, nbytes, written)
        return False

    def keep_rest(self, parts: Parts, nbytes: int, written: int) -> None:
        """Queue what is left of a frame of so many bytes, of which some were written; nothing is queued before it."""
        self._queue.extend(parts)
        self.pending = nbytes - written
        self._drop(written)

    def put_with_fd(self, kind: int, number: int, body: bytes, fd: int) -> None:
        """Queue a small frame that carries a descriptor, which is closed here once it is sent."""
        frame = HEADER.pack(len(body), kind, number) + body
        self._queue.append(frame)
        self._fds.append((frame, fd))
        self.pending += len(frame)

    def flush(self) -> bool:
        """Write what the socket takes and return whether that was everything; ``EOFError`` if the other end is gone."""
        queue = self._queue
        try:
            if queue and not self._fds and len(queue) <= _MAX_BUFFERS:
                written = self._socket.sendmsg(queue)
                if written == self.pending:
                    queue.clear()
                    self.pending = 0
                    return True
                self.pending -= written
                self._drop(written)
            while queue:
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
