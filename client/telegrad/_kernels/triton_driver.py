"""The driver that Triton gets for telegrad's tensors: it compiles here for the server's GPU, and launches there.

Triton's own code does everything else: specialisation, the compiler with its caches, autotuning, heuristics. Which GPU
is meant is that of the tensors of a call, and the current one where there are none. Imported with Triton alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia.driver import ty_to_cpp

from telegrad import cuda
from telegrad._ops.functions import function
from telegrad._session.current import current_session
from telegrad._session.devices import current_gpu
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.meta import Device

from .remote_kernel import CompiledKernel
from .triton_bench import CACHE_BYTES, do_bench
from .triton_launcher import RemoteLauncher

if TYPE_CHECKING:
    from telegrad._session.session import ClientSession

_empty: Any = function("empty")


class RemoteIndex(int):
    """The index of a GPU of a server; unequal to that of a GPU here, so that what Triton keeps is not mixed up."""

    target: int

    def __new__(cls, index: int, target: int) -> RemoteIndex:
        made = super().__new__(cls, index)
        made.target = target
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteIndex) and int(self) == int(other) and self.target == other.target

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(("telegrad", int(self), self.target))


class _Calls(threading.local):
    """Of a thread: the GPU of the call that is under way, and the kernel that is being loaded."""

    place: tuple[ClientSession, Device] | None = None
    loading: Any = None


_calls = _Calls()


def place() -> tuple[ClientSession, Device]:
    """Return the session and the GPU that this thread's kernels are compiled for and run on."""
    if _calls.place is not None:
        return _calls.place
    session = current_session()
    return session, current_gpu(session, "triton")


@contextmanager
def placed(where: tuple[ClientSession, Device] | None) -> Iterator[None]:
    """Run kernels on a GPU within the block; None leaves it to what is current."""
    before, _calls.place = _calls.place, where or _calls.place
    try:
        yield
    finally:
        _calls.place = before


def _properties() -> dict[str, Any]:
    session, device = place()
    known = session.kernels.setdefault(_properties, {})
    if device not in known:
        known[device] = session.query("device_properties", device.name)
    properties: dict[str, Any] = known[device]
    return properties


class RemoteUtils:
    """What Triton asks of a driver beside launches, under the names of its C module."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return what tutorials and autotuners ask for."""
        known = _properties()
        return {
            "max_shared_mem": known.get("shared_memory_per_block_optin", 48 << 10),
            "max_num_regs": known.get("regs_per_multiprocessor", 1 << 16),
            "multiprocessor_count": known.get("multi_processor_count", 1),
            "warpSize": known.get("warp_size", 32),
            "sm_clock_rate": known.get("clock_rate", 0),
            "mem_clock_rate": known.get("memory_clock_rate", 0),
            "mem_bus_width": known.get("memory_bus_width", 0),
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[Any, Any, int, int, int]:
        """Load a kernel onto the current GPU; waits for the server."""
        asm = getattr(_calls.loading, "asm", None) or {}
        function = CompiledKernel(name, "cubin", binary, asm.get("ptx", ""))
        attributes = function.on(*place()).attributes
        spills = attributes["local_size_bytes"] // 4
        return function, function, attributes["num_regs"], spills, attributes["max_threads_per_block"]

    def unload_module(self, module: Any) -> None:
        """Do nothing: the server frees a module with the object that stands for it."""

    def set_printf_fifo_size(self, nbytes: int) -> None:
        """Refuse: what kernels print stays on the server."""
        raise NotSupportedError("triton: what a kernel prints goes to the server's output")


class RemoteDriver(DriverBase):  # type: ignore[misc]  # it is Any where Triton is not installed
    """Triton's driver for the GPUs of telegrad's sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.utils = RemoteUtils()
        self.launcher_cls = RemoteLauncher

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_device(self) -> RemoteIndex:
        """Return the index of the GPU of the call, or of the current one."""
        major, minor = _properties()["capability"]
        return RemoteIndex(place()[1].index or 0, major * 10 + minor)

    def set_current_device(self, device: int) -> None:
        """Make a GPU the current one."""
        cuda.set_device(int(device))

    def get_current_stream(self, device: int = 0) -> int:
        """Return a number that is not looked at: a launch goes to the thread's current stream."""
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """Return the compute capability."""
        major, minor = _properties()["capability"]
        return major, minor

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.get_current_device().target, 32)

    def get_active_torch_device(self) -> Device:
        return place()[1]

    def get_device_interface(self) -> Any:
        """Return what has events and ``synchronize``."""
        return cuda

    def map_python_to_cpp_type(self, ty: str) -> str:
        name: str = ty_to_cpp(ty)
        return name

    def get_benchmarker(self) -> Any:
        return do_bench

    def get_empty_cache_for_benchmark(self) -> Tensor:
        """Return memory that ``clear_cache`` writes to."""
        cache: Tensor = _empty(CACHE_BYTES // 4, dtype=dtypes.int32, device=place()[1])
        return cache

    def clear_cache(self, cache: Tensor) -> None:
        """Write to memory of the size of the GPU's cache."""
        cache.zero_()

    @contextmanager
    def loading(self, kernel: Any) -> Iterator[None]:
        """Say within the block which compiled kernel is being loaded: its PTX tells what it writes to."""
        before, _calls.loading = _calls.loading, kernel
        try:
            yield
        finally:
            _calls.loading = before
