"""A direct channel that is written to by hand, frame by frame."""

from __future__ import annotations

import mmap
import os
import struct
from typing import Any, Final, Self

from telegrad._transport.address import socket_of
from telegrad._transport.direct_channel import _shake_hands
from telegrad._transport.websocket import Address, connect_unix
from telegrad_protocol import wire
from telegrad_protocol.channels.frames import HEADER, Frame, FrameReader
from telegrad_protocol.channels.shared_memory import MEMORY_BYTES

PLACE: Final = struct.Struct("<II")
"""The slot of a shared chunk, and its length."""


class RawChannel:
    """The client's end, with the shared memory of the session; a context manager."""

    def __init__(self, address: Address, received: int = 0) -> None:
        path = socket_of(address.url)
        assert path is not None
        self.socket = connect_unix(path)
        _shake_hands(self.socket, address, received)
        self.reader = FrameReader(self.socket)
        frames: list[Frame] = []
        while not frames:
            frames = self.reader.read(fds=True)
        assert frames[0].kind == wire.OPENED
        self.fd = self.reader.fds.popleft()
        self.memory = mmap.mmap(self.fd, MEMORY_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up socket and memory."""
        self.memory.close()
        os.close(self.fd)
        self.socket.close()

    def send(self, kind: int, number: int, body: bytes) -> None:
        """Send a frame."""
        self.socket.sendall(HEADER.pack(len(body), kind, number) + body)

    def replies(self) -> list[Any]:
        """The replies of the next frame that has some."""
        frames: list[Frame] = []
        while not frames:
            frames = [frame for frame in self.reader.read() if frame.kind == wire.BATCH]
        return [reply for frame in frames for reply in wire.decode_replies(frame.body)]
