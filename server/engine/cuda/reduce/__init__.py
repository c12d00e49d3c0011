"""CUDA kernels that combine elements: reductions and cumulative operations."""

from __future__ import annotations
