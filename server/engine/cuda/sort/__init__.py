"""CUDA kernels that order elements: sorting, selection by rank, and searching in sorted lines."""

from __future__ import annotations
