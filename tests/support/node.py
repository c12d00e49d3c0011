"""A simulated node: a host with two GPUs that are NumPy on host memory, for sessions in this process and for workers.

They have numbers of real GPUs, and what the engine works out for a device is kept for the process: a process that
opens simulated GPUs must not open real ones.
"""

from __future__ import annotations

import functools
from typing import Any

from server.engine.value import Backend
from server.worker.host import Host
from telegrad_protocol.meta import Device

from ..session.queued import QueuedBackend
from .kernel_driver import NotedDriver

_driver = functools.cache(lambda device: NotedDriver())
GPUS = (Device("cuda", 0), Device("cuda", 1))


class SimulatedGpu(QueuedBackend):
    """One GPU of the node; each of them reaches the memory of the other."""

    def kernel_driver(self) -> NotedDriver:
        """What notes launches of kernels that clients bring."""
        return _driver(self.device)

    def can_access_peer(self, peer: Device) -> bool:
        return peer in GPUS and peer is not self.device

    def properties(self) -> dict[str, Any]:
        return super().properties() | {
            "name": "Simulated GPU",
            "capability": (9, self.device.index),
            "shared_memory_per_block_optin": 227 << 10,
            "warp_size": 32,
            "regs_per_multiprocessor": 65536,
            "multi_processor_count": 132,
        }


@functools.cache
def _gpus() -> dict[Device, Backend]:
    return {device: SimulatedGpu(device) for device in GPUS}


class SimulatedHost(Host):
    """A host of the worker whose devices are two simulated GPUs and the CPU, whatever devices it is told to open."""

    def __init__(self, devices: list[str] | None = None) -> None:
        super().__init__(["cpu"])
        locate = next(iter(self.backends.values())).allocator.history.locate
        for backend in _gpus().values():
            backend.allocator.history.locate = locate
        self.backends = {**_gpus(), **self.backends}
        self.default_device = GPUS[0]
