"""What NVIDIA's management library (NVML) tells about a GPU: its load, temperature, power, clock and processes.

The binding is optional: without it a server refuses these questions and answers all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from telegrad_protocol.errors import ArgumentError, NotSupportedError

try:
    import pynvml
except ImportError:
    pynvml = None

_MIB: Final = 1 << 20


def _temperature(gpu: Any) -> int:
    return int(pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU))


def _processes(gpu: Any) -> str:
    """The text of ``torch.cuda.list_gpu_processes`` below its first line."""
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    lines = [f"process {one.pid:>10d} uses {(one.usedGpuMemory or 0) / _MIB:>12.3f} MB GPU memory" for one in processes]
    return "\n".join(lines) or "no processes are running"


_FIGURES: Final[dict[str, Callable[[Any], Any]]] = {
    "device_memory_used": lambda gpu: int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used),
    "memory_usage": lambda gpu: int(pynvml.nvmlDeviceGetUtilizationRates(gpu).memory),
    "utilization": lambda gpu: int(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
    "temperature": _temperature,
    "power_draw": lambda gpu: int(pynvml.nvmlDeviceGetPowerUsage(gpu)),
    "clock_rate": lambda gpu: int(pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)),
    "list_gpu_processes": _processes,
}
"""How each figure is asked for; units are PyTorch's: bytes, percent, degrees Celsius, milliwatts, MHz."""


def figure(name: str, bus_id: str) -> Any:
    """Return a figure, by the name of PyTorch's function, of the GPU with this PCI bus id.

    Raises ArgumentError for a name that is not in the table, NotSupportedError where the binding is not installed or
    the GPU does not tell, such as a MIG device its load.
    """
    ask = _FIGURES.get(name)
    if ask is None:
        raise ArgumentError(f"a GPU has no figure {name!r}; there are {', '.join(_FIGURES)}")
    if pynvml is None:
        raise NotSupportedError(
            f"{name}: the server has no binding of NVIDIA's management library; "
            "its operator can pip install nvidia-ml-py, a part of telegrad-server[cuda]"
        )
    try:
        pynvml.nvmlInit()  # counts its calls, and is quick but for the first
        return ask(pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode()))
    except pynvml.NVMLError as error:
        raise NotSupportedError(f"{name}: the server's GPU does not tell: {error}") from None
