"""Which devices this machine has, found out without a CUDA context: that belongs to the workers."""

from __future__ import annotations

import ctypes
import importlib.util

from telegrad_protocol.errors import ConfigurationError

from .settings import Settings


def gpu_count() -> int:
    """CUDA devices that the driver shows us, which heeds ``CUDA_VISIBLE_DEVICES``; 0 without CuPy or a driver."""
    if importlib.util.find_spec("cupy") is None:
        return 0
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def with_devices(settings: Settings) -> Settings:
    """``settings`` with the devices that are there; ``ConfigurationError`` if one was asked for that is not."""
    if settings.devices == ("cpu",):
        return settings
    present = [f"cuda:{index}" for index in range(gpu_count())]
    missing = [device for device in settings.devices if device not in (*present, "cpu")]
    if missing:
        raise ConfigurationError(f"TELEGRAD_DEVICES: {missing[0]} is not there, found {', '.join([*present, 'cpu'])}")
    return settings if settings.devices else settings.model_copy(update={"devices": tuple(present) or ("cpu",)})
