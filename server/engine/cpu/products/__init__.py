"""Products of large matrices, and what consists of them: ``linear`` and attention. Importing it registers kernels."""

from __future__ import annotations

from . import attention, blocks, half_products, linear

__all__ = ["attention", "blocks", "half_products", "linear"]
