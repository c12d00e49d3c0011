"""A server for tests, and what can be asked of it from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import psutil

from tests.support import plain_http

from ..transport.waiting import wait_until

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join((str(ROOT / "client"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])))


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's environment without telegrad's settings, plus ``variables``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TELEGRAD_")}
    return kept | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"} | variables


class ServerProcess:
    """``python -m server``, or another module; a context manager that leaves no process behind.

    It listens on a free port, ``url``, and on a Unix socket, ``unix``. ``stderr`` is the file that its log goes to.
    """

    token = ""
    """What the requests of this class show to the server."""

    def __init__(self, module: str = "server", stderr: str | None = None, **variables: str) -> None:
        ready, ready_end = os.pipe()
        parent_end, self._parent = os.pipe()
        settings = {"TELEGRAD_DEVICES": "cpu", "TELEGRAD_LOG_LEVEL": "ERROR", "TELEGRAD_PORT": "0"}
        settings |= {"TELEGRAD_UNIX_SOCKET": "private"} | variables
        with contextlib.ExitStack() as stack:
            errors = None if stderr is None else stack.enter_context(Path(stderr).open("w"))
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, "--ready-fd", str(ready_end), "--parent-fd", str(parent_end)],
                pass_fds=(ready_end, parent_end), env=clean_environment(**settings), cwd=ROOT,
                stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, stderr=errors,
            )  # fmt: skip
        os.close(ready_end)
        os.close(parent_end)
        with os.fdopen(ready) as pipe:
            message = json.loads(pipe.readline())
        self.url, self.unix = message["url"], message.get("unix", "")
        self.port = int(self.url.rpartition(":")[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        children = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        os.close(self._parent)
        self.process.wait(30)
        wait_until(lambda: not any(child.is_running() for child in children), "the workers ended")
        if self.process.returncode == -signal.SIGKILL and self.unix:
            socket = Path(self.unix.removeprefix("unix:"))  # in a directory of its own, unless a test has said where
            socket.unlink()
            with contextlib.suppress(OSError):
                socket.parent.rmdir()

    def signal(self, number: signal.Signals) -> None:
        """Send the gateway a signal."""
        self.process.send_signal(number)

    @property
    def worker(self) -> psutil.Process:
        """The engine's process, where there is one."""
        return next(
            child for child in psutil.Process(self.process.pid).children() if "worker" in " ".join(child.cmdline())
        )

    def worker_process(self, number: int) -> psutil.Process:
        """The process of one of several workers, which has to serve."""
        devices = [device for device in self.get("/v1/devices") if device["worker"] == number]
        return psutil.Process(devices[0]["pid"])

    def get(self, path: str, **options: Any) -> Any:
        """What ``path`` answers: JSON, or text."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        answer = plain_http.get(self.url + path, headers=headers, timeout=30, **options)
        answer.raise_for_status()
        return answer.json() if "json" in answer.headers["content-type"] else answer.text

    def metric(self, name: str) -> float:
        """A number of ``/metrics``; the sum over its labels, where it has some."""
        lines = self.get("/metrics").splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    @property
    def sessions(self) -> int:
        """How many are open."""
        return int(self.metric("telegrad_sessions"))

    @property
    def operations(self) -> int:
        """How many the worker has executed since it started."""
        return int(self.metric("telegrad_operations_total"))

    @property
    def allocated_bytes(self) -> int:
        """Bytes in tensors of all sessions on the host."""
        return self.held_on("cpu")

    def held_on(self, device: str) -> int:
        """Bytes of all sessions on a device: without what the server keeps for itself there."""
        segments = self.get("/memory_snapshot", params={"device": device, "traces": False})["segments"]
        blocks = [block for segment in segments for block in segment["blocks"] if block["owner"]]
        return sum(block["size"] for block in blocks if block["state"] != "inactive")
