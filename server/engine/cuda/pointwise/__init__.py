"""CUDA kernels that treat every element alone: expressions, copies and fills."""

from __future__ import annotations
