"""Kernels that are loaded, and launches of them that are prepared once and then only filled in with pointers.

A launch has its own parameter buffer. The driver copies parameters when it launches, so the buffer is free at once.
Where a device's launches may wait, they are written down instead; see ``launches``. Knows nothing of operations.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from cuda.bindings import driver

from server.engine.device.cuda_graphs import captured_launches, is_idle
from server.engine.device.cupy_module import cp
from server.engine.device.launch_queue import LaunchQueue
from server.engine.in_c.launches import kernel_launch
from server.engine.value import Value

from .chains import new_chains
from .compiler import KernelCompilationError
from .modules import Module
from .overlapping import can_overlap, launch_overlapping

FORMS = {"int": "i", "unsigned": "I", "i64": "q", "u64": "Q", "float": "f", "double": "d", "pointer": "Q"}
"""The ``struct`` formats of constants by their kinds."""
_LARGEST_STATIC = 48 << 10
_H100_MULTIPROCESSORS = 132

Launch = Callable[..., None]


@functools.cache
def launches_on(device: int) -> LaunchQueue:
    """The launches of a device, which there is one of in a process."""
    return LaunchQueue(captured_launches, is_idle, index=device, chains=new_chains())


class Kernel:
    """A function of a loaded module, and the launches of the device that it was loaded on."""

    def __init__(self, function: Any, name: str, launches: LaunchQueue) -> None:
        self._function = function
        self.name = name
        self._launches = launches

    def prepare(
        self,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        varying: Sequence[str] = "P",
        constants: Sequence[tuple[str, Any] | bytes] = (),
        shared: int = 0,
        table: int = 0,
        overlaps: bool = False,
    ) -> Launch:
        """A launch of fixed geometry; call it with the stream and the varying parameters, which come first.

        ``varying`` has a ``struct`` format per parameter: ``PPP`` for three pointers, ``("P", "32s")`` for a pointer
        and a structure of 32 bytes by value. ``constants`` follow in the kernel's signature: ``("i64", 5)``, also
        ``int unsigned u64 float double pointer``; or the bytes of a structure by value. ``shared`` is in bytes.
        ``table``: the first parameter is an array of so many addresses by value, which come before the varying
        parameters. ``overlaps``: the kernel waits for earlier ones by itself, as ``overlapping`` says.
        """
        if shared > _LARGEST_STATIC:
            self._allow_shared(shared)
        queue = self._launches
        begins_early = overlaps and can_overlap(architecture(queue.index))
        call = launch_overlapping if begins_early else cp.cuda.driver.launchKernel
        address = self._function.ptr
        in_c: Launch | None = kernel_launch(self, queue, call, address, grid, block, shared, table, varying, constants)
        if in_c is not None:
            return in_c
        buffer, parameters, fill = _parameters(varying, constants, table)
        geometry = (*_three(grid), *_three(block), shared)
        make = _launch_of_numbers if "f" in varying or "d" in varying else _launch
        launch = make(address, geometry, fill, buffer, parameters, table + len(varying), queue, call)
        launch.kernel = self  # type: ignore[attr-defined]  # which holds the module for as long
        return launch

    def _allow_shared(self, nbytes: int) -> None:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (status,) = driver.cuFuncSetAttribute(driver.CUfunction(self._function.ptr), attribute, nbytes)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise KernelCompilationError(f"{self.name}: {nbytes} bytes of shared memory: {status}")


def _launch(
    function: int, geometry: tuple[int, ...], fill: Any, buffer: Any, parameters: int, count: int,
    launches: LaunchQueue, call: Launch,
) -> Launch:  # fmt: skip
    """What fills ``count`` parameters in and launches, or waits where launches do.

    Each usual count has a function of its own: to take any number of them, and hand them on, costs a third more. Only
    the one that is needed is made, since so many are made for new shapes that the garbage collector would be called.
    """
    make: Callable[..., Launch] = _MAKERS.get(count, _of_any_number)
    return make(call, function, geometry, fill, buffer, parameters, launches)


def _of_one(call: Any, function: int, geometry: Any, fill: Any, buffer: Any, parameters: int, launches: Any) -> Launch:
    gx, gy, gz, bx, by, bz, shared = geometry
    wait = launches.waiting.append

    def launch(stream: int, a: Any) -> None:
        if launches.is_open:
            wait((launch, stream, a))
            return
        fill(buffer, 0, a)
        call(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, 0)

    return launch


def _of_two(call: Any, function: int, geometry: Any, fill: Any, buffer: Any, parameters: int, launches: Any) -> Launch:
    gx, gy, gz, bx, by, bz, shared = geometry
    wait = launches.waiting.append

    def launch(stream: int, a: Any, b: Any) -> None:
        if launches.is_open:
            wait((launch, stream, a, b))
            return
        fill(buffer, 0, a, b)
        call(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, 0)

    return launch


def _of_three(
    call: Any, function: int, geometry: Any, fill: Any, buffer: Any, parameters: int, launches: Any
) -> Launch:
    gx, gy, gz, bx, by, bz, shared = geometry
    wait = launches.waiting.append

    def launch(stream: int, a: Any, b: Any, c: Any) -> None:
        if launches.is_open:
            wait((launch, stream, a, b, c))
            return
        fill(buffer, 0, a, b, c)
        call(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, 0)

    return launch


def _of_four(call: Any, function: int, geometry: Any, fill: Any, buffer: Any, parameters: int, launches: Any) -> Launch:
    gx, gy, gz, bx, by, bz, shared = geometry
    wait = launches.waiting.append

    def launch(stream: int, a: Any, b: Any, c: Any, d: Any) -> None:
        if launches.is_open:
            wait((launch, stream, a, b, c, d))
            return
        fill(buffer, 0, a, b, c, d)
        call(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, 0)

    return launch


def _of_five(call: Any, function: int, geometry: Any, fill: Any, buffer: Any, parameters: int, launches: Any) -> Launch:
    gx, gy, gz, bx, by, bz, shared = geometry
    wait = launches.waiting.append

    def launch(stream: int, a: Any, b: Any, c: Any, d: Any, e: Any) -> None:
        if launches.is_open:
            wait((launch, stream, a, b, c, d, e))
            return
        fill(buffer, 0, a, b, c, d, e)
        call(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, 0)

    return launch


def _of_six(call: Any, function: int, geometry: Any, fill: Any, buffer: Any, parameters: int, launches: Any) -> Launch:
    gx, gy, gz, bx, by, bz, shared = geometry
    wait = launches.waiting.append

    def launch(stream: int, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> None:
        if launches.is_open:
            wait((launch, stream, a, b, c, d, e, f))
            return
        fill(buffer, 0, a, b, c, d, e, f)
        call(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, 0)

    return launch


def _of_any_number(
    call: Any, function: int, geometry: Any, fill: Any, buffer: Any, parameters: int, launches: Any
) -> Launch:
    gx, gy, gz, bx, by, bz, shared = geometry
    wait = launches.waiting.append

    def launch(stream: int, *values: Any) -> None:
        if launches.is_open:
            wait((launch, stream, *values))
            return
        fill(buffer, 0, *values)
        call(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, 0)

    return launch


_MAKERS: dict[int, Callable[..., Launch]] = {
    1: _of_one, 2: _of_two, 3: _of_three, 4: _of_four, 5: _of_five, 6: _of_six,
}  # fmt: skip


def _launch_of_numbers(
    function: int, geometry: tuple[int, ...], fill: Any, buffer: Any, parameters: int, count: int,
    launches: LaunchQueue, call: Launch,
) -> Launch:  # fmt: skip
    """The same for a kernel that takes floating-point numbers, and does not wait: of them 0 and -0 are equal."""
    gx, gy, gz, bx, by, bz, shared = geometry

    def launch(stream: int, *values: Any) -> None:
        launches.flush()
        fill(buffer, 0, *values)
        call(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, 0)

    return launch


def _padded(form: str) -> str:
    """A format with the padding to a multiple of eight bytes; pointers are integers to ``struct``."""
    form = form.replace("P", "Q")
    return f"{form}{-struct.calcsize('=' + form) % 8}x"


def _three(extent: int | tuple[int, ...]) -> tuple[int, int, int]:
    sizes = (extent,) if isinstance(extent, int) else extent
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


class _Arrangement(NamedTuple):
    """Where in a buffer the parameters of launches lie that differ in values only; offsets are in bytes."""

    fill: Callable[..., None]
    """Writes the array of addresses, and the varying parameters."""
    offsets: tuple[int, ...]
    """Those of all parameters, of which the last are those of the constants."""
    places: int
    """Where the addresses of the parameters are, one after the other."""
    write: Callable[..., None]
    """Writes the constants, then the addresses of all parameters."""
    buffer: Callable[[], Any]


@functools.lru_cache(maxsize=1 << 12)
def _arranged(varying: tuple[str, ...], constants: tuple[str | int, ...], table: int) -> _Arrangement:
    """The arrangement of varying parameters, of constants, and of an array of addresses before them.

    Constants are described by the names of their kinds, or by how many bytes they have.
    """
    forms = [_padded(form) for form in varying]
    offsets, end = [0] if table else [], 8 * table
    for form in forms:
        offsets.append(end)
        end += struct.calcsize(f"={form}")
    written = f"{end}x"
    for described in constants:
        form = f"{described}s" if described.__class__ is int else FORMS[described]  # type: ignore[index]
        written += f"{-end % 16}x{form}"
        offsets.append(end + -end % 16)
        end = offsets[-1] + struct.calcsize(f"={form}")
    places = -(-end // 8) * 8
    fill = struct.Struct(f"={table}Q{''.join(forms)}").pack_into
    write = struct.Struct(f"={written}{places - end}x{len(offsets)}Q").pack_into
    buffer = ctypes.c_char * max(places + 8 * len(offsets), 1)
    return _Arrangement(fill, tuple(offsets), places, write, buffer)


def _parameters(
    varying: Sequence[str], constants: Sequence[tuple[str, Any] | bytes], table: int
) -> tuple[Any, int, Callable[..., None]]:
    """The parameter buffer, constants filled in; where in it the addresses of parameters are; and what fills it."""
    kinds: list[Any] = []
    numbers: list[Any] = []
    for item in constants:
        kind, number = (len(item), item) if item.__class__ is bytes else item
        kinds.append(kind)
        numbers.append(number)
    fill, offsets, places, write, make = _arranged(tuple(varying), tuple(kinds), table)
    buffer = make()
    start = ctypes.addressof(buffer)
    write(buffer, 0, *numbers, *map(start.__add__, offsets))
    return buffer, start + places, fill


def architecture(device: int) -> str:
    """The architecture of a device, as the compiler calls it; while texts are collected, the one they are for."""
    return _target or _architecture(device)


@functools.cache
def _architecture(device: int) -> str:
    return f"sm_{cp.cuda.Device(device).compute_capability}"


def multiprocessors(device: int) -> int:
    """How many multiprocessors a device has; while texts are collected, as many as an H100."""
    return _H100_MULTIPROCESSORS if _target else _multiprocessors(device)


@functools.cache
def _multiprocessors(device: int) -> int:
    return int(cp.cuda.Device(device).attributes["MultiProcessorCount"])


def pointer(value: Value) -> int:
    """The address of a value's first element; a launch that knows the meta can add the offset by itself."""
    meta = value.meta
    return value.storage.block.pointer + meta.offset * meta.dtype.itemsize


def nothing(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
    """The prepared kernel where results have no elements."""


class Collection:
    """The kernels that factories asked for while nothing was loaded."""

    def __init__(self) -> None:
        self.texts: dict[tuple[str, tuple[str, ...]], str] = {}
        """The kernel's name by its text and the compiler's options beside the usual ones."""
        self.sites: set[tuple[str, int]] = set()
        """File and line of every call of ``load``."""

    def add(self, source: str, name: str, options: tuple[str, ...], caller: FrameType) -> None:
        self.texts.setdefault((source, options), name)
        self.sites.add((caller.f_code.co_filename, caller.f_lineno))


_collection: Collection | None = None
_target = ""


@contextmanager
def collecting(target: str, collection: Collection | None = None) -> Iterator[Collection]:
    """Collect what is asked for within the block instead of loading it, beside what is in ``collection`` already.

    ``target`` is the architecture that stands in for the device's.
    """
    global _collection, _target
    collection = collection or Collection()
    _collection, _target = collection, target
    try:
        yield collection
    finally:
        _collection, _target = None, ""


class _CollectedKernel(Kernel):
    """A kernel whose text was only collected; its launches do nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(None, name, launches_on(0))

    def prepare(self, *geometry: Any, **options: Any) -> Launch:
        return lambda *values: None


def is_collecting() -> bool:
    """Whether kernels are collected, and none is loaded."""
    return _collection is not None


def collected(source: str, name: str, options: tuple[str, ...], caller: FrameType) -> Kernel:
    """Note a kernel that is asked for while they are collected, and return what stands for it."""
    assert _collection is not None
    _collection.add(source, name, options, caller)
    return _CollectedKernel(name)


def load(source: str, name: str, options: tuple[str, ...] = ()) -> Kernel:
    """The kernel ``name`` (an ``extern "C"`` function) of ``source`` on the current device; compiled when first met."""
    if _collection is not None:
        return collected(source, name, options, sys._getframe(1))
    device = cp.cuda.Device().id
    return _kernel(source, name, options, device)


@functools.cache
def _kernel(source: str, name: str, options: tuple[str, ...], device: int) -> Kernel:
    return Kernel(_module(source, options, device).function(name), name, launches_on(device))


@functools.cache
def _module(source: str, options: tuple[str, ...], device: int) -> Module:
    return Module(source, architecture(device), options, device)
