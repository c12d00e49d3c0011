"""A program in a terminal of its own, whose user types."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
from typing import Self

from .server_process import ROOT, clean_environment

CTRL_C = "\x03"
PATIENCE_SECONDS = 120.0
"""A program that says nothing for so long says no more."""


class Terminal:
    """Runs a Python program whose terminal is controlled by this object; a context manager."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self.text = ""
        pid, self._terminal = pty.fork()
        if pid == 0:  # nothing but exec is safe here
            os.chdir(ROOT)
            os.execve(sys.executable, [sys.executable, *arguments], clean_environment(**variables))
        self._pid = pid
        self._status: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is None:
            os.kill(self._pid, 9)
            os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._terminal, text.encode())

    def await_match(self, pattern: str) -> re.Match[str]:
        """Wait until the program has written what matches ``pattern``, and forget what it wrote up to there."""
        while (match := re.search(pattern, self.text)) is None:
            if not self._read():
                raise AssertionError(f"the program never wrote {pattern!r}, but:\n{self.text}")
        self.text = self.text[match.end() :]
        return match

    def await_end(self) -> int:
        """Wait until the program has ended, and return its exit code; ``text`` has the rest of what it wrote."""
        while self._read():
            pass
        _, status = os.waitpid(self._pid, 0)
        self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def _read(self) -> bool:
        if not select.select([self._terminal], [], [], PATIENCE_SECONDS)[0]:
            raise AssertionError(f"the program goes on and says nothing, after:\n{self.text}")
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError:  # the program has ended
            return False
        self.text += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)
