"""Where memory comes from: CUDA, virtual address ranges, the host, a shared library, or a simulation."""

from __future__ import annotations
