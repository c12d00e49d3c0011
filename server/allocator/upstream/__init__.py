"""Where memory comes from: CUDA, virtual address ranges, the host, a shared library, or a simulation.

Implements ``core.upstream``; knows segments, but neither blocks nor pools.
"""

from __future__ import annotations
