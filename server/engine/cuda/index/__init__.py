"""CUDA kernels that read or write where indices point: gather, scatter, embedding, and sums of rows by index."""

from __future__ import annotations
