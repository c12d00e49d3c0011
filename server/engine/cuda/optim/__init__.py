"""CUDA kernels that treat whole parameter lists: optimizer steps, gradient norms, ``_foreach_`` operations."""

from __future__ import annotations
