"""The device on which a block of code makes its tensors, under the names of ``torch.utils._device``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from telegrad_protocol.meta import Device

_Function = TypeVar("_Function", bound=Callable[..., Any])


class DeviceContext:
    """A block in which tensors are made on a device where none is named, as ``with torch.device(...)``."""

    def __init__(self, device: Any) -> None:
        self.device = Device(device)

    def __enter__(self) -> DeviceContext:
        self.device.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.device.__exit__(*error)


def device_decorator(device: Any, func: _Function) -> _Function:
    """Return a function that runs within such a block."""

    @wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        with DeviceContext(device):
            return func(*args, **kwargs)

    return run  # type: ignore[return-value]


def set_device(device: Any) -> Callable[[_Function], _Function]:
    """Return a decorator by which a function makes its tensors on a device."""
    return lambda func: device_decorator(device, func)
