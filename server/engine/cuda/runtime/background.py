"""Texts that are compiled beside this process, so that no session waits for the compiler.

A process of its own compiles them one after another into the kernel cache. It is started with the first text, and ends
once it has compiled all, once nobody waits for any, and with this process. Answers are looked for when somebody asks;
nothing waits for them.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from functools import cache
from typing import Final

import msgspec

from server.compilations import compilations

from .compile_texts import LENGTH, framed
from .compiler import is_kept

log = logging.getLogger(__name__)
COMMAND: Final = (sys.executable, "-m", "server.engine.cuda.runtime.compile_texts")
MOST_SENT: Final = 4
"""Texts that the process has been given and not answered: enough that it never waits, and that writes never do."""
MOST_WAITING: Final = 256
"""Texts that wait to be given to it; what is asked for beyond that has to be asked for again."""
_PIPE_BYTES: Final = 1 << 20
_MOST_BYTES: Final = _PIPE_BYTES // MOST_SENT
"""Of a text; those of the project's kernels have some ten thousand."""
_READ_BYTES: Final = 1 << 16
_MOST_FAILED: Final = 1 << 10
"""So many texts that have failed are remembered; beyond that all are forgotten, and may be tried again."""
_MOST_DEATHS: Final = 3
"""So many processes in a row that end without an answer, and no other one is started."""


class BackgroundCompiler:
    """Has texts compiled for an architecture. ``users`` counts those who wait for some."""

    def __init__(self, architecture: str) -> None:
        self.users = 0
        self._failed: set[str] = set()
        self._architecture = architecture
        self._waiting: deque[str] = deque()
        self._sent: deque[str] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""
        self._deaths = 0

    def is_done(self, source: str) -> bool:
        """Whether a text was compiled, or has failed; where it was not asked for yet, it is, if there is room."""
        if source in self._failed:
            return True
        if source in self._sent or source in self._waiting:
            return False
        if is_kept(source, self._architecture):
            return True
        if len(source) > _MOST_BYTES or self._deaths >= _MOST_DEATHS:
            self._fail(source, "it is too long" if len(source) > _MOST_BYTES else "the compiler's process ends")
            return True
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(source)
        return False

    def has_failed(self, source: str) -> bool:
        """Whether a text does not compile, or could not be compiled."""
        return source in self._failed

    def advance(self) -> None:
        """Take the answers that have come, and give the process what waits; never waits itself."""
        if self._process is not None:
            self._receive(self._process)
        while self._waiting and len(self._sent) < MOST_SENT and self._send(self._waiting[0]):
            self._sent.append(self._waiting.popleft())
        if self._process is not None and not self._sent:
            self._end()

    def stop(self) -> None:
        """End the process; what was to be compiled is forgotten."""
        self._waiting.clear()
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        self._sent.clear()
        self._received = b""
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]
            process.kill()
            process.wait()

    def _send(self, source: str) -> bool:
        process = self._process or self._start()
        if process is None or process.stdin is None:
            return False
        try:
            process.stdin.write(framed((source, self._architecture)))
            process.stdin.flush()
        except OSError:  # it has ended
            self._die()
            return False
        return True

    def _start(self) -> subprocess.Popen[bytes] | None:
        try:
            process = subprocess.Popen(
                COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            self._deaths = _MOST_DEATHS
            self._fail_all(f"the compiler's process cannot be started: {error}")
            return None
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(process.stdin.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(process.stdout.fileno(), False)
        self._process = process
        return process

    def _receive(self, process: subprocess.Popen[bytes]) -> None:
        try:
            received = os.read(process.stdout.fileno(), _READ_BYTES)  # type: ignore[union-attr]
        except BlockingIOError:
            return
        if not received:
            self._die()
            return
        self._received += received
        while len(self._received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            complaint = msgspec.msgpack.decode(self._received[LENGTH.size : end], type=str)
            self._received = self._received[end:]
            self._note(self._sent.popleft(), complaint)

    def _note(self, source: str, complaint: str) -> None:
        self._deaths = 0
        if complaint:
            self._fail(source, complaint)
        else:
            compilations.beside += 1

    def _die(self) -> None:
        """Give up the text that the process had when it ended; the others are compiled by another process."""
        self._deaths += 1
        sent = list(self._sent)
        self._end()
        if sent:
            self._fail(sent[0], "the compiler's process has ended")
            self._waiting.extendleft(reversed(sent[1:]))
        if self._deaths >= _MOST_DEATHS:
            self._fail_all("the compiler's process ends")

    def _fail_all(self, reason: str) -> None:
        while self._waiting:
            self._fail(self._waiting.popleft(), reason)

    def _fail(self, source: str, reason: str) -> None:
        if not self._failed:
            log.warning("a kernel was not compiled; operations are executed one by one", extra={"cause": reason})
        if len(self._failed) >= _MOST_FAILED:
            self._failed.clear()
        compilations.failed += 1
        self._failed.add(source)


@cache
def background_compiler(architecture: str) -> BackgroundCompiler:
    """Return that of this process for an architecture."""
    return BackgroundCompiler(architecture)


class Awaited:
    """Texts that somebody waits for."""

    __slots__ = ("_compiler", "_missing")

    def __init__(self, compiler: BackgroundCompiler, texts: Iterable[str]) -> None:
        self._compiler = compiler
        self._missing = list(dict.fromkeys(texts))
        compiler.users += 1

    def __del__(self) -> None:
        self._compiler.users -= 1
        if not self._compiler.users:
            self._compiler.stop()

    def is_over(self) -> bool:
        """Whether each of them was compiled, or has failed; looks at what has come since the last time."""
        compiler = self._compiler
        compiler.advance()
        self._missing = [source for source in self._missing if not compiler.is_done(source)]
        compiler.advance()
        return not self._missing

    def has_failed(self, text: str) -> bool:
        """Whether one of them does not compile."""
        return self._compiler.has_failed(text)
