"""GPUs of Apple's, which no server has: ``torch.mps`` says that there are none."""

from __future__ import annotations

__all__ = ["device_count", "is_available"]


def is_available() -> bool:
    """Whether the server has such a device: it never has."""
    return False


def device_count() -> int:
    """How many such devices there are: none."""
    return 0
