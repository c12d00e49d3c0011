"""One end of a session's link: exactly-once delivery of frames over connections that may break at any byte. No I/O.

Frames that carry data (``BATCH``, ``CHUNK``, ``CLOSE``) are numbered from 1 in both directions and kept until the other
end has acknowledged them; every link header acknowledges all that came before. After a lost connection both ends tell
the other the last number they received, and resend what follows the number that they are told. Both ends use this
class; it knows neither sockets nor WebSockets nor what is in a frame, and keeps whatever form of a frame its owner
writes.

Every change of state is one append or one assignment, so an interrupt between two bytecodes leaves a link that
``finish_receive`` makes consistent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from .errors import ProtocolError
from .wire import ACK, BATCH, CHUNK, CLOSE, INTERRUPT, LINK_HEADER

WINDOW_BYTES: Final = 16 << 20
"""Bytes that may be unacknowledged before the sender has to wait."""
ACK_BYTES: Final = 2 << 20
"""Bytes received after which an acknowledgement is due, so that the other end can reuse the memory of its frames."""
ACK_FRAMES: Final = 256
"""Frames received after which one is due, however small they were."""
ACK_SECONDS: Final = 0.5
"""Seconds after which received frames are acknowledged at the latest."""

Buffer: TypeAlias = bytes | bytearray | memoryview
Parts: TypeAlias = Sequence[Buffer]
_NUMBERED: Final = frozenset((BATCH, CHUNK, CLOSE))
_new: Final = tuple.__new__
"""Makes a named tuple of a tuple; to call its class takes a function of Python's more."""


class Received(NamedTuple):
    """A received frame that is to be delivered."""

    sequence: int
    kind: int
    body: memoryview


class Kept(NamedTuple):
    """A sent frame that is not acknowledged, and where its bytes are among all that were sent before and after it."""

    sequence: int
    start: int
    end: int
    parts: Parts


class Link:
    """Numbers sent frames, keeps them until they are acknowledged, and delivers every received frame once.

    Sending a frame is ``header(kind)`` and then ``keep(parts, nbytes)``. Receiving is ``receive(frame)``, which adds to
    ``inbox`` what is new. With ``hold``, a received frame is acknowledged only when its owner releases it, so that the
    other end's window bounds what waits here, and acknowledgements in the other direction do not wait behind it.
    """

    def __init__(self, window: int = WINDOW_BYTES, hold: bool = False) -> None:
        self.window = window
        self.inbox: deque[Received] = deque()
        self.received = 0
        self.released = 0
        self.acknowledged = 0
        self._hold = hold
        self.announced = 0
        """The last frame that the other end was told of."""
        self._unannounced_bytes = 0
        self._most_unannounced = min(ACK_BYTES, window // 2)
        self._tail: deque[Kept] = deque()

    @property
    def sent(self) -> int:
        """The number of the last frame that was kept."""
        return self._tail[-1].sequence if self._tail else self.acknowledged

    @property
    def unacknowledged_bytes(self) -> int:
        return self._tail[-1].end - self._tail[0].start if self._tail else 0

    @property
    def can_send(self) -> bool:
        """Whether the window has room; a frame may overshoot it by its own length."""
        return self.unacknowledged_bytes < self.window

    @property
    def next_number(self) -> int:
        """The number of the frame that ``keep`` takes next; 0 while the window has no room."""
        tail = self._tail
        if not tail:
            return self.acknowledged + 1
        last = tail[-1]
        return last.sequence + 1 if last.end - tail[0].start < self.window else 0

    @property
    def owes_acknowledgement(self) -> bool:
        """Whether released frames are not yet acknowledged by any header."""
        return self.announced != self.released

    @property
    def wants_acknowledgement(self) -> bool:
        """Whether so many bytes or frames are unacknowledged that the other end should be told now."""
        return self._unannounced_bytes >= self._most_unannounced or self.released - self.announced >= ACK_FRAMES

    def header(self, kind: int) -> bytes:
        """The link header of the frame that ``keep`` takes next, or of an ``ACK``, which has no number."""
        return LINK_HEADER.pack(kind, self.sent + 1 if kind in _NUMBERED else 0, self.announce())

    def announce(self) -> int:
        """Return the number of the last released frame, which the caller tells the other end."""
        self.announced = released = self.released
        self._unannounced_bytes = 0
        return released

    def interruption(self, number: int) -> bytes:
        """The whole of an ``INTERRUPT``, which is not numbered itself: the interrupt of this number was noted."""
        return LINK_HEADER.pack(INTERRUPT, number, self.released)

    def keep(self, parts: Parts, nbytes: int) -> None:
        """Keep a frame, in the form in which it is written, until the other end has acknowledged it."""
        tail = self._tail
        if tail:
            before, start = tail[-1].sequence, tail[-1].end
        else:
            before, start = self.acknowledged, 0
        tail.append(_new(Kept, (before + 1, start, start + nbytes, parts)))

    def receive(self, frame: Buffer) -> int:
        """Take one frame from the connection and return its kind; ``inbox`` grows by it unless it was seen before."""
        if len(frame) < LINK_HEADER.size:
            raise ProtocolError(f"frame of {len(frame)} bytes is shorter than a link header")
        kind, sequence, acknowledged = LINK_HEADER.unpack_from(frame)
        self.forget(acknowledged)
        if kind in _NUMBERED:
            self.admit(kind, sequence, memoryview(frame)[LINK_HEADER.size :], len(frame))
        elif kind not in (ACK, INTERRUPT):
            raise ProtocolError(f"unknown kind of frame {kind}")
        return int(kind)

    def forget(self, acknowledged: int) -> None:
        """Drop the kept frames up to number ``acknowledged``, which the other end has received."""
        if acknowledged > self.sent:
            raise ProtocolError(f"frame {acknowledged} is acknowledged, but only {self.sent} were sent")
        if acknowledged > self.acknowledged:
            self.acknowledged = acknowledged
        while self._tail and self._tail[0].sequence <= self.acknowledged:
            self._tail.popleft()

    def resend_after(self, received: int) -> list[Parts]:
        """Return all frames that the other end lacks, if the last one that it received has the number ``received``."""
        if received < self.acknowledged:
            raise ProtocolError(f"frame {received + 1} is wanted again, but {self.acknowledged} were acknowledged")
        self.forget(received)
        return [kept.parts for kept in self._tail]

    def release(self, sequence: int, nbytes: int) -> None:
        """Let the next header acknowledge all frames up to this one, which has ``nbytes`` bytes."""
        self._unannounced_bytes += nbytes
        self.released = sequence

    def finish_receive(self) -> None:
        """Finish a ``receive`` that an interrupt cut short."""
        if self.inbox and self.inbox[-1].sequence > self.received:
            self.received = self.inbox[-1].sequence
        if not self._hold:
            self.released = self.received

    def admit(self, kind: int, sequence: int, body: memoryview, nbytes: int) -> None:
        """Add a numbered frame to ``inbox``, unless it was seen before; ``nbytes`` is what it counts as."""
        if sequence <= self.received:
            return
        if sequence != self.received + 1:
            raise ProtocolError(f"frame {sequence} follows frame {self.received}: frames are missing")
        self.inbox.append(_new(Received, (sequence, kind, body)))
        self.received = sequence
        if not self._hold:  # as ``release`` does
            self._unannounced_bytes += nbytes
            self.released = sequence


def heartbeat_seconds(lease_seconds: float) -> float:
    """Return the seconds between heartbeats; a connection silent for three times as long counts as lost."""
    return min(5.0, lease_seconds / 8)
