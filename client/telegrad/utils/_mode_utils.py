"""Blocks without modes, under the names of ``torch.utils._mode_utils``."""

from __future__ import annotations

from telegrad._dispatch.asking import without_dispatch as no_dispatch

__all__ = ["no_dispatch"]
