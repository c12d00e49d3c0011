"""Ranges and marks for Intel's profilers, under ``torch.profiler.itt``'s names. They never reach one.

Such a profiler watches one process, and the work is in the server's. Programs that mark their ranges run; within
``autograd.profiler.emit_nvtx`` NVIDIA's profilers show them.
"""

from __future__ import annotations

from telegrad.cuda.nvtx import mark as mark
from telegrad.cuda.nvtx import range as range
from telegrad.cuda.nvtx import range_pop as range_pop
from telegrad.cuda.nvtx import range_push as range_push

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def is_available() -> bool:
    """Return whether marks reach a profiler: never."""
    return False
