"""``python -m server`` on a simulated node: two GPUs, which its workers simulate, and nothing to compile for them."""

from __future__ import annotations

import functools
import os
import sys

import server.gateway.app
from server.__main__ import main
from server.gateway import hardware
from server.gateway.node import Node
from server.gateway.warmup import Warming

if __name__ == "__main__":
    node = functools.partial(Node, host="tests.support.node:SimulatedHost", warming=Warming(("true",)))
    server.gateway.app.Node = node  # type: ignore[misc,assignment]
    hardware.visible_gpus = lambda environ=os.environ: ["GPU-0", "GPU-1"]
    hardware.has_cupy = lambda: True
    sys.exit(main())
