"""Compiles the usual kernels of the worker's GPUs beside it, so that few of them are met cold.

A process of its own, out of the way of both others: what is on the disk already costs it a look. Knows architectures by
name, and nothing of kernels.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Final

COMMAND: Final = (sys.executable, "-m", "server.engine.cuda.warm", "--nice")
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""It multiplies nothing, and threads of a library that it imports would be awake for a while on every processor."""

log = logging.getLogger(__name__)


class Warming:
    """The processes that compile."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = command
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, architectures: Iterable[str]) -> None:
        """Begin to compile for these; a machine that cannot start a process compiles when it must."""
        for name in sorted(set(architectures)):
            with contextlib.suppress(OSError):
                self._processes.append(
                    subprocess.Popen(
                        [*self._command, "--architecture", name],
                        env={**os.environ, **_ONE_THREAD},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,  # it has children, which are to end with it
                    )
                )
                log.info("compiling the usual kernels", extra={"architecture": name})

    def stop(self) -> None:
        """End what still compiles."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()


def architecture_of(capability: Sequence[int]) -> str:
    """The architecture that a compute capability names."""
    major, minor = capability
    return f"sm_{major}{minor}"
