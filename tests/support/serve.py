"""``python -m server`` with a simulated node's host in its worker, which has to be given both of its GPUs."""

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
    hardware.visible_gpus = lambda environ=os.environ: ["GPU-0", "GPU-1"]
    hardware.has_cupy = lambda: True
    node = functools.partial(Node, host="tests.support.node:SimulatedHost", warming=Warming(("true",)))
    server.gateway.app.Node = node  # type: ignore[misc,assignment]
    sys.exit(main())
