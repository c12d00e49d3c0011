"""Builds of extensions: a directory for each, named by the hash of all that it depends on, and a helper process.

What was built once is found again, in this process or a later one. The library of another user's server is never
loaded: the cache belongs to the user that the server runs as, and its directories are closed to others.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from server.disclosure import without_folders
from server.kernel_cache import extensions_directory
from telegrad_protocol.extension_messages import BuildExtension

from . import commands, prepared_headers
from .commands import Prefix

SECONDS: Final = 600.0
"""How long the compilers of one extension may take."""
MEMORY_BYTES: Final = 16 << 30
"""How much address space each of them may have."""
LOG_BYTES: Final = 1 << 18
"""Of what compilers say, so much goes to the client: the beginning, where the first errors are."""
_JOB: Final = Path(__file__).with_name("compile_job.py")


class Build:
    """A build that is under way, or was done before. As a mark it is reached once the compilers have ended."""

    def __init__(self, request: BuildExtension, architecture: str) -> None:
        versions = commands.versions(request)
        self._final = extensions_directory() / _hash(architecture, versions, request)
        shared = [versions, commands.needs_cuda(request), prepared_headers.environment()]
        self._runtime = extensions_directory() / f"runtime.{_hash(*shared, commands.abi_flags(request))}.o"
        self._flags = prepared_headers.flags_of(request)
        self._headers = extensions_directory() / f"headers.{_hash(*shared, self._flags)}"
        self._work: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if not self.library.exists():
            self._start(request, architecture)

    @property
    def library(self) -> Path:
        """Where the library is once it is built."""
        return self._final / "extension.so"

    def is_ready(self) -> bool:
        """Whether nothing has to be waited for."""
        return self._process is None or self._process.poll() is not None

    def finish(self) -> tuple[bool, str]:
        """Return whether there is a library, and what the compilers said, with the client's names of its files."""
        if self._process is not None and self._work is not None:
            status = self._process.wait()
            self._process = None
            prepared_headers.keep(self._work / "headers", self._headers)
            log = self._log(self._work)
            if status:
                return False, log or f"the compilers ended with status {status}"
            with contextlib.suppress(OSError):
                (self._work / "runtime.o").rename(self._runtime)
            with contextlib.suppress(OSError):  # another worker may have built the same meanwhile
                self._work.rename(self._final)
        return self.library.exists(), self._log(self._final)

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self._stop()
        work = getattr(self, "_work", None)
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)

    def _stop(self) -> None:
        """End the compilers of a build that nobody waits for any more."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, request: BuildExtension, architecture: str) -> None:
        extensions_directory().mkdir(parents=True, exist_ok=True, mode=0o700)
        work = self._work = Path(tempfile.mkdtemp(prefix=f"{self._final.name[:16]}.", dir=extensions_directory()))
        for path, text in [*request.sources, *request.headers]:
            file = commands.placed(work, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        commands.placed(work, "telegrad_runtime.cpp").write_text("#include <telegrad/runtime.h>\n")
        runtime = self._runtime if self._runtime.exists() else None
        preparing, prefix = self._prepare(request, work)
        steps = commands.steps(request, work, architecture, runtime, prefix)
        job = {"steps": steps, "preparing": preparing, "seconds": SECONDS, "memory_bytes": MEMORY_BYTES}
        (work / "job.json").write_text(json.dumps(job))
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_JOB), str(work)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def _prepare(self, request: BuildExtension, work: Path) -> tuple[list[str], Prefix | None]:
        """Return the command that prepares headers, if any, and what sources begin with."""
        sources = prepared_headers.beginning(request)
        if not sources or self._flags is None:
            return [], None
        if prepared_headers.is_prepared(self._headers):
            return [], Prefix(self._headers / prepared_headers.NAME, sources)
        if not self._headers.exists():  # these flags come for the first time
            self._headers.mkdir(exist_ok=True)
            return [], None
        header = work / "headers" / prepared_headers.NAME
        header.parent.mkdir()
        header.write_text(prepared_headers.TEXT)
        return commands.preparing(request, header, self._flags), Prefix(header, sources)

    def _log(self, directory: Path) -> str:
        try:
            text = (directory / "log.txt").read_bytes()[:LOG_BYTES].decode(errors="replace")
        except OSError:
            return ""
        parts = re.split("|".join(re.escape(f"{work}/files/") for work in {directory, self._work or directory}), text)
        return "/".join(map(without_folders, parts))


def _hash(*parts: Any) -> str:
    """Return the name of what is made of these parts and telegrad's headers."""
    return hashlib.sha256(msgspec.json.encode([_headers(), *parts])).hexdigest()[:40]


@cache
def _headers() -> str:
    digest = hashlib.sha256()
    for path in sorted(commands.INCLUDE.rglob("*.h")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
