"""One end of a session's link: exactly-once delivery of frames over connections that may break at any byte. No I/O.

Frames that matter (``BATCH``, ``CHUNK``, ``CLOSE``) are numbered from 1 in each direction and kept until the other end
has acknowledged them; every link header acknowledges all that came before. After a lost connection each end tells the
other the last number it received, and the other resends what follows. Both ends use this class; it knows neither
sockets nor WebSockets nor what is in a frame, and keeps whatever form of a frame its owner writes.

Every change of state is one append or one assignment, so an interrupt between two bytecodes leaves a link that
``settle`` makes whole again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from .errors import ProtocolError
from .wire import ACK, BATCH, CHUNK, CLOSE, LINK_HEADER

WINDOW_BYTES: Final = 16 << 20
"""How much may be unacknowledged before the sender has to wait."""
ACK_BYTES: Final = 2 << 20
"""What was received is acknowledged at least this often, so that the other end can use the same memory again."""
ACK_SECONDS: Final = 0.5
"""And in time at least this often."""

Buffer: TypeAlias = bytes | bytearray | memoryview
Parts: TypeAlias = Sequence[Buffer]
_NUMBERED: Final = frozenset((BATCH, CHUNK, CLOSE))


class Received(NamedTuple):
    """A frame to deliver."""

    sequence: int
    kind: int
    body: memoryview


class _Kept(NamedTuple):
    sequence: int
    start: int
    end: int
    parts: Parts


class Link:
    """Numbers what is sent, remembers it until it is acknowledged, and admits each received frame once.

    Sending a frame is ``header(kind)`` and then ``keep(parts, nbytes)``. Receiving is ``receive(frame)``, which adds to
    ``inbox`` what is new. With ``hold``, a received frame is acknowledged only when its owner releases it: so the other
    end's window bounds what waits here, while acknowledgements in the other direction are never stuck behind it.
    """

    def __init__(self, window: int = WINDOW_BYTES, hold: bool = False) -> None:
        self.window = window
        self.inbox: deque[Received] = deque()
        self.received = 0
        self.released = 0
        self.acknowledged = 0
        self._hold = hold
        self._announced = 0
        self._unannounced_bytes = 0
        self._tail: deque[_Kept] = deque()

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
    def owes_acknowledgement(self) -> bool:
        """Whether something was received, and released, that no header has acknowledged yet."""
        return self._announced != self.released

    @property
    def wants_acknowledgement(self) -> bool:
        """Whether so much is not acknowledged that the other end should be told now."""
        return self._unannounced_bytes >= min(ACK_BYTES, self.window // 2)

    def header(self, kind: int) -> bytes:
        """The link header of the frame that ``keep`` takes next, or of an ``ACK``, which has no number."""
        self._announced = released = self.released
        self._unannounced_bytes = 0
        return LINK_HEADER.pack(kind, self.sent + 1 if kind in _NUMBERED else 0, released)

    def keep(self, parts: Parts, nbytes: int) -> None:
        """Remember a frame, in the form in which it is written, until the other end has it."""
        start = self._tail[-1].end if self._tail else 0
        self._tail.append(_Kept(self.sent + 1, start, start + nbytes, parts))

    def receive(self, frame: Buffer) -> int:
        """Take one frame from the connection and return its kind; ``inbox`` grows by it unless it was seen before."""
        if len(frame) < LINK_HEADER.size:
            raise ProtocolError(f"frame of {len(frame)} bytes is shorter than a link header")
        kind, sequence, acknowledged = LINK_HEADER.unpack_from(frame)
        self.forget(acknowledged)
        if kind in _NUMBERED:
            self._admit(sequence, kind, frame)
        elif kind != ACK:
            raise ProtocolError(f"unknown kind of frame {kind}")
        return int(kind)

    def forget(self, acknowledged: int) -> None:
        """Drop what the other end has received."""
        if acknowledged > self.sent:
            raise ProtocolError(f"frame {acknowledged} is acknowledged, but only {self.sent} were sent")
        if acknowledged > self.acknowledged:
            self.acknowledged = acknowledged
        while self._tail and self._tail[0].sequence <= self.acknowledged:
            self._tail.popleft()

    def resend_after(self, received: int) -> list[Parts]:
        """All frames that the other end lacks, having received up to number ``received``."""
        if received < self.acknowledged:
            raise ProtocolError(f"frame {received + 1} is wanted again, but {self.acknowledged} were acknowledged")
        self.forget(received)
        return [kept.parts for kept in self._tail]

    def release(self, sequence: int, nbytes: int) -> None:
        """Acknowledge up to this frame, of ``nbytes``, with the next header."""
        self._unannounced_bytes += nbytes
        self.released = sequence

    def settle(self) -> None:
        """Finish a ``receive`` that an interrupt cut short."""
        if self.inbox and self.inbox[-1].sequence > self.received:
            self.received = self.inbox[-1].sequence
        if not self._hold:
            self.released = self.received

    def _admit(self, sequence: int, kind: int, frame: Buffer) -> None:
        if sequence <= self.received:
            return
        if sequence != self.received + 1:
            raise ProtocolError(f"frame {sequence} follows frame {self.received}: frames are missing")
        self.inbox.append(Received(sequence, kind, memoryview(frame)[LINK_HEADER.size :]))
        self.received = sequence
        if not self._hold:
            self.release(sequence, len(frame))


def heartbeat_seconds(lease_seconds: float) -> float:
    """How often each end says something, whatever happens; silence of three times as long is a dead connection."""
    return min(5.0, lease_seconds / 8)
