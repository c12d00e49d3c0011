"""A session's answers, in order: those that are there, and behind them those that a device has yet to deliver.

Knows replies and copies on their way; knows neither instructions nor values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from telegrad_protocol import messages, wire

from .transfers import Frame, Pending

PENDING_BYTES = 64 << 20
"""Beyond this many bytes of copies that the device has yet to deliver, the next read waits for those before it."""


class Answers:
    """What a client is told. ``look`` sees what devices have found wrong, which may withdraw answers."""

    __slots__ = ("_frames", "_look", "_pending", "_replies", "shows_memory")

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._replies: list[messages.Reply] = []
        self._frames: list[Frame] = []
        self._pending: deque[Pending] = deque()
        self.shows_memory = False
        """Whether frames that show memory of tensors are on their way."""

    @property
    def waits(self) -> bool:
        """Whether some wait for the device."""
        return bool(self._pending)

    @property
    def has_replies(self) -> bool:
        """Whether some are there that were not taken."""
        return bool(self._replies)

    def add(self, reply: messages.Reply) -> None:
        """Answer now."""
        self._replies.append(reply)

    def add_later(self, pending: Pending) -> None:
        """Answer when the device has got that far; now, if it has and nothing else waits."""
        self._pending.append(pending)
        if len(self._pending) == 1 and pending.is_ready():
            self._deliver_first()

    def make_room(self, nbytes: int) -> None:
        """Wait until a copy of so many bytes may be on its way, too."""
        while self._pending and nbytes + sum([each.nbytes for each in self._pending]) > PENDING_BYTES:
            self._pending[0].wait()
            self._deliver_first()

    def deliver(self) -> None:
        """Give the answers that the device has got to."""
        while self._pending and self._pending[0].is_ready():
            self._deliver_first()

    def withdraw(self, requests: Collection[int | None]) -> None:
        """Forget what was to answer these."""
        self._pending = deque([each for each in self._pending if each.request not in requests])

    def take(self) -> list[Frame]:
        """Frames to send, in order."""
        if self._replies:
            self._close_batch()
        frames, self._frames = self._frames, []
        return frames

    def clear(self) -> None:
        """Drop what is on its way."""
        self._pending.clear()
        self._replies.clear()
        self._frames.clear()

    def _deliver_first(self) -> None:
        """Give the first answer, unless the device has found by now that it should never have been computed."""
        first = self._pending[0]
        self._look()
        if not self._pending or self._pending[0] is not first:
            return
        message, chunks = self._pending.popleft().frames()
        self.shows_memory = self.shows_memory or first.is_live
        self._replies.append(message)
        if chunks:
            self._close_batch()
            self._frames.extend(chunks)

    def _close_batch(self) -> None:
        self._frames.append((wire.BATCH, [wire.encode_batch(self._replies)]))
        self._replies = []
