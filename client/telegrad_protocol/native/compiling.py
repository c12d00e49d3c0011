"""Compiles a text in C, here or in a process of its own: this file as a program, ``compiling.py SOURCE LIBRARY``."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path


def start(source: Path, library: Path) -> None:
    """Have a process compile at a low priority that goes on by itself.

    Nothing happens where there is no compiler, or where nothing could be kept: each program would try it again.
    """
    nowhere = subprocess.DEVNULL
    if compiler() is not None and _may_keep(library):
        command = [sys.executable, "-I", "-S", __file__, str(source), str(library)]
        with suppress(OSError):
            subprocess.run(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)


def _may_keep(library: Path) -> bool:
    """Whether this user may write where the library is to be."""
    return os.access(next(folder for folder in library.parents if folder.exists()), os.W_OK)


def compile_library(source: Path, library: Path) -> None:
    """Compile, unless there is no compiler or nowhere to keep what it makes; beside it is noted that it has failed."""
    command = compiler()
    if command is None:
        return
    with suppress(OSError):  # as where the disk is full, or may not be written to
        library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made = Path(folder, library.name)
            done = subprocess.run(
                [*command, str(source), "-o", str(made)], stdin=subprocess.DEVNULL, capture_output=True
            )
            if done.returncode:
                library.with_name("failed").write_bytes(done.stderr)
            else:
                made.chmod(0o700)
                made.replace(library)


def compiler() -> list[str] | None:
    """Return the command that compiles extensions, without the text and its output; None where there is none."""
    include = sysconfig.get_path("include")
    command = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    if shutil.which(command[0]) is None:  # the interpreter was built elsewhere
        command[0] = "cc"
    if shutil.which(command[0]) is None or not Path(include, "Python.h").exists():
        return None
    position = shlex.split(sysconfig.get_config_var("CCSHARED") or "-fPIC")
    exact = "-ffp-contract=off"  # a product is rounded before it is added, as in NumPy, whatever the processor has
    return [*command, *position, "-O2", exact, "-DNDEBUG", f"-I{include}", f"-I{Path(__file__).parent}"]


if __name__ == "__main__":
    if os.fork() == 0:  # whoever has started this one waits for it, and not for what goes on
        os.nice(10)
        compile_library(Path(sys.argv[1]), Path(sys.argv[2]))
