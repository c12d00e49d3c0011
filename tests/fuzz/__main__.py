"""``python -m tests.fuzz``: mutated frames until there were enough of them, or time is up; see ``--help``.

Portions of frames are given to processes, each of which runs them against sessions of its own; every so many go through
the socket of a real server instead. The campaign's state is a file, and the same command continues it. A process that
dies is a finding like any other. The exit status is 1 where anything was found.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil

from .progress import Progress

SOCKET_SHARE = 20
"""Of so many portions, one goes through a socket."""
LONGEST_SECONDS = 300.0
"""A portion that takes more of a processor's time, or ten times as long by the clock, has hung."""


class Fuzzer:
    """A process that is given numbers of portions, and answers with what came of each."""

    def __init__(self, seed: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz", "--serve", str(seed)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.portion = -1
        self._since = self._used_before = 0.0

    def give(self, portion: int) -> None:
        """Have it run a portion."""
        self.portion, self._since, self._used_before = portion, time.monotonic(), self._used
        print(portion, file=self.process.stdin, flush=True)

    @property
    def _used(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    @property
    def hangs(self) -> bool:
        """Whether the present portion takes too long; on a machine with other work the clock says little."""
        waited = time.monotonic() - self._since
        return waited > LONGEST_SECONDS and (
            waited > 10 * LONGEST_SECONDS or self._used - self._used_before > LONGEST_SECONDS
        )

    def end(self) -> int:
        """Let it end after the present portion; its status."""
        self.process.communicate()
        return self.process.returncode


def serve(seed: int) -> None:
    """Be such a process, on standard input and output; what libraries print goes to the standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable()  # defects are reported
    os.environ["TELEGRAD_DEBUG"] = "1"
    from .session_fuzz import SessionFuzz
    from .socket_fuzz import SocketFuzz

    sessions = SessionFuzz(seed)
    with SocketFuzz(seed, sessions.programs) as sockets:
        for line in sys.stdin:
            portion = int(line)
            through_socket = portion % SOCKET_SHARE == SOCKET_SHARE - 1
            frames, wrong = sockets.run(portion) if through_socket else sessions.run(portion)
            print(msgspec.json.encode([frames, through_socket, wrong]).decode(), file=answers, flush=True)
    sessions.close()


def campaign(path: Path, most_frames: int, most_seconds: float, processes: int, seed: int) -> Progress:
    """Continue, or begin, the campaign whose state is in a file."""
    import select

    progress = Progress.of(path, seed)
    begin, before = time.monotonic(), progress.seconds
    fuzzers = [Fuzzer(progress.seed) for _ in range(processes)]
    running: dict[Any, Fuzzer] = {}
    while True:
        is_over = progress.frames >= most_frames or time.monotonic() - begin >= most_seconds
        for fuzzer in fuzzers if not is_over else ():
            if fuzzer.portion < 0:
                fuzzer.give(progress.portions)
                progress.portions += 1
                running[fuzzer.process.stdout] = fuzzer
        if not running:
            break
        for pipe in select.select(list(running), [], [], 1.0)[0]:
            fuzzer = running.pop(pipe)
            if not _note(progress, fuzzer, pipe.readline()):
                fuzzers[fuzzers.index(fuzzer)] = Fuzzer(progress.seed)
        for fuzzer in running.values():
            if fuzzer.hangs:
                fuzzer.process.kill()
        progress.seconds = before + time.monotonic() - begin
        progress.save(path)
    for fuzzer in fuzzers:
        fuzzer.end()
    return progress


def _note(progress: Progress, fuzzer: Fuzzer, line: str) -> bool:
    """Note what came of a portion; whether the process goes on."""
    portion, fuzzer.portion = fuzzer.portion, -1
    if not line:
        status = fuzzer.end()
        if progress.report(f"portion {portion}: the process ended with status {status}"):
            print(f"portion {portion}: the process ended with status {status}", flush=True)
        return False
    frames, through_socket, wrong = msgspec.json.decode(line)
    progress.frames += frames
    progress.socket_frames += frames * through_socket
    for text in wrong:
        if progress.report(text):
            print(text, flush=True)
    return True


def main() -> None:
    """Run a campaign, or a portion of one, or be one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000_000, help="end after so many, earlier runs included")
    parser.add_argument("--seconds", type=float, default=3600.0, help="end after this time, this run alone")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--state", type=Path, default=Path("build/fuzz/state.json"), help="the campaign's file")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="of a new campaign")
    parser.add_argument("--serve", type=int, metavar="SEED", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return
    progress = campaign(options.state, options.frames, options.seconds, options.processes, options.seed)
    print(
        f"{progress.frames} mutated frames, {progress.socket_frames} of them through sockets, in "
        f"{progress.seconds:.0f} s (seed {progress.seed}, {progress.portions} portions); "
        f"{len(progress.findings)} findings in {options.state}"
    )
    sys.exit(bool(progress.findings))


if __name__ == "__main__":
    main()
