"""A kernel driver without a GPU: it compiles and reads what it is given, and writes down what it would launch."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NamedTuple

from server.engine.cuda.runtime.user_text import compile_text
from server.engine.user_kernels.interface import Compiled, Geometry, Launch, Limits, Sizes, Text
from telegrad_protocol import ptx
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.kernel_messages import TensorMap

ARCHITECTURE = "sm_90"
_EIATTR_KPARAM_INFO = b"\x04\x17"


def parameters_of(cubin: bytes, kernel: str) -> list[tuple[int, int]]:
    """Offset and size of a kernel's parameters, as the section ``.nv.info.NAME`` of a cubin has them."""
    table, entry_size, count, names = (
        struct.unpack_from("<Q", cubin, 40)[0],
        *struct.unpack_from("<HHH", cubin, 58),
    )
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + entry_size * number) for number in range(count)]
    text = sections[names][4]
    made: dict[int, tuple[int, int]] = {}
    for name, _, _, _, offset, size, *_ in sections:
        end = cubin.index(b"\0", text + name)
        if cubin[text + name : end].decode() != f".nv.info.{kernel}":
            continue
        data, at = cubin[offset : offset + size], 0
        while at < size:
            kind, length = data[at : at + 2], struct.unpack_from("<H", data, at + 2)[0]
            if kind == _EIATTR_KPARAM_INFO:
                _, number, place, flags = struct.unpack_from("<IHHI", data, at + 4)
                made[number] = place, flags >> 18
            at += 4 + (length if kind[0] == 4 else 0)
    return [made[number] for number in range(len(made))]


class WholeGeometry(NamedTuple):
    """How many blocks and threads a launch has, and the rest."""

    grid: Sizes
    block: Sizes
    shared: int
    cluster: Sizes | None
    flags: int


class Launched(NamedTuple):
    """A launch: the kernel, its geometry, the stream, and the bytes of its arguments."""

    name: str
    geometry: WholeGeometry
    stream: int
    arguments: list[bytes]


class Function(NamedTuple):
    """A function of a module, with the sizes of its parameters."""

    name: str
    sizes: tuple[int, ...]
    settings: dict[str, int]


class NotedDriver:
    """Loads what a GPU of compute capability 9.0 would."""

    limits = Limits((2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024, 227 << 10, 16)

    def __init__(self) -> None:
        self.launched: list[Launched] = []
        self.loaded: list[bytes] = []
        self.unloaded = 0
        self.maps: list[tuple[int, TensorMap]] = []

    def compile(self, text: Text) -> Compiled:
        return compile_text(text, ARCHITECTURE)

    def load(self, code: bytes) -> bytes:
        if not code.startswith(b"\x7fELF") and b".version" not in code:
            raise ArgumentError("load module: the driver refuses the code")
        self.loaded.append(code)
        return code

    def unload(self, module: Any) -> None:
        self.unloaded += 1

    def function(self, module: bytes, name: str) -> Function:
        if module.startswith(b"\x7fELF"):
            if name.encode() not in module:
                raise ArgumentError(f"the module has no kernel {name!r}")
            sizes = tuple(size for _, size in parameters_of(module, name))
        else:
            entry = ptx.entries(module.decode()).get(name)
            if entry is None:
                raise ArgumentError(f"the module has no kernel {name!r}")
            sizes = tuple(parameter.nbytes for parameter in entry.parameters)
        return Function(name, sizes, {})

    def attributes(self, function: Function) -> dict[str, int]:
        return {
            "max_threads_per_block": 1024, "shared_size_bytes": 1024, "const_size_bytes": 0, "local_size_bytes": 0,
            "num_regs": 32, "ptx_version": 90, "binary_version": 90, "cache_mode_ca": 0,
            "max_dynamic_shared_size_bytes": 48 << 10, "preferred_shared_memory_carveout": -1, **function.settings,
        }  # fmt: skip

    def set_attribute(self, function: Function, name: str, value: int) -> None:
        function.settings[name] = value

    def parameter_sizes(self, function: Function) -> tuple[int, ...]:
        return function.sizes

    def tensor_map(self, address: int, tensor_map: TensorMap) -> bytes:
        self.maps.append((address, tensor_map))
        return struct.pack("=Q", address).ljust(128, b"\0")

    def prepare(self, function: Function, geometry: Geometry, parameters: int) -> Launch:
        def launch(stream: int, grid: Sizes) -> None:
            places = (ctypes.c_uint64 * len(function.sizes)).from_address(parameters)
            given = [ctypes.string_at(place, size) for place, size in zip(places, function.sizes, strict=True)]
            self.launched.append(Launched(function.name, WholeGeometry(grid, *geometry), stream, given))

        return launch
