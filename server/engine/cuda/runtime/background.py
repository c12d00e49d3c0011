"""Texts that are compiled beside this process, so that no session waits for the compiler.

A few processes compile them into the kernel cache, each one text after another, since the compiler serves one caller at
a time. They are started where texts wait, and end once all are compiled, once nobody waits for any, and with this
process. Answers are looked for when somebody asks; nothing waits for them.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

import msgspec

from server.compilations import compilations

from .compile_texts import LENGTH, framed
from .compiler import is_kept

log = logging.getLogger(__name__)
COMMAND: Final = (sys.executable, "-m", "server.engine.cuda.runtime.compile_texts")
_PROCESSORS: Final = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
PROCESSES = min(max(_PROCESSORS // 4, 1), 4)
"""Processes that compile at the same time; programs, their server and other workers have the other processors."""
MOST_SENT: Final = 4
"""Texts that a process has been given and not answered: enough that it never waits, and that writes never do."""
MOST_WAITING: Final = 256
"""Texts that wait to be given to one; what is asked for beyond that has to be asked for again."""
_PIPE_BYTES: Final = 1 << 20
_MOST_BYTES: Final = _PIPE_BYTES // MOST_SENT
"""Of a text; those of the project's kernels have some ten thousand."""
_READ_BYTES: Final = 1 << 16
_MOST_FAILED: Final = 1 << 10
"""So many texts that have failed are remembered; beyond that all are forgotten, and may be tried again."""
_MOST_DEATHS: Final = 3
"""So many processes in a row that end without an answer, and no other one is started."""


class _Process:
    """One that compiles: what it was given and has not answered, and what has come of its next answer."""

    __slots__ = ("_process", "_received", "sent")

    def __init__(self) -> None:
        self._process = process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(process.stdin.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(process.stdout.fileno(), False)
        self._received = b""
        self.sent: deque[str] = deque()

    def send(self, source: str, architecture: str) -> None:
        """Give it a text; OSError if it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(framed((source, architecture)))
        self._process.stdin.flush()
        self.sent.append(source)

    def answers(self) -> Iterator[tuple[str, str]]:
        """Yield texts that it has answered, with what the compiler complains about; EOFError if it has ended."""
        try:
            received = os.read(self._process.stdout.fileno(), _READ_BYTES)  # type: ignore[union-attr]
        except BlockingIOError:
            return
        if not received:
            raise EOFError
        self._received += received
        while len(self._received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            complaint = msgspec.msgpack.decode(self._received[LENGTH.size : end], type=str)
            self._received = self._received[end:]
            yield self.sent.popleft(), complaint

    def end(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._process.kill()
        self._process.wait()


class BackgroundCompiler:
    """Has texts compiled for an architecture. ``users`` counts those who wait for some."""

    def __init__(self, architecture: str) -> None:
        self.users = 0
        self._failed: set[str] = set()
        self._architecture = architecture
        self._waiting: deque[str] = deque()
        self._processes: list[_Process] = []
        self._deaths = 0

    def is_done(self, source: str) -> bool:
        """Whether a text was compiled, or has failed; where it was not asked for yet, it is, if there is room."""
        if source in self._failed:
            return True
        if source in self._waiting or any([source in process.sent for process in self._processes]):
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
        """Take the answers that have come, and give processes what waits; never waits itself."""
        for process in [*self._processes]:
            self._receive(process)
        while self._waiting and (free := self._free()) is not None:
            self._give(free)
        for process in [process for process in self._processes if not process.sent]:
            self._end(process)

    def stop(self) -> None:
        """End all processes; what was to be compiled is forgotten."""
        self._waiting.clear()
        for process in [*self._processes]:
            self._end(process)

    def _end(self, process: _Process) -> None:
        self._processes.remove(process)
        process.end()

    def _free(self) -> _Process | None:
        """Return the process that has the fewest texts, a new one if all have some; None if no more are to be sent."""
        least = min(self._processes, key=lambda process: len(process.sent), default=None)
        if (least is None or least.sent) and len(self._processes) < PROCESSES:
            return self._start()
        return None if least is None or len(least.sent) >= MOST_SENT else least

    def _start(self) -> _Process | None:
        try:
            process = _Process()
        except OSError as error:
            self._deaths = _MOST_DEATHS
            self._fail_all(f"the compiler's process cannot be started: {error}")
            return None
        self._processes.append(process)
        return process

    def _give(self, process: _Process) -> None:
        try:
            process.send(self._waiting[0], self._architecture)
        except OSError:  # it has ended
            self._die(process)
        else:
            self._waiting.popleft()

    def _receive(self, process: _Process) -> None:
        try:
            for source, complaint in process.answers():
                self._note(source, complaint)
        except EOFError:
            self._die(process)

    def _note(self, source: str, complaint: str) -> None:
        self._deaths = 0
        if complaint:
            self._fail(source, complaint)
        else:
            compilations.beside += 1

    def _die(self, process: _Process) -> None:
        """Give up the text that a process had when it ended; its others are compiled by another process."""
        self._deaths += 1
        sent = list(process.sent)
        self._end(process)
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
