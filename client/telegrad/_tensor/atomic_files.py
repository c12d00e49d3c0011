"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress


def write_atomically(path: str, write: Callable[[str], None]) -> None:
    """Have ``write`` fill a temporary file beside ``path``, which then takes its place; the umask decides its mode."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
    try:
        mode = _create(temporary)
        write(temporary)
        os.chmod(temporary, mode)  # a library that writes may have made another file, readable by its owner only
        _sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _create(path: str) -> int:
    with open(path, "xb") as file:
        return os.fstat(file.fileno()).st_mode & 0o777


def _sync(path: str) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
