"""What a GPU is doing just now, told by the management library of its node. Each function is one round trip.

Figures are those of the whole GPU, whoever uses it. A server without the library's binding refuses, and says so.
"""

from __future__ import annotations

from typing import Any

from telegrad._session.current import current_session
from telegrad._session.devices import DeviceLike, gpu_of

__all__ = [
    "clock_rate", "device_memory_used", "list_gpu_processes", "memory_usage", "power_draw", "temperature",
    "utilization",
]  # fmt: skip


def _ask(name: str, device: DeviceLike) -> Any:
    return current_session().query("device_figure", gpu_of(name, device).name, name)


def device_memory_used(device: DeviceLike = None) -> int:
    """Bytes of the GPU's memory that are in use."""
    return int(_ask("device_memory_used", device))


def memory_usage(device: DeviceLike = None) -> int:
    """In how many percent of the last second or less the GPU's memory was read or written."""
    return int(_ask("memory_usage", device))


def utilization(device: DeviceLike = None) -> int:
    """In how many percent of the last second or less the GPU was executing kernels."""
    return int(_ask("utilization", device))


def temperature(device: DeviceLike = None) -> int:
    """The GPU's temperature in degrees Celsius."""
    return int(_ask("temperature", device))


def power_draw(device: DeviceLike = None) -> int:
    """What the GPU draws, in milliwatts."""
    return int(_ask("power_draw", device))


def clock_rate(device: DeviceLike = None) -> int:
    """The clock of the GPU's multiprocessors in MHz."""
    return int(_ask("clock_rate", device))


def list_gpu_processes(device: DeviceLike = None) -> str:
    """A text with the processes of the server's node that use the GPU, and their memory."""
    gpu = gpu_of("list_gpu_processes", device)
    return f"GPU:{gpu.index}\n{_ask('list_gpu_processes', gpu)}"
