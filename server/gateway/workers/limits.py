"""What a worker's sessions may take. Knows no worker."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of each instruction: its seconds, an operation's multiply-adds on the CPU, and the nodes of a backward graph.

    ``cpu_memory``: bytes of all tensors on ``cpu``; None for what the machine has. ``has_cpu``: whether sessions may
    have tensors there.
    """

    instruction_seconds: float = math.inf
    kernel_seconds: float = math.inf
    """For so long the device may get no further for a session that has launched kernels of its own."""
    operation_work: float = math.inf
    graph_nodes: float = math.inf
    slow_seconds: float = math.inf
    """From so many seconds on a turn is told of, and nothing more."""
    cpu_memory: int | None = None
    has_cpu: bool = True
    compiled_variants: int | None = None
    """How many variants the programs of one session may have together."""
