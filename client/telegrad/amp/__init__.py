"""Automatic mixed precision under ``torch.amp``'s names."""

from __future__ import annotations

from .autocast_mode import autocast, is_autocast_available
from .custom_functions import custom_bwd, custom_fwd
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
