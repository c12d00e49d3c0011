"""Automatic mixed precision under ``torch.amp``'s names."""

from __future__ import annotations

from .autocast_mode import autocast, is_autocast_available

__all__ = ["autocast", "is_autocast_available"]
