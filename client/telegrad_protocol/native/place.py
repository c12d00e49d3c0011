"""Where the machine code of texts in C is kept. Compiles nothing."""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

HEADERS: Final = Path(__file__).parent
"""The folder of the text that modules share."""


def library(source: Path) -> Path | None:
    """Return where the machine code is, or is to be: in the installation if it was compiled there, else in the cache.

    None where this interpreter cannot use it, or the user has no cache.
    """
    shared = shared_library(source)
    if shared is None or shared.exists():
        return shared
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # the user has no home
        return None
    return cache / "telegrad" / "native" / _file(source)


def shared_library(source: Path) -> Path | None:
    """Return where code for all users of an installation is to be; None where this interpreter cannot use it."""
    if os.name != "posix" or sys.implementation.name != "cpython" or "t" in sys.abiflags:
        return None
    return Path(sys.prefix, "lib", "telegrad-native") / _file(source)


def _file(source: Path) -> Path:
    return Path(_key(source), f"_{source.stem}{EXTENSION_SUFFIXES[0]}")


def is_missing(library: Path) -> bool:
    """Whether there is no machine code yet, and a compiler has not failed to make it."""
    return not (library.exists() or library.with_name("failed").exists())


def is_trusted(library: Path) -> bool:
    """Whether the file is there, and nobody but this user, or the owner of the whole machine, can have written it."""
    try:
        found = [path.stat() for path in (library, library.parent)]
    except OSError:
        return False
    return all([one.st_uid in (os.getuid(), 0) and not one.st_mode & 0o022 for one in found])


def _key(source: Path) -> str:
    """Return a name for all that machine code depends on: the interpreter, and every text beside the source or
    shared.
    """
    told = hashlib.sha256(f"{sys.version} {EXTENSION_SUFFIXES[0]} {os.uname().machine}".encode())
    for folder in (source.parent, HEADERS):
        for file in sorted(folder.glob("*.[ch]")):
            told.update(file.read_bytes())
    return told.hexdigest()[:16]
