"""Modes of the program that concern its GPUs: whether it is told which of its lines wait."""

from __future__ import annotations

from telegrad._session import sync_debug

__all__ = ["get_sync_debug_mode", "set_sync_debug_mode"]


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Have lines that wait for the server pass (``"default"``, 0), warn (``"warn"``, 1) or raise (``"error"``, 2).

    The warning stands at the line of the program; the error is a SynchronizationError. Every round trip counts, those
    of a CPU too, but not one that ``synchronize`` makes. The mode holds for all threads.
    """
    sync_debug.set_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """The number of the mode that ``set_sync_debug_mode`` has chosen."""
    return sync_debug.mode
