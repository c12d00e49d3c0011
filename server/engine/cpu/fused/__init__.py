"""Fused element-wise kernels on the host, which register with ``server.engine.programs.fused``."""

from __future__ import annotations

from .executor import makes, takes

__all__ = ["makes", "takes"]
