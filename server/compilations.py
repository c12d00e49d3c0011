"""How many texts of kernels this worker has had compiled: in the middle of its sessions' work, and beside it.

Imports nothing of the project: the engine counts, and the worker's loop, which knows no engine, tells the gateway.
"""

from __future__ import annotations

from typing import Final


class Compilations:
    """Counts of one process. ``on_path``: a session waited for the compiler. ``failed``: of those beside it."""

    __slots__ = ("beside", "failed", "on_path")

    def __init__(self) -> None:
        self.on_path = self.beside = self.failed = 0


compilations: Final = Compilations()
"""The counts of this process."""
