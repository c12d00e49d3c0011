"""Run as a script: print, as JSON, what the CUDA driver calls the GPUs that it shows this process.

A process of its own asks the driver, so that the gateway holds nothing of it, whatever happens to a GPU. Imports only
the standard library.
"""

from __future__ import annotations

import ctypes
import json
import uuid
from typing import Any

NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""


def names_of_gpus(driver: Any) -> list[str]:
    """By ordinal, the name that ``CUDA_VISIBLE_DEVICES`` understands in every process."""
    count = ctypes.c_int(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    return [_name_of(driver, ordinal) for ordinal in range(count.value)]


def _name_of(driver: Any, ordinal: int) -> str:
    """``GPU-`` or ``MIG-`` and a UUID; the ordinal where the driver does not tell that.

    The second form of the question is answered with the UUID of a MIG device, the first with that of its GPU.
    """
    device = ctypes.c_int(0)
    whole, own = (ctypes.c_ubyte * 16)(), (ctypes.c_ubyte * 16)()
    try:
        failed = (
            driver.cuDeviceGet(ctypes.byref(device), ordinal)
            or driver.cuDeviceGetUuid(whole, device)
            or driver.cuDeviceGetUuid_v2(own, device)
        )
    except AttributeError:
        failed = True
    if failed:
        return str(ordinal)
    kind = "GPU" if bytes(whole) == bytes(own) else "MIG"
    return f"{kind}-{uuid.UUID(bytes=bytes(own))}"


def probe() -> dict[str, Any]:
    """``gpus``, and as ``error`` the driver's code where it cannot say."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {"gpus": [], "error": 0}
    error = driver.cuInit(0)
    if error:
        return {"gpus": [], "error": 0 if error == NO_DEVICE else error}
    return {"gpus": names_of_gpus(driver), "error": 0}


if __name__ == "__main__":
    print(json.dumps(probe()))
