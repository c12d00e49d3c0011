"""``AdamW`` under the name of PyTorch's file."""

from __future__ import annotations

from .adam import AdamW

__all__ = ["AdamW"]
