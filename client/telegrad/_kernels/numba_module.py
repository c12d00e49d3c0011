"""What ``numba.cuda`` is where this machine has no GPU: arrays, streams, events and devices are the server's.

Where it has one, the functions are Numba's own. Imported with Numba alone.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from telegrad import cuda

from . import numba_arrays
from .numba_arrays import the_gpu

_originals: dict[str, Callable[..., Any]] = {}


@functools.cache
def is_local() -> bool:
    """Whether this machine has a GPU that Numba can use."""
    return bool(_originals["is_available"]())


class NumbaStream(cuda.Stream):
    """A stream with what Numba's streams have."""

    @contextmanager
    def auto_synchronize(self) -> Iterator[NumbaStream]:
        """Wait for the stream at the end of the block."""
        yield self
        self.synchronize()


def stream() -> NumbaStream:
    """Return a new stream."""
    return NumbaStream()


def default_stream() -> int:
    """Return what stands for the default stream."""
    return 0


class NumbaEvent:
    """An event by Numba's names."""

    def __init__(self, timing: bool) -> None:
        self._event = cuda.Event(enable_timing=timing)

    def record(self, stream: Any = 0) -> None:
        """Note the point that a stream has come to."""
        self._event.record() if stream in (0, None) else self._event.record(stream)

    def synchronize(self) -> None:
        """Wait for that point."""
        self._event.synchronize()

    def wait(self, stream: Any = 0) -> None:
        """Have a stream wait for that point."""
        self._event.wait() if stream in (0, None) else self._event.wait(stream)

    def query(self) -> bool:
        """Whether the GPU has come to that point."""
        return bool(self._event.query())

    def elapsed_time(self, evtend: NumbaEvent) -> float:
        """Return the milliseconds from this event to another one."""
        return float(self._event.elapsed_time(evtend._event))


def event(timing: bool = True) -> NumbaEvent:
    """Return a new event."""
    return NumbaEvent(timing)


def event_elapsed_time(evtstart: NumbaEvent, evtend: NumbaEvent) -> float:
    """Return the milliseconds between two events."""
    return evtstart.elapsed_time(evtend)


def synchronize() -> None:
    """Wait until everything submitted so far has run."""
    cuda.synchronize()


class NumbaDevice:
    """A GPU of the server, with what programs ask of ``numba.cuda.get_current_device()``."""

    _NAMES = {
        "MULTIPROCESSOR_COUNT": "multi_processor_count", "WARP_SIZE": "warp_size",
        "MAX_SHARED_MEMORY_PER_BLOCK": "shared_memory_per_block",
        "MAX_THREADS_PER_MULTI_PROCESSOR": "max_threads_per_multi_processor", "CLOCK_RATE": "clock_rate",
    }  # fmt: skip
    MAX_THREADS_PER_BLOCK = MAX_BLOCK_DIM_X = MAX_BLOCK_DIM_Y = 1024
    MAX_BLOCK_DIM_Z = 64
    MAX_GRID_DIM_X, MAX_GRID_DIM_Y, MAX_GRID_DIM_Z = (1 << 31) - 1, 65535, 65535

    def __init__(self, index: int) -> None:
        self.id = index
        self._properties = cuda.get_device_properties(index)

    @property
    def name(self) -> bytes:
        """The name of the GPU."""
        return str(self._properties.name).encode()

    @property
    def compute_capability(self) -> tuple[int, int]:
        """The compute capability."""
        return self._properties.major, self._properties.minor

    def __getattr__(self, name: str) -> Any:
        if name not in NumbaDevice._NAMES:
            raise AttributeError(f"numba.cuda: {name} of the server's GPU is not known")
        return getattr(self._properties, NumbaDevice._NAMES[name])


def get_current_device() -> NumbaDevice:
    """Return the current GPU."""
    return NumbaDevice(the_gpu().index or 0)


def select_device(device_id: int) -> NumbaDevice:
    """Make a GPU the current one, and return it."""
    cuda.set_device(device_id)
    return get_current_device()


def is_available() -> bool:
    """Whether there is a GPU, here or on the server."""
    return is_local() or cuda.is_available()


_REPLACED: dict[str, Any] = {
    name: getattr(numba_arrays, name)
    for name in (
        "to_device", "device_array", "device_array_like", "as_cuda_array", "is_cuda_array", "pinned_array",
        "pinned_array_like", "pinned", "mapped_array", "mapped", "mapped_array_like", "managed_array", "open_ipc_array",
    )
} | {
    function.__name__: function
    for function in (
        stream, default_stream, event, event_elapsed_time, synchronize, get_current_device, select_device, is_available,
    )
}  # fmt: skip
"""Names of ``numba.cuda``, and what they are without a GPU here."""


def install(module: ModuleType) -> None:
    """Put the names into the module that Numba's package has them from, and into the package if that has them."""
    package = sys.modules.get("numba.cuda")
    for name, ours in _REPLACED.items():
        original = _originals.setdefault(name, getattr(module, name))
        chosen = ours if name == "is_available" else _choosing(original, ours)
        setattr(module, name, chosen)
        if package is not None and hasattr(package, name):
            setattr(package, name, chosen)


def _choosing(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def choose(*args: Any, **kwargs: Any) -> Any:
        return (original if is_local() else ours)(*args, **kwargs)

    return choose
