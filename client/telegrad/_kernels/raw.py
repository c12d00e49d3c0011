"""``RawModule`` and ``RawKernel``: CUDA C++ text, PTX or a cubin, by CuPy's names, and PyTorch's ``_compile_kernel``.

Text is compiled by the server for its GPU. A module is loaded, once per session and device, when it is first needed:
that takes one round trip and the compiler's time; further launches wait for nothing.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from telegrad._session.current import current_session
from telegrad._session.devices import current_gpu, gpu_of
from telegrad._session.own_code import depth_of_program
from telegrad._session.session import ClientSession
from telegrad.cuda.devices import get_device_capability
from telegrad.cuda.streams import stream as on_stream
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from telegrad_protocol.kernel_messages import COOPERATIVE, CUDA_TEXT
from telegrad_protocol.meta import Device

from .include_files import headers_of, split_options
from .remote_kernel import RemoteKernel, RemoteModule, encode, loaded_of, place_of, three

_ELF = b"\x7fELF"


class RawModule:
    """Kernels of one piece of code.

    ``code`` is CUDA C++ text; or ``path`` names a file with text (``.cu``), PTX or a cubin. ``options`` are the
    compiler's; folders of ``-I`` are searched here, and the headers in them are sent along. ``name_expressions`` are
    the instances of templates that ``get_function`` is to find. ``read_only`` are, by kernel, the places of arguments
    that it does not write to, where the code does not show it. Raises CompilationError, which has the compiler's
    messages with their lines, at the first ``get_function``'s first use, or at ``compile``.
    """

    def __init__(
        self,
        code: str | None = None,
        *,
        path: str | None = None,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Sequence[str] | None = None,
        jitify: bool = False,
    ) -> None:
        if (code is None) == (path is None):
            raise ArgumentTypeError("RawModule: give either the code or the path of a file that has it")
        if backend != "nvrtc":
            raise NotSupportedError(f"RawModule: the server compiles with NVRTC (backend='nvrtc'), not {backend!r}")
        if translate_cucomplex or jitify:
            raise NotSupportedError("RawModule: translate_cucomplex and jitify are CuPy's own; include CUDA's headers")
        if isinstance(options, str):
            raise ArgumentTypeError("RawModule: options must be a list of texts, not one text")
        self.code, self.file_path = code, path
        self.options, self.backend = tuple(options), backend
        self.enable_cooperative_groups = enable_cooperative_groups
        self.name_expressions = None if name_expressions is None else tuple(name_expressions)
        self._kind, self._code, self._file, self._line = _read(code, path)

    def compile(self, log_stream: Any = None) -> None:
        """Compile now, for the current GPU, and wait for it."""
        session = current_session()
        self._module_on(session, current_gpu(session, "compile"))
        session.synchronize()

    def get_function(self, name: str) -> RawKernel:
        """Return a kernel by its name, or by an expression of ``name_expressions``."""
        return RawKernel._of(self, name)

    def get_global(self, name: str) -> Any:
        """Not there: a module's variables have no tensor to stand for them."""
        raise NotSupportedError("get_global: variables of a module cannot be reached; pass a tensor to the kernel")

    def _module_on(self, session: ClientSession, device: Device, expressions: Sequence[str] = ()) -> RemoteModule:
        loaded = loaded_of(self, session)
        module: RemoteModule | None = loaded.get(device)
        if module is None:
            options, folders = split_options(self.options)
            text = self._code.decode(errors="replace") if self._kind == CUDA_TEXT else ""
            module = RemoteModule(
                session, device, self._kind, self._code, file=self._file, line=self._line, options=options,
                headers=headers_of(text, folders), expressions=self.name_expressions or expressions,
            )  # fmt: skip
            loaded[device] = module
        return module

    def _forget(self, session: ClientSession, device: Device) -> None:
        loaded_of(self, session).pop(device, None)

    def __getattr__(self, name: str) -> RawKernel:
        if name.startswith("__") or "_kind" not in self.__dict__:
            raise AttributeError(name)
        return self.get_function(name)


def _read(code: str | None, path: str | None) -> tuple[str, bytes, str, int]:
    """Return the kind of code, its bytes, and where the program has it."""
    if path is not None:
        data = Path(path).read_bytes()
        if data.startswith(_ELF):
            return "cubin", data, path, 1
        is_ptx = path.endswith(".ptx") or (b".version" in data[:4096] and b".target" in data[:4096])
        return ("ptx" if is_ptx else CUDA_TEXT), data, path, 1
    if not isinstance(code, str):
        raise ArgumentTypeError(f"RawModule: the code must be a text, not {type(code).__name__}")
    if ".version" in code[:4096] and ".target" in code[:4096]:
        return "ptx", code.encode(), "", 1
    return CUDA_TEXT, code.encode(), *_place_in_program(code)


def _place_in_program(code: str) -> tuple[str, int]:
    """Return file and line where the program has this text, so that the compiler's messages tell of that."""
    frame = sys._getframe(depth_of_program() - 1)
    file = frame.f_code.co_filename
    before, found, _ = "".join(linecache.getlines(file, frame.f_globals)).partition(code)
    return (file, before.count("\n") + 1) if found and "\n" in code else ("kernel.cu", 1)


class RawKernel:
    """A kernel: ``kernel(grid, block, args, shared_mem=0)`` launches it on the current stream.

    ``grid`` and ``block`` are one to three sizes. Arguments are tensors, which the kernel gets as addresses of their
    first elements, NumPy's scalars and ctypes' values, whose bytes it gets, Python's numbers, which take the types of
    their parameters, and None for a null pointer. The server refuses arguments that do not fit the kernel's
    parameters. ``read_only`` are the places of arguments that the kernel does not write to, where its code does not
    show that.
    """

    def __init__(
        self,
        code: str,
        name: str,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        *,
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        jitify: bool = False,
        read_only: Sequence[int] = (),
    ) -> None:
        module = RawModule(
            code, options=options, backend=backend, translate_cucomplex=translate_cucomplex,
            enable_cooperative_groups=enable_cooperative_groups, jitify=jitify,
        )  # fmt: skip
        self._set(module, name, read_only)

    @classmethod
    def _of(cls, module: RawModule, name: str) -> RawKernel:
        kernel = cls.__new__(cls)
        kernel._set(module, name, ())
        return kernel

    def _set(self, module: RawModule, name: str, read_only: Sequence[int]) -> None:
        self._module, self.name, self.read_only = module, name, tuple(read_only)
        self.code, self.options, self.backend = module.code, module.options, module.backend
        self.file_path, self.enable_cooperative_groups = module.file_path, module.enable_cooperative_groups
        self._settings: dict[str, int] = {}

    def __call__(
        self, grid: Any = (1, 1, 1), block: Any = (1, 1, 1), args: Sequence[Any] | None = (), shared_mem: int = 0,
        stream: Any = None,
    ) -> None:  # fmt: skip
        """Launch; nothing waits for it. ``stream`` is a stream of ``telegrad.cuda``, by default the current one."""
        if stream is not None:
            with on_stream(stream):
                self(grid, block, args, shared_mem)
            return
        args = () if args is None else args
        place = place_of(args)
        session, device = place if place is not None else _current()
        forms, values = encode(self.name, session, device, args)
        kernel = self._kernel_on(session, device)
        flags = COOPERATIVE if self.enable_cooperative_groups else 0
        blocks, threads = three(self.name, "grid", grid), three(self.name, "block", block)
        kernel.launch(blocks, threads, forms, values, int(shared_mem), None, flags)

    def _kernel_on(self, session: ClientSession, device: Device) -> RemoteKernel:
        kernels = loaded_of(self, session)
        kernel: RemoteKernel | None = kernels.get(device)
        if kernel is not None:
            return kernel
        is_text = self._module._kind == CUDA_TEXT
        module = self._module._module_on(session, device, [self.name] if is_text else [])
        try:
            kernel = RemoteKernel(module, self.name, read_only=self.read_only)
        except Exception:
            self._module._forget(session, device)
            raise
        for name, value in self._settings.items():
            kernel.set_attribute(name, value)
        kernels[device] = kernel
        return kernel

    def compile(self, log_stream: Any = None) -> None:
        """Compile and load now, for the current GPU, and wait for it."""
        self._kernel_on(*_current())

    @property
    def attributes(self) -> dict[str, int]:
        """What the kernel needs on the current GPU, as CuPy names it; compiles it if that was not done."""
        return dict(self._kernel_on(*_current()).attributes)

    @property
    def kernel(self) -> RawKernel:
        """The kernel itself: there is no pointer to it here."""
        return self

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """Allow so many bytes of dynamic shared memory; a launch that wants more than 48 KiB does it by itself."""
        self.max_dynamic_shared_size_bytes = shared_mem_bytes

    def _set_attribute(self, name: str, value: int) -> None:
        self._settings[name] = int(value)
        self._kernel_on(*_current()).set_attribute(name, value)


def _current() -> tuple[ClientSession, Device]:
    return current_session(), gpu_of("kernel", None)


def _attribute(name: str, described: str, *, can_be_set: bool = False) -> property:
    def get(self: RawKernel) -> int:
        return self.attributes[name]

    def change(self: RawKernel, value: int) -> None:
        self._set_attribute(name, value)

    get.__doc__ = described
    return property(get, change if can_be_set else None)


_SETTABLE = ("max_dynamic_shared_size_bytes", "preferred_shared_memory_carveout")
_ATTRIBUTES = {
    "max_threads_per_block": "Most threads that a block of this kernel can have.",
    "shared_size_bytes": "Bytes of shared memory that the kernel itself declares.",
    "const_size_bytes": "Bytes of constant memory.",
    "local_size_bytes": "Bytes of local memory per thread.",
    "num_regs": "Registers per thread.",
    "ptx_version": "The version of PTX that it was compiled for.",
    "binary_version": "The architecture that it was compiled for.",
    "cache_mode_ca": "Whether global loads are cached in L1.",
    "max_dynamic_shared_size_bytes": "Most dynamic shared memory that a launch may ask for.",
    "preferred_shared_memory_carveout": "Share of the cache, in per cent, that is to be shared memory; -1 for any.",
}
for _name, _described in _ATTRIBUTES.items():
    setattr(RawKernel, _name, _attribute(_name, _described, can_be_set=_name in _SETTABLE))


def _compile_kernel(
    kernel_source: str,
    kernel_name: str,
    compute_capability: str | None = None,
    cuda_include_dirs: Sequence[str] | None = None,
    nvcc_options: Sequence[str] | None = None,
) -> RawKernel:
    """Compile a kernel for the current GPU, and return it: ``torch.cuda._compile_kernel``.

    ``compute_capability`` must be that of the server's GPU, which is what the text is compiled for in any case.
    """
    _require_capability(compute_capability)
    options = [*(f"-I{folder}" for folder in cuda_include_dirs or ()), *(nvcc_options or ())]
    kernel = RawKernel(kernel_source, kernel_name, options)
    kernel.compile()
    return kernel


def _require_capability(wanted: str | None) -> None:
    if wanted is None:
        return
    has = "".join(map(str, get_device_capability()))
    if str(wanted).rstrip("af") != has:
        raise ArgumentError(f"compile: the server's GPU is of compute capability {has}, not {wanted}")
