"""Where what is compiled on this machine is kept on the disk. Knows no compiler."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

DEFAULT_KERNEL_BYTES: Final = 2 << 30
_UNITS: Final = {"b": 1} | {
    f"{letter}{kind}b": base**power
    for kind, base in (("", 1000), ("i", 1024))
    for power, letter in enumerate("kmgt", 1)
}
_SIZE: Final = re.compile(rf"(\d*\.?\d+)\s*({'|'.join(_UNITS)})?")
"""A number of bytes as the gateway's settings take it, which checks it."""


def kernels_directory(chosen: str | None = None) -> Path:
    """Return where machine code is kept: ``chosen``, by default ``TELEGRAD_KERNEL_CACHE``, else in the user's cache."""
    own = _chosen(chosen)
    return _users_cache() / "kernels" if own is None else own


def extensions_directory() -> Path:
    """Return where C++ extensions are kept, beside machine code or in its directory."""
    return (_chosen(None) or _users_cache()) / "extensions"


def most_kernel_bytes() -> float:
    """Return how many bytes of kernels for GPUs may be kept: ``TELEGRAD_KERNEL_CACHE_BYTES``."""
    text = os.environ.get("TELEGRAD_KERNEL_CACHE_BYTES", "")
    match = _SIZE.fullmatch(text.strip().lower())
    return DEFAULT_KERNEL_BYTES if match is None else float(match[1]) * _UNITS[match[2] or "b"]


def _chosen(chosen: str | None) -> Path | None:
    named = chosen or os.environ.get("TELEGRAD_KERNEL_CACHE")
    return Path(named) if named else None


def _users_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "telegrad"
