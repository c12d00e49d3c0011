"""Where machine code that was compiled here is kept on the disk."""

from __future__ import annotations

import os
from pathlib import Path


def directory() -> Path:
    """``TELEGRAD_KERNEL_CACHE``, else a folder in the user's cache directory."""
    chosen = os.environ.get("TELEGRAD_KERNEL_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "telegrad" / "kernels"
