"""What a worker leaves for whoever finds it dead: the function of an extension that it was in.

The notes lie in a file without a name that the gateway opens and reads once the worker has ended: whatever ended it,
nothing has to be done for that. Without such a file they are kept in memory that nobody reads.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Final

BYTES: Final = 1024
_TEXT_AT: Final = 8


class CrashNotes:
    """The notes of one worker process."""

    def __init__(self, fd: int | None = None) -> None:
        self._memory = mmap.mmap(-1 if fd is None else fd, BYTES)
        self._name = ""

    def use(self, fd: int) -> None:
        """Keep the notes in a file from here on; the descriptor is closed."""
        self._memory = mmap.mmap(fd, BYTES)
        os.close(fd)

    def enter(self, name: str) -> None:
        """Note that a function runs."""
        memory = self._memory
        if name is not self._name:
            self._name = name
            text = name.encode()[: BYTES - _TEXT_AT - 1] + b"\0"
            memory[_TEXT_AT : _TEXT_AT + len(text)] = text
        memory[0] = 1

    def leave(self) -> None:
        """Note that it has returned."""
        self._memory[0] = 0

    @property
    def running(self) -> str:
        """The function that runs, or that ran when the process ended; empty where none did."""
        if not self._memory[0]:
            return ""
        return self._memory[_TEXT_AT:].partition(b"\0")[0].decode(errors="replace")

    def close(self) -> None:
        """Give up the memory."""
        self._memory.close()


def open_notes() -> tuple[int, CrashNotes]:
    """Return the descriptor of a new file, which the caller closes, and the notes in it."""
    with tempfile.TemporaryFile() as file:
        file.truncate(BYTES)
        return os.dup(file.fileno()), CrashNotes(file.fileno())


notes: Final = CrashNotes()
"""Those of this process."""
