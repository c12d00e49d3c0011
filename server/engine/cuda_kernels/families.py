"""All families of CUDA kernels; importing this files them with their operations."""

from __future__ import annotations

__all__: list[str] = []
