"""What a device offers that runs kernels of clients; ``server.engine.cuda.runtime.user_driver`` is the one of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

from telegrad_protocol.kernel_messages import TensorMap


class Text(NamedTuple):
    """CUDA C++ text to compile; ``file`` and ``line`` are where the user's program has it."""

    source: str
    file: str
    line: int
    options: tuple[str, ...]
    headers: dict[str, str]
    expressions: tuple[str, ...]


class Compiled(NamedTuple):
    """Machine code, the PTX text it came from, and the names of the functions that expressions stand for."""

    code: bytes
    ptx: str
    names: dict[str, str]


Sizes: TypeAlias = tuple[int, int, int]
"""Sizes in three dimensions, of which x is the first."""
Launch: TypeAlias = Callable[[int, Sizes], None]
"""Launches on a raw stream, on a grid of so many blocks."""


class Geometry(NamedTuple):
    """What launches have in common, but for how many blocks there are: the threads and shared memory of a block."""

    block: Sizes
    shared: int
    cluster: Sizes | None
    flags: int


class Limits(NamedTuple):
    """What a device can launch at most."""

    grid: Sizes
    block: Sizes
    threads: int
    shared: int
    """Bytes of shared memory per block, with what a kernel has to ask for."""
    cluster: int
    """Blocks per cluster; 0 where there are no clusters."""


class KernelDriver(Protocol):
    """Compiles, loads and launches kernels on one device."""

    limits: Limits

    def compile(self, text: Text) -> Compiled:
        """Compile a text; ``CompilationError`` with the compiler's log where that fails."""

    def load(self, code: bytes) -> Any:
        """Load machine code or PTX; the answer stands for the module. ``ArgumentError`` where the driver refuses."""

    def unload(self, module: Any) -> None:
        """Unload a module, once the device has done all work that it was given."""

    def function(self, module: Any, name: str) -> Any:
        """Return a module's function, which ``ArgumentError`` says is not there."""

    def attributes(self, function: Any) -> dict[str, int]:
        """Return what a function needs and may have, by CuPy's names."""

    def set_attribute(self, function: Any, name: str, value: int) -> None:
        """Set one of the attributes that can be set."""

    def parameter_sizes(self, function: Any) -> tuple[int, ...] | None:
        """Return the sizes of a function's parameters in bytes; None where the driver cannot tell."""

    def tensor_map(self, address: int, tensor_map: TensorMap) -> bytes:
        """Return the map of a tensor at an address, as kernels take it by value."""

    def prepare(self, function: Any, geometry: Geometry, parameters: int) -> Launch:
        """Return what launches a function; it holds neither that nor its module.

        ``parameters`` is the address of an array of the arguments' addresses.
        """
