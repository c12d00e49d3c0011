"""Large answers put together: chunks that are copied to where they belong, whatever breaks, and peers that lie."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from server.worker.direct_channel import DirectChannel as WorkersEnd
from telegrad._transport.chunked_data import Downloads
from telegrad._transport.direct_channel import DirectChannel
from telegrad._transport.transport import nowhere
from telegrad._transport.websocket import READ, Address
from telegrad_protocol import wire
from telegrad_protocol.bulk import LARGE_BYTES
from telegrad_protocol.channels.frames import FrameReader, FrameWriter
from telegrad_protocol.channels.shared_memory import SLOTS, SlotWriter
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.link import Buffer
from telegrad_protocol.messages import CHUNK_BYTES, Data

REQUEST = 3


class Ends:
    """Both ends of a direct channel in one process, over pairs of sockets of which each may break."""

    def __init__(self, place_of: Callable[[int, int, int], Any] = nowhere) -> None:
        self.worker = WorkersEnd(1 << 30)
        self.client = DirectChannel(Address("unix:/nowhere", "", ""), place_of)
        self.connect()

    def connect(self) -> None:
        """Continue over a new pair of sockets."""
        self.close_sockets()
        here, there = socket.socketpair()
        for end in (here, there):
            end.setblocking(False)
        client = self.client
        client._reader, client._writer, client._socket = FrameReader(here), FrameWriter(here), here
        client.is_open = False
        self.worker.open(there, client.link.received)

    def exchange(self) -> None:
        """Let both write what there is, and each read once."""
        self.worker.flush()
        self.client.advance(READ, may_connect=False)
        self.worker.read()

    def close_sockets(self) -> None:
        self.client.drop(for_good=True)
        for sock in [*self.worker.retired, self.worker.socket]:
            if sock is not None:
                sock.close()
        self.worker.retired.clear()

    def close(self) -> None:
        self.close_sockets()
        self.worker.close()


def _send(ends: Ends, request: int, array: np.ndarray[Any, Any]) -> None:
    announced = Data(request, 0, array.shape, array.nbytes)
    ends.worker.put(wire.BATCH, 0, [wire.encode_batch([announced])])
    for begin in range(0, array.nbytes, CHUNK_BYTES):
        ends.worker.put(
            wire.CHUNK, 0, [wire.CHUNK_HEADER.pack(request, begin), array[begin : begin + CHUNK_BYTES].data]
        )


def _receive(ends: Ends, downloads: Downloads, kinds: list[int]) -> None:
    """Take what has come, as a session does."""
    inbox = ends.client.link.inbox
    while inbox:
        _, kind, body = inbox[0]
        if kind == wire.BATCH:
            for reply in wire.decode_replies(body):
                assert isinstance(reply, Data)
                downloads.announce(reply)
        else:
            downloads.take(kind, body)
            kinds.append(kind)
        inbox.popleft()


@pytest.mark.parametrize("breaks", [0.0, 0.3])
@pytest.mark.parametrize("is_expected", [True, False])
def test_chunks_go_from_their_slots_to_where_they_belong(
    rng: np.random.Generator, breaks: float, is_expected: bool
) -> None:
    """Their slots are free from there on, and what a broken connection has cut short is sent again."""
    downloads = Downloads()
    ends = Ends(downloads.place_of)
    try:
        for size in [LARGE_BYTES + 1, CHUNK_BYTES, int(rng.integers(9, 14)) * CHUNK_BYTES + int(rng.integers(1 << 20))]:
            array, kinds = rng.integers(0, 256, size, np.uint8), []
            if is_expected:
                downloads.expect(REQUEST, size)
            _send(ends, REQUEST, array)
            while REQUEST not in downloads or not downloads[REQUEST].is_complete:
                if rng.random() < breaks:
                    ends.connect()
                ends.exchange()
                if rng.random() < 0.5:  # who reads for the program may be late
                    _receive(ends, downloads, kinds)
            np.testing.assert_array_equal(downloads.pop(REQUEST).buffer, array)
            if is_expected:
                large = range(0, size, CHUNK_BYTES)
                assert kinds == [wire.PLACED if size - at + 16 > LARGE_BYTES else wire.CHUNK for at in large]
    finally:
        ends.close()


def test_both_ends_copy_at_the_same_time(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk is on its way before the next slot is filled, and slots are free before all chunks are copied."""
    array = rng.integers(0, 256, 2 * SLOTS * CHUNK_BYTES, np.uint8)
    on_their_way: list[int] = []
    acknowledged: list[int] = []
    downloads, fill = Downloads(), SlotWriter.fill

    def noting_bytes(slots: SlotWriter, slot: int, sequence: int, header: Buffer, data: Buffer) -> bytes:
        assert ends.client._socket is not None
        try:
            on_their_way.append(len(ends.client._socket.recv(1 << 16, socket.MSG_PEEK)))
        except BlockingIOError:
            on_their_way.append(0)
        return fill(slots, slot, sequence, header, data)

    def place_of(request: int, begin: int, end: int) -> Any:
        ends.worker.read()
        acknowledged.append(ends.worker.link.acknowledged)
        return downloads.place_of(request, begin, end)

    ends = Ends(place_of)
    try:
        ends.exchange()
        monkeypatch.setattr(SlotWriter, "fill", noting_bytes)
        downloads.expect(REQUEST, array.nbytes)
        _send(ends, REQUEST, array)
        assert len(on_their_way) == len(set(on_their_way)) == SLOTS, on_their_way
        while len(acknowledged) < SLOTS:
            ends.client.advance(READ, may_connect=False)
        assert acknowledged[SLOTS // 2 - 1] > 0 and acknowledged[SLOTS - 1] >= SLOTS // 2, acknowledged
    finally:
        ends.close()


def test_what_came_before_the_worker_ended_is_taken(rng: np.random.Generator) -> None:
    """Nobody is there any more to whom slots could be acknowledged."""
    downloads, array = Downloads(), rng.integers(0, 256, SLOTS * CHUNK_BYTES, np.uint8)
    ends = Ends(downloads.place_of)
    try:
        ends.exchange()
        downloads.expect(REQUEST, array.nbytes)
        _send(ends, REQUEST, array)
        assert ends.worker.socket is not None
        ends.worker.socket.close()
        ends.client.drain()
        _receive(ends, downloads, [])
        np.testing.assert_array_equal(downloads.pop(REQUEST).buffer, array)
    finally:
        ends.close()


def test_what_nobody_waits_for_any_more_is_received_and_forgotten(rng: np.random.Generator) -> None:
    downloads = Downloads()
    ends = Ends(downloads.place_of)
    try:
        array = rng.integers(0, 256, 12 * CHUNK_BYTES, np.uint8)
        downloads.expect(REQUEST, array.nbytes)
        _send(ends, REQUEST, array)
        _send(ends, REQUEST + 1, array[::-1].copy())
        while not ends.client.link.inbox:
            ends.exchange()
        lost, kinds = downloads.pop(REQUEST), []
        downloads.expect(REQUEST + 1, array.nbytes)
        while not downloads[REQUEST + 1].is_complete:
            ends.exchange()
            while ends.client.link.inbox:
                _, kind, body = ends.client.link.inbox.popleft()
                if kind != wire.BATCH:
                    kinds.append((kind, downloads.take(kind, body)))
                else:
                    for reply in wire.decode_replies(body):
                        if reply.request in downloads:
                            downloads.announce(reply)
        np.testing.assert_array_equal(downloads[REQUEST + 1].buffer, array[::-1])
        assert not lost.is_complete and any(taken == (REQUEST, None) for _, taken in kinds)
    finally:
        ends.close()


def test_random_chunks_in_order_give_the_bytes(rng: np.random.Generator) -> None:
    """Written or placed, and now and then once more, as after an interrupt."""
    for _ in range(50):
        array = rng.integers(0, 256, int(rng.integers(1, 4000)), np.uint8)
        downloads, at = Downloads(), 0
        downloads.expect(REQUEST, array.nbytes)
        downloads.announce(Data(REQUEST, 0, array.shape, array.nbytes))
        while at < array.nbytes:
            begin = int(rng.integers(0, at + 1)) if rng.random() < 0.2 else at
            end = min(begin + int(rng.integers(1, 600)), array.nbytes)
            place = downloads.place_of(REQUEST, begin, end) if rng.random() < 0.5 else None
            if place is None:
                downloads.take(
                    wire.CHUNK, memoryview(wire.CHUNK_HEADER.pack(REQUEST, begin) + array[begin:end].tobytes())
                )
            else:
                place[:] = array[begin:end]
                downloads.take(wire.PLACED, memoryview(wire.PLACED_CHUNK.pack(REQUEST, begin, end)))
            at = max(at, end)
            assert downloads[REQUEST].is_complete == (at == array.nbytes)
        np.testing.assert_array_equal(downloads[REQUEST].buffer, array)
        assert downloads.place_of(REQUEST, 0, 1) is None, "the memory may be the program's"


@pytest.mark.parametrize("begin, end", [(1, 2), (0, 101), (1 << 63, (1 << 63) + 1), (100, 101)])
def test_chunks_of_other_places_are_refused(begin: int, end: int) -> None:
    downloads = Downloads()
    downloads.expect(REQUEST, 100)
    assert downloads.place_of(REQUEST, begin, end) is None
    assert downloads.place_of(REQUEST + 1, 0, 1) is None
    downloads.announce(Data(REQUEST, 0, (100,), 100))
    with pytest.raises(ProtocolError, match="of which 0 are here"):
        downloads.take(wire.CHUNK, memoryview(wire.CHUNK_HEADER.pack(REQUEST, begin) + bytes(end - begin)))


def test_answers_that_are_not_announced_or_are_of_another_length_are_refused() -> None:
    downloads = Downloads()
    downloads.expect(REQUEST, 100)
    with pytest.raises(ProtocolError, match="101 bytes are announced of a tensor that has 100"):
        downloads.announce(Data(REQUEST, 0, (101,), 101))
    assert downloads.place_of(REQUEST, 0, 100) is not None
    for kind, body in (
        (wire.PLACED, wire.PLACED_CHUNK.pack(REQUEST, 0, 100)),
        (wire.CHUNK, wire.CHUNK_HEADER.pack(REQUEST, 0) + bytes(100)),
    ):
        with pytest.raises(ProtocolError, match="an answer that was not announced"):
            downloads.take(kind, memoryview(body))


@pytest.mark.parametrize("kind", [wire.PLACED, 9, 255])
def test_no_peer_may_say_that_bytes_are_in_place(kind: int) -> None:
    downloads = Downloads()
    downloads.expect(REQUEST, 100)
    ends = Ends(downloads.place_of)
    try:
        ends.exchange()
        assert ends.worker.socket is not None
        writer = FrameWriter(ends.worker.socket)
        writer.put(kind, 1, [wire.PLACED_CHUNK.pack(REQUEST, 0, 100)])
        writer.flush()
        with pytest.raises(ProtocolError, match=f"unknown kind of frame {kind}"):
            ends.client.advance(READ, may_connect=False)
    finally:
        ends.close()
