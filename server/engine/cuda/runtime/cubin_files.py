"""Cubins on the disk: read, written and deleted, the ones whose last use is longest ago first. Knows no compiler.

Clients bring new kernels about, without end, and several processes share a directory. So it is bounded in bytes: who
has written a part of the bound looks at all files, and deletes some where they are too many. The time of a file's last
use is that of its last change, which each reading sets.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from server.kernel_cache import most_kernel_bytes

SUFFIX: Final = ".cubin"
LOOKS: Final = 64
"""All files are looked at after each such part of the bound has been written, and with a process' first one."""
KEPT_SHARE: Final = 0.9
"""So much of the bound is left when files are deleted, so that it is not reached with the next one."""
UNFINISHED_SECONDS: Final = 3600.0
"""A file that was not completed for so long is one whose writer has died."""
_unlooked: dict[Path, int] = {}
"""Bytes that this process has written since it looked at all files, by directory."""


def read(path: Path) -> bytes:
    """Return what was kept, and note its use; nothing where it is not there."""
    try:
        cubin = path.read_bytes()
        os.utime(path)
    except OSError:
        return b""
    return cubin


def keep(path: Path, cubin: bytes) -> None:
    """Write a file that others may read at the same moment; a directory that cannot be written to costs time only."""
    if write(path, cubin):
        with contextlib.suppress(OSError):
            _bound(path.parent, len(cubin))


def write(path: Path, content: bytes) -> bool:
    """Write a file that others may read at the same moment, and that counts for no bound; False where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(content)
                file.flush()
                os.replace(file.name, path)
            except OSError:  # the disk is full
                os.unlink(file.name)
                raise
    except OSError:
        return False
    return True


def _bound(folder: Path, written: int) -> None:
    most = most_kernel_bytes()
    unlooked = _unlooked.get(folder)
    _unlooked[folder] = 0 if unlooked is None else unlooked + written
    if unlooked is None or unlooked + written > most / LOOKS:
        _unlooked[folder] = 0
        delete_oldest(folder, most)


def delete_oldest(folder: Path, most: float) -> None:
    """Delete files until those that are left have fewer than ``most`` bytes, where they have more."""
    kept = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            status = entry.stat()
            if entry.name.endswith(SUFFIX):
                kept.append((status.st_mtime_ns, status.st_size, entry.path))
            elif entry.name.startswith(tempfile.gettempprefix()) and time.time() - status.st_mtime > UNFINISHED_SECONDS:
                os.unlink(entry.path)
    total = sum(size for _, size, _ in kept)
    if total <= most:
        return
    for _, size, path in sorted(kept):
        with contextlib.suppress(OSError):  # another process may have deleted it
            os.unlink(path)
        total -= size
        if total <= KEPT_SHARE * most:
            return
