"""GPUs of Apple's, which no server has."""

from __future__ import annotations


def is_available() -> bool:
    """Whether the server has such a GPU: it never has."""
    return False


is_built = is_available


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Whether the server runs macOS: it never does."""
    return False


is_macos13_or_newer = is_available
