"""Which files of the kernel cache hold the usual kernels, written down once they are all there.

To work out the texts of thousands of kernels takes seconds of a processor, which every start of a server would spend to
find that nothing is to be compiled. A list of their files is kept beside them, by what the texts depend on: the sources
of the engine and the compiler. A look at the directory then shows whether all are there, whatever was deleted since.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import server.engine
import telegrad_protocol
from server.kernel_cache import kernels_directory

from .runtime import cubin_files
from .runtime.compiler import path_of, version


def kept(target: str) -> int:
    """Return how many kernels are usual on an architecture if all of them are known to be there, and otherwise 0."""
    folder = kernels_directory()
    try:
        names = (folder / _list_of(target)).read_text().split()
        here = {entry.name for entry in os.scandir(folder)}
    except OSError:
        return 0
    return len(names) if here.issuperset(names) else 0


def note(target: str, texts: Iterable[tuple[str, tuple[str, ...]]]) -> None:
    """Write down the files of an architecture's usual kernels, in place of what other sources had.

    A cache that cannot be written to is left as it is, and looked through at the next start.
    """
    folder, name = kernels_directory(), _list_of(target)
    for before in folder.glob(f"{_prefix_of(target)}*"):
        with contextlib.suppress(OSError):
            if before.name != name:
                before.unlink()
    names = [path_of(source, target, options).name for source, options in texts]
    cubin_files.write(folder / name, "\n".join(names).encode())


def _list_of(target: str) -> str:
    return f"{_prefix_of(target)}{_sources()}"


def _prefix_of(target: str) -> str:
    return f"usual-{target}-"


@cache
def _sources() -> str:
    digest = hashlib.sha256(repr(version()).encode())
    for package in (server.engine, telegrad_protocol):
        for path in sorted(Path(next(iter(package.__path__))).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
