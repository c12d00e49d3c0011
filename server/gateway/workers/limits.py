"""What the instructions of a worker's sessions may take. Knows no worker."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of each instruction: its seconds, an operation's multiply-adds on the CPU, and the nodes of a backward graph."""

    instruction_seconds: float = math.inf
    operation_work: float = math.inf
    graph_nodes: float = math.inf
    slow_seconds: float = math.inf
    """From so many seconds on a turn is told of, and nothing more."""
