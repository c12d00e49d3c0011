"""A thread that flushes what was submitted but not sent, and keeps the connection alive.

``arm`` is on the path of every batch. It does not wake the thread if that will look by itself soon, since a thread that
is woken contends for the GIL. The thread refers to its owner weakly and ends with it.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Final, Protocol

AWAKE_SECONDS: Final = 0.05
"""So long after the last flush the thread looks by itself whether one is due, before it sleeps until it is woken."""


class FlushOwner(Protocol):
    """What the timer calls."""

    def flush_late(self) -> None: ...
    def tick(self) -> None: ...


class FlushTimer:
    """Calls ``owner.flush_late`` ``delay`` seconds after ``arm``, and ``owner.tick`` every ``interval`` seconds."""

    def __init__(self, owner: FlushOwner, delay: float, interval: float) -> None:
        self._owner = weakref.ref(owner)
        self._delay, self._interval = delay, interval
        self._deadline: float | None = None
        self._asleep = self._stopped = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telegrad-timer", daemon=True)
        self._thread.start()

    def arm(self) -> None:
        """Flush after the delay from now: what an earlier call was for has been sent, or is sent with what is new."""
        self._deadline = time.monotonic() + self._delay
        if self._asleep:
            self._wake.set()

    def stop(self) -> None:
        """End the thread, and wait for it unless it is the caller."""
        self._stopped = True
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        active = now = time.monotonic()
        next_tick = now + self._interval
        while not self._stopped:
            if self._flush_if_due(now):
                active = now
            if now >= next_tick:
                next_tick = now + self._interval
                if not self._tick():
                    return
            self._sleep(now, next_tick, now - active > AWAKE_SECONDS)
            now = time.monotonic()

    def _flush_if_due(self, now: float) -> bool:
        deadline = self._deadline
        if deadline is None or now < deadline:
            return deadline is not None
        self._deadline = None
        owner = self._owner()
        if owner is not None:
            owner.flush_late()
        return True

    def _tick(self) -> bool:
        owner = self._owner()
        if owner is not None:
            owner.tick()
        return owner is not None

    def _sleep(self, now: float, next_tick: float, deeply: bool) -> None:
        self._wake.clear()
        self._asleep = deeply  # set before the deadline is read, since arm() writes the deadline before it reads this
        deadline = self._deadline
        until = next_tick if deadline is None and deeply else min(next_tick, deadline or now + self._delay)
        if not self._stopped:
            self._wake.wait(max(until - now, 0.0))
        self._asleep = False
