"""The worker's end of a direct channel: frames of a session pass the gateway by, over a Unix socket of the client.

It outlives its socket: the link keeps what the client has not acknowledged until that comes back over another one. It
has the methods of ``FrameReader`` and ``FrameWriter`` that a connection uses. Large chunks are copied into shared
memory, so nothing that waits for the client's acknowledgement refers to the memory of tensors.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from server.ipc.channel import FrameReader, FrameWriter
from telegrad_protocol import wire
from telegrad_protocol.bulk import LARGE_BYTES
from telegrad_protocol.channels.frames import HEADER, Frame, frame_parts
from telegrad_protocol.channels.shared_memory import LEAST_COUNTED, SlotWriter, chunk_at, map_memory, new_memory
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.link import Buffer, Link

_HEADER_BYTES: Final = HEADER.size
_BATCH: Final = wire.BATCH
_pack: Final = HEADER.pack
_new: Final = tuple.__new__


class DirectChannel:
    """A session's direct channel. ``max_bytes`` is the largest frame that is taken."""

    def __init__(self, max_bytes: int) -> None:
        self.link = Link(hold=True)
        self.socket: socket.socket | None = None
        self.retired: list[socket.socket] = []
        """Sockets that were lost or replaced, for the loop to close once it does not wait for them any more."""
        self._max_bytes = max_bytes
        self._memory = new_memory()
        self._halves = map_memory(self._memory)
        self._slots = SlotWriter(self._halves.down)
        self._reader: FrameReader | None = None
        self._writer: FrameWriter | None = None
        self._waiting: deque[tuple[int, Sequence[Buffer]]] = deque()
        """What has not been given a number yet: there is no slot for it, or the client acknowledges nothing."""
        self._waiting_bytes = 0
        self._executing: deque[tuple[int, int]] = deque()
        """Numbers and bytes of the frames that were taken and are not released."""
        self.frames_received = self.frames_sent = self.bytes_received = self.bytes_sent = 0

    def open(self, sock: socket.socket, received: int) -> None:
        """Continue over a new socket, whose client has the frames up to number ``received``."""
        missing = self.link.resend_after(received)
        self._lose()
        self.socket = sock
        self._reader, self._writer = FrameReader(sock, self._max_bytes), FrameWriter(sock)
        self._writer.put_with_fd(wire.OPENED, self.link.received, b"", os.dup(self._memory))
        for parts in missing:
            self._writer.put_parts(parts)
        self.flush()

    def close(self) -> None:
        """Give up the channel; the client learns it from its socket."""
        self._lose()
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def take_traffic(self) -> tuple[int, int, int, int]:
        """Return frames received and sent, and bytes received and sent, since this was asked last."""
        traffic = self.frames_received, self.frames_sent, self.bytes_received, self.bytes_sent
        self.frames_received = self.frames_sent = self.bytes_received = self.bytes_sent = 0
        return traffic

    @property
    def pending(self) -> int:
        """Bytes that wait for the client."""
        return self._waiting_bytes + (self._writer.pending if self._writer is not None else 0)

    @property
    def waits_for_client(self) -> bool:
        """Whether frames wait for acknowledgements: for a slot, or within the window of the link."""
        return bool(self._waiting)

    @property
    def waits_for_socket(self) -> bool:
        """Whether the socket is full."""
        return self._writer is not None and self._writer.pending > 0

    def read(self) -> list[Frame]:
        """The new frames that one system call completes, each with the time of it in nanoseconds as its number."""
        if self._reader is None:
            return []
        try:
            frames = self._reader.read()
        except EOFError:
            self._lose()
            return []
        now, link = time.perf_counter_ns(), self.link
        if len(frames) == 1:
            ((kind, number, body),) = frames
            if kind == _BATCH and number == link.received + 1:  # as ``_take`` does, and ``admit``
                link.received = number
                nbytes = _HEADER_BYTES + len(body)
                self.frames_received += 1
                self.bytes_received += nbytes
                self._executing.append((number, nbytes))
                return [_new(Frame, (kind, now, body))]
        return [taken for frame in frames for taken in self._take(frame, now)]

    def release(self, sequence: int) -> bool:
        """Acknowledge the frames up to this one: what was in their slots is not needed any more.

        Returns whether that is to be written.
        """
        link, executing = self.link, self._executing
        while executing and executing[0][0] <= sequence:
            link.release(*executing.popleft())
        is_due = link.wants_acknowledgement and self._writer is not None
        if is_due and self._writer is not None:
            self._writer.put(wire.ACK, link.announce(), ())
        return is_due

    def put(self, kind: int, number: int, parts: Sequence[Buffer]) -> None:
        """Queue a frame of the session; it gets a number of its own."""
        if kind == _BATCH and len(parts) == 1 and not self._waiting and self._writer is not None:
            link, body = self.link, parts[0]
            place, nbytes = link.next_number, len(body)
            if place and nbytes:  # as ``_number`` does
                framed = (_pack(nbytes, kind, place), body)
                link.keep(framed, nbytes)
                self.frames_sent += 1
                nbytes += _HEADER_BYTES
                self.bytes_sent += nbytes
                self._writer.put_framed(framed, nbytes)
                return
        if self._waiting or not self._number(kind, parts):
            self._waiting.append((kind, parts))
            self._waiting_bytes += sum(map(len, parts))

    def flush(self) -> bool:
        """Write what the socket takes, and return whether that was everything."""
        waiting = self._waiting
        while waiting and self._number(*waiting[0]):
            self._waiting_bytes -= sum(map(len, waiting.popleft()[1]))
        return self._write() and not waiting

    def _take(self, frame: Frame, now: int) -> list[Frame]:
        kind, number, body = frame
        link = self.link
        if kind == wire.ACK:
            link.forget(number)
            return []
        least = 0
        if kind == wire.SHARED_CHUNK:
            kind, body, least = wire.CHUNK, chunk_at(self._halves.up, body), LEAST_COUNTED
        elif kind not in (wire.BATCH, wire.CHUNK):
            raise ProtocolError(f"unknown kind of frame {kind}")
        nbytes = HEADER.size + len(body)
        link.admit(kind, number, memoryview(body), nbytes)
        if not link.inbox:
            return []
        link.inbox.clear()
        self.frames_received += 1
        self.bytes_received += nbytes
        self._executing.append((number, max(nbytes, least)))
        return [Frame(kind, now, body)]

    def _number(self, kind: int, parts: Sequence[Buffer]) -> bool:
        """Give a frame its number and queue it for the socket; False where it has to wait."""
        link = self.link
        if not link.can_send:
            return False
        nbytes = sum(map(len, parts))
        if kind == wire.CHUNK:
            if nbytes > LARGE_BYTES:
                slot = self._slots.free_slot(link.acknowledged)
                if slot is None:
                    return False
                kind, parts = wire.SHARED_CHUNK, (self._slots.fill(slot, link.sent + 1, parts[0], parts[1]),)
            else:
                parts = (b"".join(parts),)
        framed = frame_parts(kind, link.sent + 1, parts)
        link.keep(framed, nbytes)
        self.frames_sent += 1
        self.bytes_sent += HEADER.size + nbytes
        if self._writer is not None:
            self._writer.put_parts(framed)
            if kind == wire.SHARED_CHUNK:
                self._write()  # the client copies this one while the next slot is filled
        return True

    def _write(self) -> bool:
        """Write what the socket takes of what has a number, and return whether that was everything."""
        try:
            return self._writer is None or self._writer.flush()
        except EOFError:
            return False  # the reading side finds out, after the last frames that came

    def _lose(self) -> None:
        if self.socket is not None:
            self.retired.append(self.socket)
        if self._writer is not None:
            self._writer.close()
        self.socket = self._reader = self._writer = None
