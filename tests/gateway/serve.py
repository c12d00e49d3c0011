"""``python -m server`` with the test engine in its workers, and as many GPUs as ``TELEGRAD_FAKE_GPUS`` says."""

from __future__ import annotations

import functools
import os
import sys

import server.gateway.app
from server.__main__ import main
from server.gateway import hardware
from server.gateway.node import Node
from server.gateway.workers import early

if __name__ == "__main__":
    early.begin = lambda: None  # it would import the real engine
    server.gateway.app.Node = functools.partial(Node, host="tests.gateway.engine:Host")  # type: ignore[misc]
    gpus = [f"GPU-{number}" for number in range(int(os.environ.get("TELEGRAD_FAKE_GPUS", "0")))]
    hardware.visible_gpus = lambda environ=os.environ: gpus
    hardware.has_cupy = lambda: True
    sys.exit(main())
