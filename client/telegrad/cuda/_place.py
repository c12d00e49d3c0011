"""Which device of the session a function is about."""

from __future__ import annotations

from typing import TypeAlias

from telegrad._session import modes as _modes
from telegrad_protocol.errors import DeviceError
from telegrad_protocol.meta import Device

Place: TypeAlias = int | str | Device | None


def name_of(device: Place) -> str:
    """The name of a device given as index, name or None; DeviceError where the server has none such."""
    session = _modes.current_session()
    if device is None:
        return session.default_device.name
    place = Device("cuda", device) if isinstance(device, int) else Device(device)
    if place not in session.devices:
        raise DeviceError(f"device {place} is not there; the server has {', '.join(map(str, session.devices))}")
    return place.name
