"""The gateway's end of a channel: frames in and out on its event loop. Knows no session."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence

from server.ipc.channel import Buffer, Frame, FrameReader, FrameWriter
from telegrad_protocol.errors import ProtocolError


class AsyncChannel:
    """The gateway's end of a channel: calls ``on_frame`` for each frame, ``on_end`` once when the other end is gone.

    ``on_progress`` is called when the other end has taken some of what had to wait.
    """

    def __init__(
        self, sock: socket.socket, on_frame: Callable[[Frame], None], on_end: Callable[[], None],
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._reader = FrameReader(sock)
        self._writer = FrameWriter(sock)
        self._on_frame, self._on_end, self._on_progress = on_frame, on_end, on_progress
        self._reading = self._writing = False
        self.closed = False
        self.resume_reading()

    @property
    def pending(self) -> int:
        """Bytes that the other process has not taken yet."""
        return self._writer.pending

    def send(self, kind: int, number: int, parts: Sequence[Buffer]) -> None:
        """Write a frame, now or when there is room."""
        if not self.closed:
            self._writer.put(kind, number, parts)
            self._flush()

    def send_with_fd(self, kind: int, number: int, body: bytes, fd: int) -> None:
        """Write a frame that carries a descriptor, and close the descriptor here."""
        if self.closed:
            os.close(fd)
            return
        self._writer.put_with_fd(kind, number, body, fd)
        self._flush()

    def pause_reading(self) -> None:
        """Leave what comes in the socket, until the other process has to wait."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        if not self._reading and not self.closed:
            self._reading = True
            self._loop.add_reader(self._socket, self._readable)

    def close(self) -> None:
        """Stop, without calling ``on_end``."""
        if self.closed:
            return
        self.pause_reading()
        if self._writing:
            self._loop.remove_writer(self._socket)
        self.closed = True
        self._writer.close()
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
            if not self._writer.flush():
                self._writing = True
                self._loop.add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        try:
            drained = self._writer.flush()
        except EOFError:
            self._writer.close()
            drained = True
        if drained:
            self._writing = False
            self._loop.remove_writer(self._socket)
        self._on_progress()

    def _end(self) -> None:
        if not self.closed:
            self.close()
            self._on_end()
