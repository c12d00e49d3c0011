"""Host memory for large answers, which is used again for a while after the program has let go of it.

Touching pages that the operating system has just handed out costs several times what copying into them does, and a
program that reads large tensors does so again and again.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from typing import Any, Final

import numpy as np

SMALLEST: Final = 1 << 22
"""Answers of fewer bytes get memory of their own."""
KEPT_BYTES: Final = 1 << 30
"""Bytes that are kept for further answers at most."""
KEPT_SECONDS: Final = 3.0
"""For how long they are kept at most."""


class HostBuffers:
    """Lends arrays of bytes; what nothing refers to any more is lent again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: deque[tuple[Any, float]] = deque()
        """Arrays and the times at which they were given back; finalizers append here, and do nothing else."""

    @property
    def kept_bytes(self) -> int:
        """The bytes that are kept at present."""
        return sum(array.nbytes for array, _ in list(self._free))

    def take(self, nbytes: int) -> Any:
        """Return an array of ``nbytes`` bytes with undefined contents."""
        if nbytes < SMALLEST:
            return np.empty(nbytes, np.uint8)
        whole = self._take_kept(nbytes)
        if whole is None:
            whole = np.empty(nbytes, np.uint8)
        lent = whole[:nbytes]
        weakref.finalize(lent, self._give_back, whole).atexit = False
        return lent

    def trim(self) -> None:
        """Give memory back that was not used for a while, and what is too much."""
        with self._lock:
            oldest = time.monotonic() - KEPT_SECONDS
            while self._free and (self._free[0][1] < oldest or self.kept_bytes > KEPT_BYTES):
                self._free.popleft()

    def abandon(self) -> None:
        """In a forked process: use no lock that a thread of the other one may hold."""
        self._lock = threading.Lock()

    def _take_kept(self, nbytes: int) -> Any:
        with self._lock:
            for place, (array, _) in enumerate(self._free):
                if nbytes <= array.nbytes <= 2 * nbytes:
                    del self._free[place]
                    return array
        return None

    def _give_back(self, whole: Any) -> None:
        self._free.append((whole, time.monotonic()))


buffers: Final = HostBuffers()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=buffers.abandon)
