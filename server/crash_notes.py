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
        self.memory = mmap.mmap(-1 if fd is None else fd, BYTES)
        """The first byte tells whether a function runs; callers of one function many times set it themselves."""
        self.name = ""
        """The function that runs, or that has run last."""

    def use(self, fd: int) -> None:
        """Keep the notes in a file from here on; the descriptor is closed."""
        self.memory = mmap.mmap(fd, BYTES)
        os.close(fd)

    def enter(self, name: str) -> None:
        """Note that a function runs."""
        if name is not self.name:
            self.rename(name)
        self.memory[0] = 1

    def rename(self, name: str) -> None:
        """Note the name of the function that runs next."""
        self.name = name
        text = name.encode()[: BYTES - _TEXT_AT - 1] + b"\0"
        self.memory[_TEXT_AT : _TEXT_AT + len(text)] = text

    def leave(self) -> None:
        """Note that it has returned."""
        self.memory[0] = 0

    @property
    def running(self) -> str:
        """The function that runs, or that ran when the process ended; empty where none did."""
        if not self.memory[0]:
            return ""
        return self.memory[_TEXT_AT:].partition(b"\0")[0].decode(errors="replace")

    def close(self) -> None:
        """Give up the memory."""
        self.memory.close()


def open_notes() -> tuple[int, CrashNotes]:
    """Return the descriptor of a new file, which the caller closes, and the notes in it."""
    with tempfile.TemporaryFile() as file:
        file.truncate(BYTES)
        return os.dup(file.fileno()), CrashNotes(file.fileno())


notes: Final = CrashNotes()
"""Those of this process."""
