"""Frames come as they were sent, however the socket cuts them, and what is too long is refused."""

from __future__ import annotations

import random
import socket

import pytest

from telegrad_protocol.channels.frames import HEADER, Frame, FrameReader, FrameWriter, frame_parts
from telegrad_protocol.errors import ProtocolError


def _random_frame(draw: random.Random) -> tuple[int, int, list[bytes]]:
    sizes = [draw.choice((0, 1, draw.randrange(200), draw.randrange(100_000))) for _ in range(draw.randrange(4))]
    return draw.randrange(32), draw.getrandbits(60), [draw.randbytes(size) for size in sizes]


def test_frames_come_as_they_were_sent(seed: int) -> None:
    draw, received, sent = random.Random(seed), list[Frame](), list[Frame]()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        writer, reader = FrameWriter(ours), FrameReader(theirs)
        for _ in range(60):
            for _ in range(draw.choice((1, 1, 1, 2, 40))):
                kind, number, parts = _random_frame(draw)
                sent.append(Frame(kind, number, b"".join(parts)))
                way = draw.randrange(3)
                if way == 0:
                    writer.put(kind, number, parts)
                elif way == 1:
                    writer.put_parts(frame_parts(kind, number, parts))
                else:
                    writer.write_parts(frame_parts(kind, number, parts), HEADER.size + sum(map(len, parts)))
            while not writer.flush() or draw.random() < 0.5:
                received += [Frame(*frame[:2], bytes(frame.body)) for frame in reader.read()]
            assert not writer.pending
        while len(received) < len(sent):
            received += [Frame(*frame[:2], bytes(frame.body)) for frame in reader.read()]
        reader.close()
    assert received == sent


@pytest.mark.parametrize("rest", [b"", b"more"])
def test_a_frame_that_is_too_long_is_refused_whether_it_is_there_or_not(rest: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = FrameReader(theirs, max_bytes=10)
        ours.send(HEADER.pack(11, 0, 1) + bytes(11) + rest)
        with pytest.raises(ProtocolError, match="frame of 11 bytes exceeds the limit of 10"):
            reader.read()
        reader.close()
