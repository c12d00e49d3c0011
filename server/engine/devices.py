"""Opens devices: one backend per device and process, with the kernels that belong to it.

The only module that knows all backends. CuPy is optional, so what needs it is imported when a GPU is opened.
"""

from __future__ import annotations

import atexit

from telegrad_protocol.meta import Device

from .device.cpu_backend import CpuBackend
from .value import Backend

_OPEN: dict[Device, Backend] = {}


def open_device(device: Device) -> Backend:
    """Return the process's one backend of a device, which is opened at its first use."""
    backend = _OPEN.get(device)
    if backend is None:
        backend = _OPEN[device] = CpuBackend.open() if device.type == "cpu" else _open_cuda(device)
        atexit.register(backend.stop_freeing)
    return backend


def begin_first_uses() -> None:
    """Begin to load, beside this thread, what first uses of the GPUs that are open would wait for."""
    gpus = [device.index or 0 for device in _OPEN if device.type == "cuda"]
    if gpus:
        from .cuda import first_uses

        for index in gpus:
            first_uses.begin(index)


def _open_cuda(device: Device) -> Backend:
    from .cuda.families import import_families
    from .device.cuda_backend import CudaBackend

    import_families()
    return CudaBackend.open(device)
