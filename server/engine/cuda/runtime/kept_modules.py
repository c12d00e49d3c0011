"""Kernels whose texts programs bring about, of which there may be any number: those that nothing launches are unloaded.

A module is unloaded where another is loaded, which is never while launches are recorded, and when the device is idle.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Final

from server.engine.device.cupy_module import cp

from .launch import Kernel, architecture, collected, is_collecting, launches_on
from .modules import Module

MODULE_BYTES: Final = 128 << 10
"""About what the host and the driver hold for a module of one kernel."""
MOST_KEPT: Final = 512
"""So many of the last kernels of a process are kept, whether anything launches them or not."""
MOST_RETIRED: Final = 64
"""From so many on, modules that nothing launches are unloaded."""
_retired: dict[int, list[Any]] = {}
"""Modules that nothing launches, with their functions, by device."""


class _KeptKernel(Kernel):
    """A kernel, the only one of its module, whose end is noted."""

    def __init__(self, module: Module, name: str, device: int) -> None:
        super().__init__(module.function(name), name, launches_on(device))
        self._held = module, self._function
        self._device = device

    def __del__(self, retired: dict[int, list[Any]] = _retired) -> None:
        retired.setdefault(self._device, []).append(self._held)


def load_kept(source: str, name: str) -> Kernel:
    """Return the kernel ``name`` of ``source`` on the current device; its launches keep it loaded."""
    if is_collecting():
        return collected(source, name, (), sys._getframe(1))
    return _kept(source, name, cp.cuda.Device().id)


@functools.lru_cache(maxsize=MOST_KEPT)
def _kept(source: str, name: str, device: int) -> Kernel:
    retired = _retired.get(device, ())
    if len(retired) >= MOST_RETIRED:
        cp.cuda.Device(device).synchronize()
        del _retired[device]
    return _KeptKernel(Module(source, architecture(device), (), device), name, device)
