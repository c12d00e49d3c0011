"""What NVIDIA's management library (NVML) tells of the server's GPUs: load, memory, temperature, power, errors.

The gateway asks, so that a GPU shows whose worker hangs or has died of it; this uses no CUDA. A thread asks, which the
scrape does not wait for longer than a moment. Without the binding, a driver or a GPU there is nothing to show.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from server.gateway.device_groups import DeviceGroup

try:
    import pynvml
except ImportError:
    pynvml = None

ASK_SECONDS: Final = 1.0
"""How long a scrape waits for the figures of all GPUs."""
_VOLATILE: Final = 0
"""NVML_VOLATILE_ECC: errors since the driver was loaded."""
_ERROR_KINDS: Final = {"corrected": 0, "uncorrected": 1}
_MEGA: Final = 1e6

log = logging.getLogger(__name__)


class Figure(NamedTuple):
    """One value of one GPU: the metric's name without its prefix, the labels beside ``device``."""

    name: str
    labels: tuple[str, ...]
    value: float


_FIGURES: Final[dict[str, Callable[[Any, Any], float]]] = {
    "utilization_ratio": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "memory_utilization_ratio": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).memory / 100,
    "memory_used_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "memory_total_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
    "temperature_celsius": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "power_watts": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "power_limit_watts": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    "clock_hertz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * _MEGA,
}
"""How each figure is asked for, in the units of its metric."""


class Gpus:
    """The GPUs of a server, by the names that they have on the node. ``library`` is the binding of NVML, or None."""

    def __init__(self, groups: Sequence[DeviceGroup], library: Any = pynvml) -> None:
        named = [zip((d for d in group.devices if d != "cpu"), group.visible) for group in groups]
        self._gpus: dict[str, str] = dict(pair for pairs in named for pair in pairs)
        self._library: Any = library if self._gpus else None
        self._asking: asyncio.Future[dict[str, list[Figure]]] | None = None
        if self._gpus and library is None:
            log.info("no figures of GPUs: nvidia-ml-py is not installed, a part of telegrad-server[cuda]")

    async def figures(self) -> dict[str, list[Figure]]:
        """By the GPU's name, what it tells; nothing of it while the driver does not answer."""
        if self._library is None:
            return {}
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().run_in_executor(None, self._ask)
        try:
            return await asyncio.wait_for(asyncio.shield(self._asking), ASK_SECONDS)
        except TimeoutError:
            log.warning("the GPUs' driver does not answer", extra={"seconds": ASK_SECONDS})
            return {}

    def _ask(self) -> dict[str, list[Figure]]:
        nvml = self._library
        try:
            nvml.nvmlInit()  # counts its calls, and is quick but for the first
            driver = _text(nvml.nvmlSystemGetDriverVersion())
        except nvml.NVMLError as error:
            log.warning("no figures of GPUs", extra={"reason": str(error)})
            return {}
        return {device: list(_figures_of(nvml, name, driver)) for device, name in self._gpus.items()}


def _figures_of(nvml: Any, name: str, driver: str) -> Iterator[Figure]:
    """What a GPU tells; what it does not, such as a MIG device its load, is left out."""
    try:
        gpu = nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdecimal() else nvml.nvmlDeviceGetHandleByUUID(name)
        yield Figure("info", (_text(nvml.nvmlDeviceGetUUID(gpu)), _text(nvml.nvmlDeviceGetName(gpu)), driver), 1)
    except nvml.NVMLError as error:
        log.warning("a GPU tells nothing", extra={"gpu": name, "reason": str(error)})
        return
    for figure, ask in _FIGURES.items():
        value = _asked(nvml, ask, gpu)
        if value is not None:
            yield Figure(figure, (), value)
    for kind, number in _ERROR_KINDS.items():
        errors = _asked(nvml, partial(_count_errors, number), gpu)
        if errors is not None:
            yield Figure("ecc_errors", (kind,), errors)


def _asked(nvml: Any, ask: Callable[[Any, Any], float], gpu: Any) -> float | None:
    try:
        return float(ask(nvml, gpu))
    except nvml.NVMLError:
        return None


def _count_errors(kind: int, nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, _VOLATILE))


def _text(told: str | bytes) -> str:
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else told
