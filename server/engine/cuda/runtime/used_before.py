"""What processes of this machine waited for when they first used it, on the disk, for the next one to load beforehand.

There is a log per architecture in the kernel cache, of lines such as ``kernel FILE FUNCTION``. Processes append to it,
each a whole line at once; where the directory cannot be written to, nothing is known. Knows no libraries.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections import Counter
from pathlib import Path
from typing import Final

from server.kernel_cache import kernels_directory

from . import cubin_files

MOST_OF_KIND: Final = 256
"""So many lines of a kind are of use to the next process, those that were written last; one process writes no more."""
_LONGEST: Final = 1000


class UsedBefore:
    """A log as it was when it was opened; what is noted from then on is for later processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines, written = _read(path)
        self._known = set(self._lines)
        self._noted: Counter[str] = Counter()
        if written > 2 * len(self._lines):
            cubin_files.write(path, "".join([f"{line}\n" for line in self._lines]).encode())

    def of_kind(self, kind: str) -> list[str]:
        """Return what lines of a kind said, the last one first."""
        return [line.removeprefix(f"{kind} ") for line in reversed(self._lines) if line.startswith(f"{kind} ")]

    def note(self, kind: str, said: str) -> None:
        """Write a line, unless it is there."""
        line = f"{kind} {said}"
        if line in self._known or self._noted[kind] >= MOST_OF_KIND or len(line) > _LONGEST:
            return
        self._noted[kind] += 1
        self._known.add(line)
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, f"{line}\n".encode())
            finally:
                os.close(file)


def _read(path: Path) -> tuple[list[str], int]:
    """Return the last lines of each kind, each once, in the order in which they were written; and how many all are."""
    try:
        written = path.read_text(errors="replace").splitlines()
    except OSError:
        written = []
    kept: list[str] = []
    counts: Counter[str] = Counter()
    for line in dict.fromkeys(reversed(written)):
        kind = line.partition(" ")[0]
        counts[kind] += 1
        if counts[kind] <= MOST_OF_KIND:
            kept.append(line)
    return kept[::-1], len(written)


@functools.cache
def used_before(target: str) -> UsedBefore:
    """Return the log of an architecture such as ``sm_90``, as it was when this process first asked for it."""
    return UsedBefore(kernels_directory() / f"used-{target}")
