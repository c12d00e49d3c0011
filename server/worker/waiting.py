"""The start of a worker process that is told later what it is for, and imports the engine meanwhile.

The gateway starts such a process before it imports its own application (``gateway/workers/early``). It ends if the
gateway ends without a word.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final

from server.ipc.worker_environment import DESCRIPTORS

MOST_BYTES: Final = 1 << 16


def options_of_worker(given: Sequence[str]) -> list[str]:
    """Return the options of the command line, or those that the gateway sends to the socket that it has for them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--wait", type=int, help="socket that brings the options")
    known, others = parser.parse_known_args(given)
    return others if known.wait is None else _options_from(socket.socket(fileno=known.wait))


def _options_from(gateway: socket.socket) -> list[str]:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # sent to the whole group, they are for the gateway
    importlib.import_module("server.worker.host")
    with gateway:
        text, descriptors, _, _ = socket.recv_fds(gateway, MOST_BYTES, len(DESCRIPTORS))
    if not text:
        sys.exit()
    options, variables = json.loads(text)
    os.environ.update(variables)
    return [*options, *(part for pair in zip(DESCRIPTORS, map(str, descriptors)) for part in pair)]
