"""The client's end of a direct channel: frames go to the worker and come from it past the gateway, over a Unix socket.

The gateway admits the socket like any connection and gives it to the worker, which sends the shared memory that large
payloads pass through. The channel outlives its socket as a session outlives its WebSocket: its link sends again over
the next socket what the worker lacks. Knows no session, and nothing of what is in frames.
"""

from __future__ import annotations

import base64
import contextlib
import math
import os
import socket
import time
from typing import Any, Final

import numpy as np

from telegrad_protocol import wire
from telegrad_protocol.bulk import LARGE_BYTES, pool
from telegrad_protocol.channels.frames import HEADER, FrameReader, FrameWriter, frame_parts
from telegrad_protocol.channels.shared_memory import LEAST_COUNTED, Halves, SlotWriter, chunk_at, map_memory
from telegrad_protocol.errors import ProtocolError, TelegradError
from telegrad_protocol.link import Buffer, Link

from .address import socket_of
from .transport import PlaceOf, nowhere
from .websocket import READ, SESSION_KEY_HEADER, WRITE, Address, connect_unix, refusal

FIRST_PAUSE_SECONDS: Final = 0.01
"""The first pause before connecting again; each failure doubles it, up to the maximum."""
MAX_PAUSE_SECONDS: Final = 1.0
_MAX_HEAD_BYTES: Final = 1 << 14
_HEADER_BYTES: Final = HEADER.size
_BATCH: Final = wire.BATCH
_pack: Final = HEADER.pack


class DirectChannel:
    """A channel to the worker of a session at the Unix socket of its server; ``connect`` opens it."""

    def __init__(self, address: Address, place_of: PlaceOf = nowhere) -> None:
        self.link = Link()
        self.is_open = False
        """Whether the worker has taken the socket, so that frames may be sent."""
        self.bytes_sent = self.bytes_received = 0
        self._address = address
        self._place_of = place_of
        self._socket: socket.socket | None = None
        self._halves: Halves | None = None
        self._slots: SlotWriter | None = None
        self._pause, self._next_attempt = 0.0, 0.0
        self.idle_polls: list[Any] = []
        """What ``readiness`` waits with, and a thread that is about to wait takes from here."""

    @property
    def socket(self) -> socket.socket | None:
        """The socket, where there is one."""
        return self._socket

    @property
    def pause(self) -> float:
        """Seconds until it is worth trying to connect again."""
        return max(self._next_attempt - time.monotonic(), 0.0)

    @property
    def wants_to_write(self) -> bool:
        """Whether something waits until the socket takes it."""
        return self.is_open and self._writer.pending > 0

    @property
    def events(self) -> int:
        """What to wait for at the socket."""
        return READ | WRITE if self.wants_to_write else READ

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is to be written or read before something comes."""
        if not self.is_open:
            return False
        link = self.link
        is_waiting = self._writer.pending or link.inbox or self._reader.unparsed or link.wants_acknowledgement
        return not is_waiting

    @property
    def has_room(self) -> bool:
        """Whether another frame may be sent without waiting."""
        return self.link.can_send and not (self.is_open and self._writer.pending)

    @property
    def has_slot(self) -> bool:
        """Whether another large chunk may be sent without waiting."""
        return self.has_room and (self._slots is None or self._slots.free_slot(self.link.acknowledged) is not None)

    def connect(self) -> None:
        """Make a socket and have the gateway pass it on. Raises OSError or TelegradError where that fails."""
        path = socket_of(self._address.url)
        assert path is not None
        sock = connect_unix(path)
        try:
            _shake_hands(sock, self._address, self.link.received)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        self._reader, self._writer = FrameReader(sock), FrameWriter(sock)
        self.is_open = False
        self._socket = sock

    def advance(self, happened: int, may_connect: bool) -> None:
        """Connect, or read and write, as far as that needs no waiting.

        ``happened`` is what the socket is known to have. One that breaks is replaced at a later call. Raises
        ProtocolError.
        """
        try:
            if self._socket is None:
                if may_connect and time.monotonic() >= self._next_attempt:
                    self.connect()
                return
            if happened & ~WRITE or self._reader.unparsed:
                self._read()
            if self.is_open:
                self._acknowledge()
                if self._writer.pending:
                    self._flush()
        except (OSError, EOFError) as error:
            if isinstance(error, ProtocolError) and self._socket is not None:
                raise  # what the worker says is wrong, and would be over another socket
            self.drop()

    def send(self, kind: int, *body: Buffer) -> None:
        """Keep a frame, and queue it for the next ``advance``."""
        link = self.link
        nbytes = sum(map(len, body))
        if kind == wire.CHUNK:
            slot = self._slots.free_slot(link.acknowledged) if self._slots and nbytes > LARGE_BYTES else None
            if self._slots is not None and slot is not None:
                kind, body = wire.SHARED_CHUNK, (self._slots.fill(slot, link.sent + 1, *body),)
            else:
                body = (b"".join(body),)  # whoever sends may change it afterwards
        parts = frame_parts(kind, link.sent + 1, body)
        link.keep(parts, HEADER.size + nbytes)
        if self.is_open:
            self._writer.put_parts(parts)
        self.bytes_sent += nbytes

    def send_at_once(self, body: bytes) -> None:
        """Keep a batch, and write it as far as the socket takes it; one that breaks is replaced by ``advance``."""
        link, nbytes = self.link, len(body)
        parts = (_pack(nbytes, _BATCH, link.sent + 1), body)
        self.bytes_sent += nbytes
        nbytes += _HEADER_BYTES
        link.keep(parts, nbytes)
        if self.is_open:
            try:
                if self._writer.write_parts(parts, nbytes):
                    self._pause = 0.0
            except EOFError:
                self.drop()

    def drop(self, for_good: bool = False) -> None:
        """Break the connection; a later ``advance`` makes another, unless that is for good."""
        sock, self._socket = self._socket, None
        self.is_open = False
        self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS) or FIRST_PAUSE_SECONDS
        self._next_attempt = math.inf if for_good else time.monotonic() + self._pause
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for it
            sock.close()

    def abandon(self) -> None:
        """In a forked process: close this copy of the socket."""
        if self._socket is not None:
            self._socket.close()

    def drain(self) -> None:
        """Take what the worker has sent before its end or the session's."""
        with contextlib.suppress(OSError, EOFError, ProtocolError):
            while self._socket is not None and self._read():
                pass

    def _acknowledge(self) -> None:
        """Tell the worker how far frames have come, if that is due, as far as the socket takes it."""
        if self.is_open and self.link.wants_acknowledgement:
            self._writer.put(wire.ACK, self.link.announce(), ())
            self._flush()

    def _flush(self) -> None:
        before = self._writer.pending
        self._writer.flush()
        if before and not self._writer.pending:
            self._pause = 0.0

    def _read(self) -> bool:
        """Take the frames that one system call completes, and return whether there were any."""
        reader, link = self._reader, self.link
        frames = reader.take() if reader.unparsed else reader.read(not self.is_open)
        for kind, number, body in frames:
            if kind == _BATCH:
                self.bytes_received += len(body)
                link.admit(kind, number, memoryview(body), len(body))
                continue
            if kind == wire.SHARED_CHUNK and self._halves is not None:
                self._take_shared(number, chunk_at(self._halves.down, body))
                with contextlib.suppress(OSError, EOFError):  # what has come is taken, whoever has gone
                    self._acknowledge()  # the worker fills slots while the next chunk is copied
            elif kind == wire.CHUNK:
                self.bytes_received += len(body)
                link.admit(kind, number, memoryview(body), len(body))
            elif kind == wire.ACK:
                link.forget(number)
            elif kind == wire.OPENED:
                self._opened(number)
            else:
                raise ProtocolError(f"unknown kind of frame {kind}")
        return bool(frames)

    def _take_shared(self, number: int, chunk: memoryview) -> None:
        """Copy a chunk out of its slot, which is free from there on: to where its bytes belong, if that is known."""
        self.bytes_received += len(chunk)
        nbytes = max(len(chunk), LEAST_COUNTED)
        if number == self.link.received + 1 and len(chunk) > wire.CHUNK_HEADER.size:
            owner, begin, data = wire.split_chunk(chunk)
            end = begin + len(data)
            place = self._place_of(owner, begin, end)
            if place is not None:
                place[:] = np.frombuffer(data, np.uint8)
                self.link.admit(wire.PLACED, number, memoryview(wire.PLACED_CHUNK.pack(owner, begin, end)), nbytes)
                return
        copy = pool.take(len(chunk))
        copy[:] = chunk
        self.link.admit(wire.CHUNK, number, copy, nbytes)

    def _opened(self, received: int) -> None:
        """Send again what the worker lacks, which has the frames up to number ``received``."""
        fds = self._reader.fds
        if self._halves is None and fds:
            self._halves = map_memory(fds[0])
            self._slots = SlotWriter(self._halves.up)
        while fds:
            os.close(fds.popleft())
        for parts in self.link.resend_after(max(received, self.link.acknowledged)):
            self._writer.put_parts(parts)
        self.is_open = True


def connected_channel(address: Address, place_of: PlaceOf = nowhere) -> DirectChannel | None:
    """Return a channel with its first socket; None where the server is not reached by a Unix socket, or offers none."""
    if socket_of(address.url) is None or not hasattr(os, "memfd_create"):
        return None
    channel = DirectChannel(address, place_of)
    try:
        channel.connect()
    except (OSError, TelegradError):
        return None
    return channel


def _shake_hands(sock: socket.socket, address: Address, received: int) -> None:
    """Ask the gateway, over HTTP, to pass the socket on; what follows its answer is the worker's, and is not read."""
    path = f"/v1/sessions/{address.session}/direct?received={received}&attachment={address.attachment}"
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket"]
    lines += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}"]
    lines.append(f"{SESSION_KEY_HEADER}: {address.key}")
    if address.token is not None:
        lines.append(f"Authorization: Bearer {address.token}")
    sock.sendall("\r\n".join([*lines, "", ""]).encode())
    head = _read_head(sock)
    status = int(head.split(b" ", 2)[1])
    if status != 101:
        raise refusal(status, _rest(sock))


def _read_head(sock: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        seen = sock.recv(_MAX_HEAD_BYTES, socket.MSG_PEEK)
        if not seen or len(head) > _MAX_HEAD_BYTES:
            raise ConnectionResetError("the server closed the connection during the handshake")
        end = (head + seen).find(b"\r\n\r\n")
        head += sock.recv(len(seen) if end < 0 else end + 4 - len(head))
    return head


def _rest(sock: socket.socket) -> bytes:
    """Return the body of an answer that refuses: what comes until the server pauses or closes."""
    with contextlib.suppress(OSError):
        return sock.recv(_MAX_HEAD_BYTES)
    return b""
