"""Modules of clients' code on a device, their kernels, and what one session may load."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from server.engine.context import HostMemory
from server.engine.value import Backend, Value
from telegrad_protocol import ptx
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DeviceError, OutOfMemoryError
from telegrad_protocol.kernel_messages import CODE_KINDS, COOPERATIVE, CUDA_TEXT, NULL, PROGRAMMATIC, LoadModule
from telegrad_protocol.ptx import Parameter

from .arguments import ParameterBuffer
from .interface import Compiled, Geometry, KernelDriver, Text

MAX_MODULES = 4096
"""A session may have so many modules at a time: each holds an object of the driver."""
MAX_MODULE_BYTES = 1 << 29
"""The code of a session's modules may have so many bytes."""
MODULE_BYTES = 16 << 10
"""What a module takes of the host besides its code: the objects of the driver, and what is known of its kernels."""
_LAST = 3
_MOST_FORMS = 64
"""The most combinations of forms whose buffers a kernel keeps: a client decides what it sends."""


class ModuleAccount:
    """What one session has loaded, which is noted in the account of its host memory until it is unloaded.

    ``last`` are the names and sites of the kernels that it has launched last: where the device fails, one of them did
    it, or one before them.
    """

    __slots__ = ("_host", "count", "last", "nbytes", "retired")

    def __init__(self, host: HostMemory) -> None:
        self._host = host
        self.count = self.nbytes = 0
        self.retired: list[tuple[Backend, Any, int]] = []
        """Modules that nothing names any more; they are unloaded once the device has done all its work."""
        self.last: deque[tuple[str, int]] = deque(maxlen=_LAST)

    def note_launch(self, name: str, site: int) -> None:
        """Note a launch, for the case that it breaks the device."""
        launched = name, site
        if not self.last or self.last[-1] != launched:
            self.last.append(launched)

    def charge(self, nbytes: int) -> None:
        """Account for a module, or raise OutOfMemoryError; what was given up is unloaded where room is short."""
        if self._is_full(nbytes):
            self.unload_retired()
        if self._is_full(nbytes):
            raise OutOfMemoryError(
                f"load module: the session has {self.count} modules of {self.nbytes} bytes of code; it may have "
                f"{MAX_MODULES} of {MAX_MODULE_BYTES} bytes. Drop kernels that are not needed any more"
            )
        try:
            self._host.note(nbytes + MODULE_BYTES)
        except OutOfMemoryError:
            if not self.retired:
                raise
            self.unload_retired()
            self._host.note(nbytes + MODULE_BYTES)
        self.count += 1
        self.nbytes += nbytes

    def discharge(self, nbytes: int) -> None:
        """Take back what was accounted for a module."""
        self._host.noted -= nbytes + MODULE_BYTES
        self.count -= 1
        self.nbytes -= nbytes

    def _is_full(self, nbytes: int) -> bool:
        return self.count >= MAX_MODULES or self.nbytes + nbytes > MAX_MODULE_BYTES

    def unload_retired(self) -> None:
        """Wait for the devices, and unload the modules that nothing names."""
        retired, self.retired = self.retired, []
        for backend in {backend for backend, _, _ in retired}:
            backend.synchronize()
        for backend, module, nbytes in retired:
            backend.kernel_driver().unload(module)
            self.discharge(nbytes)


class UserModule:
    """Code of a session on a device; with the last kernel and name of it, its account takes it back."""

    def __init__(self, account: ModuleAccount, backend: Backend, message: LoadModule) -> None:
        driver = backend.kernel_driver()
        code, text, self._names = _machine_code(driver, message)
        self._entries = ptx.entries(text)
        self._nbytes = len(code)
        account.charge(self._nbytes)
        try:
            self._module = driver.load(code)
        except BaseException:
            account.discharge(self._nbytes)
            raise
        self._account, self.backend = account, backend

    def function(self, name: str) -> tuple[Any, ptx.Entry | None]:
        """Return a function and what is known of it from its text; expressions are names, too."""
        name = self._names.get(name, name)
        return self.backend.kernel_driver().function(self._module, name), self._entries.get(name)

    def __del__(self) -> None:
        if hasattr(self, "backend"):
            self._account.retired.append((self.backend, self._module, self._nbytes))


def _machine_code(driver: KernelDriver, message: LoadModule) -> Compiled:
    """Return what is to be loaded, and the PTX text that it came from, empty where there is none."""
    if message.kind not in CODE_KINDS:
        raise ArgumentError(f"load module: no kind of code {message.kind!r:.40}; there are: {', '.join(CODE_KINDS)}")
    if message.kind == "cubin":
        if not message.code.startswith(b"\x7fELF"):
            raise ArgumentError("load module: this is no cubin, which begins as an ELF file does")
        return Compiled(message.code, "", {})
    try:
        text = message.code.decode()
    except UnicodeDecodeError as error:
        raise ArgumentError(f"load module: the text is not UTF-8: {error}") from None
    if message.kind == CUDA_TEXT:
        given = message.options, message.headers, message.expressions
        return driver.compile(Text(text, message.file or "kernel.cu", message.line, *given))
    return Compiled(message.code.rstrip(b"\0") + b"\0", text, {})


class UserKernel:
    """A kernel of a module; ``name`` is what its user calls it."""

    def __init__(self, module: UserModule, name: str, written: Sequence[int] | None, read_only: Sequence[int]) -> None:
        self.module, self.name = module, name
        self.backend = module.backend
        self._driver = driver = self.backend.kernel_driver()
        self._function, entry = module.function(name)
        self._parameters = _parameters(driver.parameter_sizes(self._function), entry)
        if written is None and entry is not None and entry.written is not None:
            written = [*entry.written]
        self._written = None if written is None else frozenset(written)
        self._read_only = frozenset(read_only)
        self._buffers: dict[str, ParameterBuffer] = {}
        self._checked: set[Geometry] = set()

    def attributes(self) -> dict[str, int]:
        """Return what the kernel needs, by CuPy's names."""
        return self._driver.attributes(self._function)

    def set_attribute(self, name: str, value: int) -> None:
        """Set the most dynamic shared memory, or the share of the cache that is shared memory."""
        if name == "max_dynamic_shared_size_bytes":
            self._check_shared(value)
        self._driver.set_attribute(self._function, name, value)

    def launch(self, geometry: Geometry, forms: str, args: Sequence[Any], stream: int) -> None:
        """Launch on a raw stream. The versions of tensors that the kernel may write to rise."""
        if geometry not in self._checked:
            self._check(geometry)
        buffer = self._buffers.get(forms) or self._new_buffer(forms)
        if len(args) != buffer.count:
            raise ArgumentTypeError(f"{self.name}: {len(args)} values for {buffer.count} arguments")
        rest = iter(args)
        values: list[Any] = [None if form == NULL else next(rest) for form in forms]
        targets = []
        for place in buffer.addresses:
            value: Value = values[place]
            if value.backend is not self.backend:
                self._check_place(place, value)
            meta = value.meta
            values[place] = value.storage.block.pointer + meta.offset * meta.dtype.itemsize
            if self._writes(place):
                targets.append(value.storage)
        for place in buffer.maps:
            value, tensor_map = values[place]
            self._check_place(place, value)
            meta = value.meta
            address = value.storage.block.pointer + meta.offset * meta.dtype.itemsize
            values[place] = self._driver.tensor_map(address, tensor_map)
            if self._writes(place):
                targets.append(value.storage)
        buffer.fill(values)
        self._driver.launch(self._function, geometry, stream, buffer.table)
        for storage in targets:
            storage.version += 1

    def _check_place(self, place: int, value: Value) -> None:
        if value.backend is not self.backend:
            raise DeviceError(
                f"{self.name}: argument {place + 1} is {value.meta} on {value.device}, and the kernel is on "
                f"{self.backend.device}"
            )

    def _writes(self, place: int) -> bool:
        return place not in self._read_only if self._written is None else place in self._written

    def _new_buffer(self, forms: str) -> ParameterBuffer:
        buffer = ParameterBuffer(self.name, forms, self._parameters)
        if len(self._buffers) < _MOST_FORMS:
            self._buffers[forms] = buffer
        return buffer

    def _check(self, geometry: Geometry) -> None:
        """Refuse what the device cannot launch; raise the kernel's dynamic shared memory to what is wanted."""
        limits, name = self._driver.limits, self.name
        for what, sizes, most in (
            ("grid", geometry.grid, limits.grid),
            ("block", geometry.block, limits.block),
        ):
            if not all(1 <= size <= bound for size, bound in zip(sizes, most, strict=True)):
                raise ArgumentError(f"{name}: {what} {sizes} is not between (1, 1, 1) and {most}")
        attributes = self.attributes()
        threads = geometry.block[0] * geometry.block[1] * geometry.block[2]
        if threads > (most_threads := min(limits.threads, attributes["max_threads_per_block"])):
            raise ArgumentError(
                f"{name}: block {geometry.block} has {threads} threads; this kernel, of {attributes['num_regs']} "
                f"registers per thread, can have {most_threads}"
            )
        self._check_shared(geometry.shared, attributes)
        self._check_cluster(geometry)
        if geometry.flags & ~(COOPERATIVE | PROGRAMMATIC):
            raise ArgumentError(f"{name}: unknown flags {geometry.flags}")
        if geometry.shared > attributes["max_dynamic_shared_size_bytes"]:
            self._driver.set_attribute(self._function, "max_dynamic_shared_size_bytes", geometry.shared)
        if len(self._checked) < _MOST_FORMS:
            self._checked.add(geometry)

    def _check_shared(self, nbytes: int, attributes: dict[str, int] | None = None) -> None:
        own = (attributes or self.attributes())["shared_size_bytes"]
        most = self._driver.limits.shared - own
        if not 0 <= nbytes <= most:
            raise ArgumentError(
                f"{self.name}: {nbytes} bytes of dynamic shared memory; beside its {own} bytes of its own the kernel "
                f"can have {most} on this device"
            )

    def _check_cluster(self, geometry: Geometry) -> None:
        cluster = geometry.cluster
        if cluster is None:
            return
        blocks, most = cluster[0] * cluster[1] * cluster[2], self._driver.limits.cluster
        if min(cluster) < 1 or blocks > most:
            raise ArgumentError(f"{self.name}: a cluster of {cluster} blocks; this device has at most {most}")
        if any(size % part for size, part in zip(geometry.grid, cluster, strict=True)):
            raise ArgumentError(f"{self.name}: grid {geometry.grid} is no multiple of the cluster {cluster}")


def _parameters(sizes: Sequence[int] | None, entry: ptx.Entry | None) -> Sequence[Parameter] | None:
    """Return the parameters of a kernel, as its text tells or else the driver; None where neither does."""
    if entry is not None:
        return entry.parameters
    return None if sizes is None else [Parameter("", size) for size in sizes]
