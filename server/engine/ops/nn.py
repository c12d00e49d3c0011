"""Neural networks: activations, normalization, losses."""

from __future__ import annotations
