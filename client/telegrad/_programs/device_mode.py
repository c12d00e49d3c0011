"""``torch.utils._device``: new tensors on a device, as a mode that a program may enter."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from telegrad._session.devices import DeviceLike, as_device
from telegrad._session.thread_modes import thread


class DeviceContext:
    """Makes tensors on a device while it is entered, where no device is named."""

    def __init__(self, device: DeviceLike) -> None:
        self.device = as_device(device)

    def __enter__(self) -> DeviceContext:
        self.device.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.device.__exit__(*error)


def device_decorator(device: DeviceLike, func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes its tensors on a device."""

    @wraps(func)
    def on_device(*args: Any, **kwargs: Any) -> Any:
        with DeviceContext(device):
            return func(*args, **kwargs)

    return on_device


def set_device(device: DeviceLike) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator of functions that make their tensors on a device."""
    return lambda func: device_decorator(device, func)


def __getattr__(name: str) -> Any:
    if name == "CURRENT_DEVICE":
        return thread.modes.default_device
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
