"""A private server: gateway and worker as child processes of this one, gone when it is.

The program reaches it by a Unix socket in a directory that only this user can enter. Its loopback port is for browsers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
from typing import Any

from telegrad_protocol.errors import ConnectError

STOP_SECONDS = 10.0


class PrivateServer:
    """Runs ``python -m server`` on a free loopback port; it ends when the pipe to this process closes.

    ``url`` is the address that programs connect to, ``pages`` the one for browsers.
    """

    def __init__(self, devices: str | None = None, gpus: int | None = None) -> None:
        if importlib.util.find_spec("server") is None:
            raise ConnectError(
                "no address of a server was given, and telegrad-server is not installed here to start a private one\n"
                "  call connect('http://gpu-node:8000') with your server's address, set TELEGRAD_URL, or install it"
            )
        self._owner = os.getpid()
        ready, ready_end = os.pipe()
        parent_end, self._parent = os.pipe()
        command = [sys.executable, "-m", "server", "--host", "127.0.0.1", "--port", "0"]
        if hasattr(socket, "AF_UNIX"):
            command += ["--unix-socket", "private"]
        command += ["--ready-fd", str(ready_end), "--parent-fd", str(parent_end)]
        if devices or not os.environ.get("TELEGRAD_DEVICES"):
            command += ["--devices", devices or _devices_of_one_worker(gpus)]
        self._process = subprocess.Popen(
            command,
            pass_fds=(ready_end, parent_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
        os.close(ready_end)
        os.close(parent_end)
        self.url = ""
        message = self._await_ready(ready)
        self.pages = str(message["url"])
        self.url = str(message.get("unix") or self.pages)

    def _await_ready(self, ready: int) -> dict[str, Any]:
        with os.fdopen(ready) as pipe:
            line = pipe.readline()
        if not line:
            code = self._process.wait()
            self.stop()
            raise ConnectError(
                f"the private server did not start: it exited with status {code}, and its message stands above\n"
                "  connect('http://gpu-node:8000') uses a server that runs elsewhere, as TELEGRAD_URL does"
            )
        ready_message: dict[str, Any] = json.loads(line)
        return ready_message

    def stop(self) -> None:
        """End the server and wait until it has gone; a process that was forked leaves it to the one that started it."""
        if self._owner != os.getpid():
            return
        if self._parent >= 0:
            os.close(self._parent)
            self._parent = -1
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._remove_socket()

    def _remove_socket(self) -> None:
        """Remove the socket and its directory, which a server that was killed has left."""
        if self.url.startswith("unix:"):
            path = self.url.removeprefix("unix:")
            with contextlib.suppress(FileNotFoundError):  # any other server has removed both itself
                os.unlink(path)
                os.rmdir(os.path.dirname(path))

    def abandon(self) -> None:
        """In a forked process: leave the server to the other one, and do not keep it alive when that ends."""
        os.close(self._parent)
        self._parent = -1
        self._process.returncode = 0  # or its finalizer would warn of a process that is not this one's child

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if self._parent >= 0:
                self.stop()


def _devices_of_one_worker(gpus: int | None) -> str:
    """Return the devices for as many GPUs as are wanted: all, as PyTorch would show them, where no number is given."""
    if gpus is None:
        return "all"
    return ",".join(f"cuda:{index}" for index in range(gpus)) or "cpu"


def _environment() -> dict[str, str]:
    """Return this process's environment without the variables that say where and how a server is to be reached."""
    left_out = ("TELEGRAD_HOST", "TELEGRAD_PORT", "TELEGRAD_TOKEN", "TELEGRAD_URL")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in left_out and not name.startswith("TELEGRAD_UNIX_SOCKET")
    }
    environment.setdefault("TELEGRAD_LOG_LEVEL", "WARNING")
    environment.setdefault("TELEGRAD_ALLOW_KERNELS", "shared")  # all its sessions are this program's
    environment.setdefault("TELEGRAD_MEMORY_SHARE", "1")  # nobody else is there
    environment.setdefault("TELEGRAD_ALLOW_HOST_CODE", "shared")  # it runs as this user, and serves this program
    environment.setdefault("TELEGRAD_DEBUG", "1")
    for limit in ("INSTRUCTION_SECONDS", "KERNEL_SECONDS", "OPERATION_WORK", "GRAPH_NODES"):
        environment.setdefault(f"TELEGRAD_{limit}", "inf")  # nobody else waits for it
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return environment
