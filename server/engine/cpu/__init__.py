"""Kernels tuned for the host, filed over the generic ones: blocks that fit the cache, BLAS where NumPy is slow.

Importing the package files them; ``engine.ops`` does, when the generic kernels are there.
"""

from __future__ import annotations

from . import activations, copies, half_pieces, losses, normalization, pointwise, reduce, scans, softmax, steps

__all__ = [
    "activations", "copies", "half_pieces", "losses", "normalization", "pointwise", "reduce", "scans", "softmax",
    "steps",
]  # fmt: skip
