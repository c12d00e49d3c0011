"""A file that is read piece by piece while others may replace or remove it. Knows nothing of what it holds."""

from __future__ import annotations

import io
import os
import threading
import weakref
from typing import BinaryIO, Final

from telegrad_protocol.errors import ProgramError

_SMALL: Final = 1 << 22
"""A file of so many bytes is read at once: a process may have some thousand files open."""


class OpenedFile:
    """Holds a file open, so that what is read later is of the same file, and closes it with the last reference."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if self.size <= _SMALL:
            with file:
                self.file = file = io.BytesIO(file.read())
        self._lock = threading.Lock()
        self._written = self._last_written()
        weakref.finalize(self, file.close)

    def read(self, begin: int, count: int) -> bytes:
        """Return so many bytes from a place on; ProgramError where somebody has written into the file meanwhile."""
        with self._lock:
            self.file.seek(begin)
            data = self.file.read(count)
        if len(data) != count or self._last_written() != self._written:
            raise ProgramError(f"load: {self.file.name!r} has changed since it was opened")
        return data

    def _last_written(self) -> tuple[int, int]:
        """Return when the file was last written to, and its length; of bytes in memory the length alone."""
        if not hasattr(self.file, "name"):
            return 0, self.size
        status = os.fstat(self.file.fileno())
        return status.st_mtime_ns, status.st_size
