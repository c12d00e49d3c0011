"""Devices as users name them: by a string such as ``"cuda:0"``, by the index of a GPU, or by a ``Device``."""

from __future__ import annotations

from typing import Any, TypeAlias

from telegrad_protocol.errors import ArgumentTypeError, DeviceError
from telegrad_protocol.meta import Device

from .current import current_session
from .session import ClientSession

DeviceLike: TypeAlias = str | Device | int | None
"""None stands for the default device, or for no change of device, as the function says."""


def as_device(device: Any) -> Device:
    """Return the device that ``device`` names; an integer is the index of a GPU."""
    if isinstance(device, int) and not isinstance(device, bool):
        return Device("cuda", device)
    if isinstance(device, (str, Device)):
        return Device(device)
    raise ArgumentTypeError(f"a device is named by a string such as 'cuda:0', not by {device!r}")


def require_device(device: Device, session: ClientSession, function: str = "") -> Device:
    """Return ``device`` if the server of ``session`` has it; raises DeviceError in the name of ``function`` if not."""
    if device not in session.devices:
        prefix = f"{function}: " if function else ""
        raise DeviceError(
            f"{prefix}device {device} is not there; the server has {', '.join(map(str, session.devices))}"
        )
    return device


def device_name(device: DeviceLike) -> str:
    """Return the name of a device of the current session, of the default one for None."""
    session = current_session()
    if device is None:
        return session.default_device.name
    return require_device(as_device(device), session).name
