"""Starts worker processes, the first of them before it is known what for: it imports the engine beside the gateway.

``begin`` is called once the settings are known to be good. Knows no event loop, and imports little.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from server.ipc.worker_environment import DESCRIPTORS, MALLOC

SECRETS: Final = frozenset(
    {"TELEGRAD_TOKEN", "TELEGRAD_ADMIN_TOKEN", "TELEGRAD_OWNER", "TELEGRAD_TENANTS", "TELEGRAD_TLS_KEY"}
)
"""Variables of the gateway that its workers do not get: clients' code may run in them."""
_Waiting = tuple[socket.socket, "subprocess.Popen[bytes]"]
_waiting: list[_Waiting] = []


def begin() -> None:
    """Start a process that imports the engine and becomes the next worker."""
    ours, theirs = socket.socketpair()
    with theirs:
        _waiting.append((ours, _popen(["--wait", str(theirs.fileno())], [theirs.fileno()], {})))


def end() -> None:
    """End processes that wait, where the server does not come to need them."""
    while _waiting:
        ours, process = _waiting.pop()
        with ours:
            process.kill()
            process.wait()


def start(options: Sequence[str], descriptors: Sequence[int], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a worker, whose ``descriptors`` are those of DESCRIPTORS, or tell one that waits. Raises OSError."""
    while _waiting:
        ours, process = _waiting.pop()
        with ours:
            if _told(ours, json.dumps([options, variables]), descriptors) and process.poll() is None:
                return process
    numbers = [part for pair in zip(DESCRIPTORS, map(str, descriptors)) for part in pair]
    return _popen([*options, *numbers], descriptors, variables)


def _told(process: socket.socket, text: str, descriptors: Sequence[int]) -> bool:
    try:
        socket.send_fds(process, [text.encode()], descriptors)
    except OSError:
        return False
    return True


def _popen(
    options: Sequence[str], descriptors: Sequence[int], variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
    return subprocess.Popen(
        [sys.executable, "-m", "server.worker", *options], pass_fds=descriptors, stdin=subprocess.DEVNULL,
        env={**MALLOC, **environment, **variables},
    )  # fmt: skip
