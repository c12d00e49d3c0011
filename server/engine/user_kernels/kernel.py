"""Kernels of clients' modules, and their launches: checked and made ready once, then filled in and launched.

Launches wait in the device's queue as those of operations do, so that a sequence of them that comes again is launched
as one. Of what a kernel can do with its arguments nothing is known but which of them it writes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from server.engine.value import Value
from telegrad_protocol import ptx
from telegrad_protocol.errors import ArgumentError, DeviceError
from telegrad_protocol.kernel_messages import COOPERATIVE, PROGRAMMATIC
from telegrad_protocol.ptx import Parameter

from .arguments import Packing, ParameterBuffer
from .interface import Geometry, Launch, Sizes
from .modules import Perform, UserModule

_MOST_PREPARED: Final = 64
"""The most launches that a kernel keeps: a client decides what it sends."""
_MOST_GRIDS: Final = 256

LaunchKey: TypeAlias = tuple[str, Sizes, int, "Sizes | None", int]
"""What launches have in common: the forms of the arguments, then what ``Geometry`` has."""


class PreparedLaunch:
    """A kernel with arguments in given forms and blocks of a given geometry.

    ``tensors`` and ``maps`` are the places of tensors, and of maps of tensors, among the arguments that are given, and
    ``count`` is how many are given.
    """

    __slots__ = (
        "_addresses", "_backend", "_can_wait", "_cluster", "_driver", "_grids", "_maps", "_name", "_pack", "_waits",
        "count", "maps", "perform", "tensors",
    )  # fmt: skip

    def __init__(self, kernel: UserKernel, geometry: Geometry, packing: Packing) -> None:
        self._name, self._backend, self._driver = kernel.name, kernel.backend, kernel.driver  # the kernel owns this
        self._cluster, self._pack = geometry.cluster, packing.pack
        self.count = packing.count
        self.tensors = [number for number, _ in packing.addresses]
        self.maps = [number for number, _ in packing.maps]
        self._addresses = [(number, place, kernel.writes(place)) for number, place in packing.addresses]
        self._maps = [(number, place, kernel.writes(place)) for number, place in packing.maps]
        self._grids: set[Sizes] = set()
        buffer = ParameterBuffer(packing)
        self.perform = _perform(buffer, kernel.driver.prepare(kernel.function, geometry, buffer.table))
        self._can_wait = geometry.cluster is None and not geometry.flags
        self._waits = False

    def launch(self, grid: Sizes, args: list[Any]) -> None:
        """Launch with arguments, among which values stand for tensors, on the stream that is current.

        Changes the list. The versions of tensors that the kernel may write to rise. The first launch is made at once,
        so that the driver's refusal is an error of this instruction.
        """
        if grid not in self._grids:
            self._check_grid(grid)
        backend = self._backend
        written = []
        for number, place, is_written in self._addresses:
            value: Value = args[number]
            if value.backend is not backend:
                self._refuse(place, value)
            storage, meta = value.storage, value.meta
            args[number] = storage.block.pointer + meta.offset * meta.dtype.itemsize
            if is_written:
                written.append(storage)
        for number, place, is_written in self._maps:
            value, tensor_map = args[number]
            if value.backend is not backend:
                self._refuse(place, value)
            meta = value.meta
            address = value.storage.block.pointer + meta.offset * meta.dtype.itemsize
            args[number] = self._driver.tensor_map(address, tensor_map)
            if is_written:
                written.append(value.storage)
        data = self._pack(args)
        if self._waits:
            backend.submit(self.perform, grid, data)
        else:
            backend.flush()
            self.perform(backend.stream, grid, data)
            self._waits = self._can_wait
        for storage in written:
            storage.version += 1

    def _check_grid(self, grid: Sizes) -> None:
        """Refuse a grid that the device cannot launch."""
        most, cluster = self._driver.limits.grid, self._cluster
        if not all(1 <= size <= bound for size, bound in zip(grid, most, strict=True)):
            raise ArgumentError(f"{self._name}: grid {grid} is not between (1, 1, 1) and {most}")
        if cluster is not None and any(size % part for size, part in zip(grid, cluster, strict=True)):
            raise ArgumentError(f"{self._name}: grid {grid} is no multiple of the cluster {cluster}")
        if len(self._grids) >= _MOST_GRIDS:
            self._grids.clear()
        self._grids.add(grid)

    def _refuse(self, place: int, value: Value) -> None:
        raise DeviceError(
            f"{self._name}: argument {place + 1} is {value.meta} on {value.device}, and the kernel is on "
            f"{self._backend.device}"
        )


def _perform(buffer: ParameterBuffer, launch: Launch) -> Perform:
    """Return what fills packed arguments in and launches. It holds neither kernel nor module: it may be kept longer."""
    memory = buffer.memory

    def perform(stream: int, grid: Sizes, data: bytes) -> None:
        memory[:] = data
        launch(stream, grid)

    return perform


class UserKernel:
    """A kernel of a module; ``name`` is what its user calls it."""

    def __init__(self, module: UserModule, name: str, written: Sequence[int] | None, read_only: Sequence[int]) -> None:
        self.module, self.name = module, name
        self.backend = module.backend
        self.driver = driver = self.backend.kernel_driver()
        self.function, entry = module.function(name)
        self._parameters = _parameters(driver.parameter_sizes(self.function), entry)
        if written is None and entry is not None and entry.written is not None:
            written = [*entry.written]
        self._written = None if written is None else frozenset(written)
        self._read_only = frozenset(read_only)
        self.prepared: dict[LaunchKey, PreparedLaunch] = {}
        """Launches that came before, by what they have in common."""

    def attributes(self) -> dict[str, int]:
        """Return what the kernel needs, by CuPy's names."""
        return self.driver.attributes(self.function)

    def set_attribute(self, name: str, value: int) -> None:
        """Set the most dynamic shared memory, or the share of the cache that is shared memory."""
        if name == "max_dynamic_shared_size_bytes":
            self._check_shared(value)
        self.driver.set_attribute(self.function, name, value)
        self._forget_prepared()

    def prepare(self, key: LaunchKey) -> PreparedLaunch:
        """Return the launch of blocks of a geometry with arguments in given forms, which is checked here."""
        forms, geometry = key[0], Geometry(*key[1:])
        with self.backend.as_current():
            self._check(geometry)
        if len(self.prepared) >= _MOST_PREPARED:
            self._forget_prepared()
        packing = Packing(self.name, forms, self._parameters)
        launch = self.prepared[key] = PreparedLaunch(self, geometry, packing)
        self.module.performs.add(launch.perform)
        return launch

    def writes(self, place: int) -> bool:
        """Tell whether the kernel may write to the memory of its parameter at a place."""
        return place not in self._read_only if self._written is None else place in self._written

    def _forget_prepared(self) -> None:
        gone = {launch.perform for launch in self.prepared.values()}
        self.prepared.clear()
        self.backend.forget_launches(gone)
        self.module.performs -= gone

    def _check(self, geometry: Geometry) -> None:
        """Refuse what the device cannot launch; raise the kernel's dynamic shared memory to what is wanted."""
        limits, name = self.driver.limits, self.name
        if not all(1 <= size <= bound for size, bound in zip(geometry.block, limits.block, strict=True)):
            raise ArgumentError(f"{name}: block {geometry.block} is not between (1, 1, 1) and {limits.block}")
        attributes = self.attributes()
        threads = geometry.block[0] * geometry.block[1] * geometry.block[2]
        if threads > (most_threads := min(limits.threads, attributes["max_threads_per_block"])):
            raise ArgumentError(
                f"{name}: block {geometry.block} has {threads} threads; this kernel, of {attributes['num_regs']} "
                f"registers per thread, can have {most_threads}"
            )
        self._check_shared(geometry.shared, attributes)
        self._check_cluster(geometry.cluster)
        if geometry.flags & ~(COOPERATIVE | PROGRAMMATIC):
            raise ArgumentError(f"{name}: unknown flags {geometry.flags}")
        if geometry.shared > attributes["max_dynamic_shared_size_bytes"]:
            self.driver.set_attribute(self.function, "max_dynamic_shared_size_bytes", geometry.shared)

    def _check_shared(self, nbytes: int, attributes: dict[str, int] | None = None) -> None:
        own = (attributes or self.attributes())["shared_size_bytes"]
        most = self.driver.limits.shared - own
        if not 0 <= nbytes <= most:
            raise ArgumentError(
                f"{self.name}: {nbytes} bytes of dynamic shared memory; beside its {own} bytes of its own the kernel "
                f"can have {most} on this device"
            )

    def _check_cluster(self, cluster: Sizes | None) -> None:
        if cluster is None:
            return
        blocks, most = cluster[0] * cluster[1] * cluster[2], self.driver.limits.cluster
        if min(cluster) < 1 or blocks > most:
            raise ArgumentError(f"{self.name}: a cluster of {cluster} blocks; this device has at most {most}")


def _parameters(sizes: Sequence[int] | None, entry: ptx.Entry | None) -> Sequence[Parameter] | None:
    """Return the parameters of a kernel, as its text tells or else the driver; None where neither does."""
    if entry is not None:
        return entry.parameters
    return None if sizes is None else [Parameter("", size) for size in sizes]
