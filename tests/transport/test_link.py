"""The link delivers every frame exactly once and in order, wherever connections break."""

from __future__ import annotations

import struct
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telegrad_protocol import wire
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.link import Link

_LENGTH = struct.Struct("<I")


class _End:
    """A link and the byte stream that leaves it."""

    def __init__(self, window: int) -> None:
        self.link = Link(window)
        self.outgoing = bytearray()
        self.arrived = bytearray()
        self.delivered: list[bytes] = []
        self.sent: list[bytes] = []

    def send(self, size: int) -> None:
        body = f"{len(self.sent)}:".encode() + b"x" * size
        self.sent.append(body)
        frame = self.link.header(wire.BATCH) + body
        self.link.keep([frame], len(frame))
        self._write(frame)

    def acknowledge(self) -> None:
        self._write(self.link.header(wire.ACK))

    def take(self, data: bytes) -> None:
        self.arrived += data
        while len(self.arrived) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self.arrived)
            if len(self.arrived) < _LENGTH.size + length:
                return
            self.link.receive(bytes(self.arrived[_LENGTH.size : _LENGTH.size + length]))
            del self.arrived[: _LENGTH.size + length]
            while self.link.inbox:
                self.delivered.append(bytes(self.link.inbox.popleft().body))

    def reconnect(self, peer_received: int) -> None:
        self.outgoing.clear()
        self.arrived.clear()
        for parts in self.link.resend_after(peer_received):
            self._write(b"".join(parts))

    def _write(self, frame: bytes) -> None:
        self.outgoing += _LENGTH.pack(len(frame)) + frame


_ACTION = st.one_of(
    st.tuples(st.sampled_from(["send", "move"]), st.integers(0, 1), st.integers(0, 60)),
    st.tuples(st.sampled_from(["acknowledge", "cut"]), st.integers(0, 1), st.just(0)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_ACTION, max_size=120))
def test_everything_arrives_once_and_in_order_whatever_is_cut(actions: list[tuple[str, int, int]]) -> None:
    ends = (_End(100), _End(100))
    for action, which, amount in actions:
        end, peer = ends[which], ends[1 - which]
        if action == "send":
            end.send(amount)
        elif action == "acknowledge":
            end.acknowledge()
        elif action == "move":
            peer.take(bytes(end.outgoing[:amount]))
            del end.outgoing[:amount]
        else:
            _reconnect(ends)
    _reconnect(ends)
    for end, peer in (ends, ends[::-1]):
        peer.take(bytes(end.outgoing))
    assert ends[0].delivered == ends[1].sent
    assert ends[1].delivered == ends[0].sent


@settings(max_examples=100, deadline=None)
@given(st.lists(_ACTION, max_size=60))
def test_what_is_kept_is_what_the_other_end_lacks(actions: list[tuple[str, int, int]]) -> None:
    ends = (_End(100), _End(100))
    for action, which, amount in actions:
        if action == "send":
            ends[which].send(amount)
    for end, peer in (ends, ends[::-1]):
        peer.take(bytes(end.outgoing))
        end.outgoing.clear()
    for end in ends:
        end.acknowledge()
    for end, peer in (ends, ends[::-1]):
        peer.take(bytes(end.outgoing))
    assert all(end.link.unacknowledged_bytes == 0 for end in ends)


def _reconnect(ends: tuple[_End, _End]) -> None:
    received = [end.link.received for end in ends]
    ends[0].reconnect(received[1])
    ends[1].reconnect(received[0])


def _frame(kind: int, sequence: int, acknowledged: int) -> bytes:
    return wire.LINK_HEADER.pack(kind, sequence, acknowledged)


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (b"", "frame of 0 bytes is shorter than a link header"),
        (_frame(9, 1, 0), "unknown kind of frame 9"),
        (_frame(wire.BATCH, 2, 0), "frame 2 follows frame 0: frames are missing"),
        (_frame(wire.ACK, 0, 1), "frame 1 is acknowledged, but only 0 were sent"),
    ],
)
def test_an_impossible_frame_is_a_protocol_error_and_changes_nothing(frame: bytes, complaint: str) -> None:
    link = Link()
    with pytest.raises(ProtocolError, match=complaint):
        link.receive(frame)
    assert not link.inbox
    assert (link.received, link.sent, link.acknowledged) == (0, 0, 0)


def test_frames_that_were_acknowledged_cannot_be_wanted_again() -> None:
    link = Link()
    link.keep([link.header(wire.BATCH)], 17)
    link.forget(1)
    with pytest.raises(ProtocolError, match="frame 1 is wanted again"):
        link.resend_after(0)


def test_the_window_closes_and_opens_with_acknowledgements() -> None:
    link = Link(window=100)
    for _ in range(2):
        assert link.can_send
        link.keep([link.header(wire.BATCH), b"x" * 60], 77)
    assert not link.can_send
    link.receive(_frame(wire.ACK, 0, 1))
    assert link.can_send
    assert link.unacknowledged_bytes == 77


def test_an_acknowledgement_is_wanted_before_the_window_of_the_other_end_closes() -> None:
    link = Link(window=100)
    link.receive(_frame(wire.BATCH, 1, 0) + b"x" * 20)
    assert link.owes_acknowledgement and not link.wants_acknowledgement
    link.receive(_frame(wire.BATCH, 2, 0) + b"x" * 20)
    assert link.wants_acknowledgement
    link.header(wire.ACK)
    assert not link.owes_acknowledgement and not link.wants_acknowledgement


def test_a_link_that_holds_acknowledges_only_what_was_released() -> None:
    link = Link(window=100, hold=True)
    for sequence in (1, 2):
        link.receive(_frame(wire.BATCH, sequence, 0) + b"x" * 40)
    assert not link.owes_acknowledgement
    link.release(1, 57)
    assert link.owes_acknowledgement and link.wants_acknowledgement
    assert wire.LINK_HEADER.unpack(link.header(wire.ACK)) == (wire.ACK, 0, 1)
    link.receive(_frame(wire.BATCH, 2, 0) + b"x" * 40)
    assert len(link.inbox) == 2


def test_a_receive_that_was_interrupted_is_finished_by_settling() -> None:
    class Interrupted(deque):  # type: ignore[type-arg]
        def append(self, item: object) -> None:
            super().append(item)
            raise KeyboardInterrupt

    link = Link()
    link.inbox = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        link.receive(_frame(wire.BATCH, 1, 0))
    link.finish_receive()
    assert link.received == 1
    link.receive(_frame(wire.BATCH, 1, 0))
    assert len(link.inbox) == 1
