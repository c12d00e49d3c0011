"""The server's CPU as a device, under ``torch.cpu``'s names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from telegrad._session.current import current_session

from . import cpu_amp as amp

__all__ = [
    "amp", "current_device", "current_stream", "device_count", "is_available", "is_initialized", "set_device",
    "stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether there is a CPU: there always is."""
    return True


def is_initialized() -> bool:
    """Whether the CPU can be used: it always can."""
    return True


def device_count() -> int:
    """How many CPU devices there are: one, which is all of the server's CPU."""
    return 1


def current_device() -> str:
    """Return "cpu", the name of the only device of this module."""
    return "cpu"


def set_device(device: Any) -> None:
    """Do nothing: there is one CPU device."""


def synchronize(device: Any = None) -> None:
    """Wait until the CPU has done everything submitted to it so far; raises what failed."""
    current_session().synchronize("cpu")


def current_stream(device: Any = None) -> None:
    """Return None, since a CPU has no streams to choose between."""


@contextmanager
def stream(stream: Any) -> Iterator[None]:
    """Do nothing: a CPU has no streams."""
    yield
