"""Where what is compiled on this machine is kept on the disk. Knows no compiler."""

from __future__ import annotations

import os
from pathlib import Path


def kernels_directory(chosen: str | None = None) -> Path:
    """Return where machine code is kept: ``chosen``, by default ``TELEGRAD_KERNEL_CACHE``, else in the user's cache."""
    own = _chosen(chosen)
    return _users_cache() / "kernels" if own is None else own


def extensions_directory() -> Path:
    """Return where C++ extensions are kept, beside machine code or in its directory."""
    return (_chosen(None) or _users_cache()) / "extensions"


def _chosen(chosen: str | None) -> Path | None:
    named = chosen or os.environ.get("TELEGRAD_KERNEL_CACHE")
    return Path(named) if named else None


def _users_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "telegrad"
