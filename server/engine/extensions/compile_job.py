"""The helper process that builds one extension: compilers under limits of time and memory. Run as a file of its own.

Its argument is a directory with ``job.json``; what the compilers say goes to ``log.txt`` there.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main(directory: Path) -> int:
    """Run the job's commands, those of one step side by side; returns the status of the first that fails."""
    job: dict[str, Any] = json.loads((directory / "job.json").read_text())
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"], job["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end = time.monotonic() + job["seconds"]
    with (directory / "log.txt").open("wb", buffering=0) as log:
        if job["preparing"]:  # what is prepared makes a build quicker; without it the build does the same
            with open(os.devnull, "wb", buffering=0) as nowhere:
                _run_step(directory, [job["preparing"]], nowhere, end, job["seconds"])
        for step in job["steps"]:
            status = _run_step(directory, step, log, end, job["seconds"])
            if status:
                return status
    return 0


def _run_step(directory: Path, step: list[list[str]], log: Any, end: float, seconds: float) -> int:
    running = []
    for command in step:
        log.write(f"+ {' '.join(command)}\n".encode())
        try:
            running.append(subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        except OSError as error:
            log.write(f"{command[0]}: {error}\n".encode())
            return 127
    status = 0
    for process in running:
        try:
            status = process.wait(max(end - time.monotonic(), 0)) or status
        except subprocess.TimeoutExpired:
            log.write(f"stopped: the compiler has taken longer than {seconds:g} seconds\n".encode())
            os.killpg(0, signal.SIGKILL)  # the compilers' own children too, and this process last of all
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
