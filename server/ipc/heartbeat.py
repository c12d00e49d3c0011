"""What a worker is working on, in memory that the gateway reads while the worker does not answer.

The worker notes the session of the turn that is going on and when that began, and since when sessions wait for a
device. The gateway notes which turn is to be cancelled. All are numbers in one array; times are those of
``time.perf_counter``, which counts alike in all processes of a machine. Knows neither sockets nor sessions.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from typing import Final, NamedTuple

BEGIN: Final = 0
"""Place of the time at which the present turn began."""
SESSION: Final = 1
"""Place of the number of the session whose turn it is; 0 between turns."""
_CANCELLED: Final = 2
"""Place of the beginning of the turn that is to be cancelled."""
_LIMIT: Final = 3
"""Place of the seconds that a turn may take."""
_WAITS: Final = 8
"""From here on pairs: the number of a session that waits for a device, and since when.

The number is negative where the session has launched kernels of its own."""
_MAX_WAITS: Final = 256
_BYTES: Final = 8 * (_WAITS + 2 * _MAX_WAITS)


class Cancelled(BaseException):
    """The gateway has ended the turn that was going on. Not an ``Exception``: no handler may take it for a failure."""


class Turn(NamedTuple):
    """Whose turn goes on, or who waits for a device, and since when; whether that has launched kernels of its own."""

    session: int
    begin: float
    has_kernels: bool = False


class Heartbeat:
    """The shared array ``numbers``; of the file ``fd``, or of one that is made."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = _new_file() if fd is None else fd
        self._map = mmap.mmap(self.fd, _BYTES)
        self.numbers: memoryview[float] = memoryview(self._map).cast("d")
        self._places: dict[int, int] = {}
        """By session that waits for a device, where that is noted."""

    def close(self) -> None:
        """Give the memory back; the other end keeps its own."""
        self.numbers.release()
        self._map.close()
        os.close(self.fd)

    @property
    def limit(self) -> float:
        """Seconds that a turn may take."""
        return self.numbers[_LIMIT]

    @limit.setter
    def limit(self, seconds: float) -> None:
        self.numbers[_LIMIT] = seconds

    def turn(self) -> Turn | None:
        """The turn that is going on."""
        numbers = self.numbers
        while True:
            begin = numbers[BEGIN]
            session = int(numbers[SESSION])
            if numbers[BEGIN] == begin:  # or the next turn has begun in between
                return Turn(session, begin) if session else None

    def cancel(self, turn: Turn) -> None:
        """Ask the worker to end this turn; a signal has to tell it to look."""
        self.numbers[_CANCELLED] = turn.begin

    def check(self) -> None:
        """In the worker: raise ``Cancelled`` if the turn that is going on is to end."""
        numbers = self.numbers
        if numbers[SESSION] and numbers[_CANCELLED] == numbers[BEGIN]:
            raise Cancelled

    def note_wait(self, session: int, progressed: bool, has_kernels: bool = False) -> None:
        """Note that a session waits for a device, from now on if it waits anew or if it has made progress."""
        place = self._places.get(session)
        if place is None:
            place = next((p for p in range(_WAITS, len(self.numbers), 2) if not self.numbers[p]), None)
            if place is None:
                return
            self._places[session] = place
        elif not progressed:
            return
        self.numbers[place + 1] = time.perf_counter()
        self.numbers[place] = -session if has_kernels else session

    def end_wait(self, session: int) -> None:
        """Note that a session does not wait for a device any more."""
        place = self._places.pop(session, None)
        if place is not None:
            self.numbers[place] = 0

    def longest_wait(self) -> Turn | None:
        """The session that waits for a device longest without progress."""
        return min(self.waits(), key=lambda turn: turn.begin, default=None)

    def waits(self) -> list[Turn]:
        """The sessions that wait for a device."""
        numbers = self.numbers
        return [
            Turn(int(abs(numbers[p])), numbers[p + 1], numbers[p] < 0)
            for p in range(_WAITS, len(numbers), 2)
            if numbers[p]
        ]


def _new_file() -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("telegrad-heartbeat")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _BYTES)
    return fd
