"""Modules of clients' code on a device, and what one session may load."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from server.engine.context import HostMemory
from server.engine.value import Backend
from telegrad_protocol import ptx
from telegrad_protocol.errors import ArgumentError, OutOfMemoryError
from telegrad_protocol.kernel_messages import CODE_KINDS, CUDA_TEXT, LoadModule

from .interface import Compiled, KernelDriver, Text

Perform: TypeAlias = Callable[..., None]

MAX_MODULES = 4096
"""A session may have so many modules at a time: each holds an object of the driver."""
MAX_MODULE_BYTES = 1 << 29
"""The code of a session's modules may have so many bytes."""
MODULE_BYTES = 16 << 10
"""What a module takes of the host besides its code: the objects of the driver, and what is known of its kernels."""
_LAST = 3


class ModuleAccount:
    """What one session has loaded, which is noted in the account of its host memory until it is unloaded.

    ``last`` are the names and sites of the kernels that it has launched last: where the device fails, one of them did
    it, or one before them.
    """

    __slots__ = ("_host", "count", "last", "nbytes", "retired")

    def __init__(self, host: HostMemory) -> None:
        self._host = host
        self.count = self.nbytes = 0
        self.retired: list[tuple[Backend, Any, int, set[Perform]]] = []
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
        performs: dict[Backend, set[Perform]] = {}
        for backend, _, _, own in retired:
            performs.setdefault(backend, set()).update(own)
        for backend, gone in performs.items():
            backend.synchronize()
            backend.forget_launches(gone)
        for backend, module, nbytes, _ in retired:
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
        self.performs: set[Perform] = set()
        """What makes launches of its kernels: it may be kept with captured launches for as long as the module."""
        self._account, self.backend = account, backend

    def function(self, name: str) -> tuple[Any, ptx.Entry | None]:
        """Return a function and what is known of it from its text; expressions are names, too."""
        name = self._names.get(name, name)
        return self.backend.kernel_driver().function(self._module, name), self._entries.get(name)

    def __del__(self) -> None:
        if hasattr(self, "backend"):
            self._account.retired.append((self.backend, self._module, self._nbytes, self.performs))


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
