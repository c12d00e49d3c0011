"""Devices that PyTorch has and a server has not, under PyTorch's names: programs ask whether they are there."""

from __future__ import annotations

from types import ModuleType

from telegrad import cuda
from telegrad._session.devices import DeviceLike, as_device
from telegrad_protocol.errors import DeviceError

from . import cpu as cpu
from . import mps as mps
from . import mtia as mtia
from . import xpu as xpu

__all__ = ["cpu", "get_device_module", "mps", "mtia", "xpu"]


def get_device_module(device: DeviceLike = None) -> ModuleType:
    """Return the module of a kind of device, ``cuda`` or ``cpu``; without a device that of the GPU, if there is one."""
    if device is None:
        return cuda if cuda.is_available() else cpu
    kind = as_device(device).type
    modules: dict[str, ModuleType] = {"cuda": cuda, "cpu": cpu}
    if kind not in modules:
        raise DeviceError(f"get_device_module: there is no module for {kind!r}; there are {', '.join(modules)}")
    return modules[kind]
