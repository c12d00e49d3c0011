"""Modules of machine code: loaded when a session needs them, or before, because the last processes did.

The driver copies a function to its device when that is first launched, which takes as long as loading the module: both
are done beforehand. Knows nothing of launches.
"""

from __future__ import annotations

import re
from typing import Any, Final

from cuda.bindings import driver

from server.engine.device.cupy_module import cp
from server.kernel_cache import kernels_directory

from . import cubin_files
from .compiler import compile_cubin, name_of
from .used_before import used_before

_KIND: Final = "kernel"
_NAMED: Final = re.compile(rf"([0-9a-f]+{re.escape(cubin_files.SUFFIX)}) (\w+)")
_beforehand: dict[tuple[int, str], Any] = {}
"""Modules that nobody has asked for yet, by device and file."""


class Module:
    """A module on a device, for as long as this or one of its functions is held."""

    __slots__ = ("_file", "_module", "_target")

    def __init__(self, source: str, target: str, options: tuple[str, ...], device: int) -> None:
        self._target, self._file = target, name_of(source, target, options)
        self._module = _beforehand.pop((device, self._file), None)
        if self._module is None:
            self._module = _loaded(compile_cubin(source, target, options))

    def function(self, name: str) -> Any:
        """Return the kernel of this name; the next processes will load it beforehand."""
        used_before(self._target).note(_KIND, f"{self._file} {name}")
        return self._module.get_function(name)


def load_beforehand(device: int, target: str) -> None:
    """Load onto the current device, which is this one, what the last processes loaded.

    Each kernel takes some hundred KiB of the host's and the device's memory; the log has few enough of them.
    """
    for line in used_before(target).of_kind(_KIND):
        named = _NAMED.fullmatch(line)
        cubin = cubin_files.read(kernels_directory() / named[1]) if named else b""
        if not named or not cubin:
            continue
        module = _beforehand.get((device, named[1])) or _loaded(cubin)
        driver.cuFuncLoad(driver.CUfunction(module.get_function(named[2]).ptr))
        _beforehand[device, named[1]] = module


def _loaded(cubin: bytes) -> Any:
    module = cp.cuda.function.Module()
    module.load(cubin)
    return module
