"""The commands that build an extension: compilers of this machine, and the options that telegrad's headers need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from telegrad_protocol.errors import NotSupportedError, ToolkitError
from telegrad_protocol.extension_messages import BuildExtension

INCLUDE: Final = Path(__file__).parent / "include"
CUDA_SUFFIXES: Final = (".cu", ".cuh")
_COMMON: Final = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique")
_NETWORKS: Final = re.compile(r"\bnn\s*::|\btorch/nn")
_INCLUDES_OWN: Final = re.compile(r"^\s*#\s*include\s*[\"<](?!\w+>)", re.MULTILINE)
_WRAPPED: Final = (
    "__cudaPushCallConfiguration", "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel",
    "cudaGetLastError", "cudaPeekAtLastError", "cudaMemcpy", "cudaMemcpyAsync", "cudaMemset", "cudaMemsetAsync",
    "cudaMemcpyFromSymbol", "cudaMemcpyToSymbol",
)  # fmt: skip
"""Functions of CUDA that ``cuda_calls.h`` replaces: work goes to the session's stream, and what fails is noted."""


class Toolkit(NamedTuple):
    """CUDA's compiler, and the directory with its headers and libraries."""

    nvcc: str
    top: Path


def host_compiler() -> str:
    """Return the C++ compiler of this machine: that of ``CXX``, else g++ or clang++."""
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise ToolkitError(
        "extension: the server has no C++ compiler; its operator can install g++, or name another by CXX"
    )


@cache
def cuda_toolkit() -> Toolkit | None:
    """Return CUDA's toolkit on this machine; None where there is no nvcc."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    nvcc = shutil.which("nvcc", path=f"{home}/bin") or shutil.which("nvcc")
    if nvcc is None:
        return None
    told = subprocess.run([nvcc, "--dryrun", "-x", "cu", "-c", "/dev/null"], capture_output=True, text=True)
    top = re.search(r"^#\$ TOP=(.+)$", told.stderr, re.MULTILINE)
    return Toolkit(nvcc, Path(top[1].strip()) if top else Path(nvcc).resolve().parent.parent)


class Prefix(NamedTuple):
    """A header that some sources begin with, by their names."""

    header: Path
    sources: set[str]


def needs_cuda(request: BuildExtension) -> bool:
    """Whether the extension is compiled with CUDA: it was asked for, or there is a source of it."""
    return request.with_cuda or any(path.endswith(CUDA_SUFFIXES) for path, _ in request.sources)


def needs_gpu(request: BuildExtension) -> bool:
    """Whether it is for the session's GPU to say what the extension is compiled for: nothing in the request does."""
    return needs_cuda(request) and not request.architectures and not _names_architectures(request.cuda_cflags)


def steps(
    request: BuildExtension, directory: Path, architecture: str, runtime: Path | None, prefix: Prefix | None = None
) -> list[list[list[str]]]:
    """Return the commands that build ``extension.so`` in a directory, in steps of what can be done side by side.

    ``runtime`` is the object of telegrad's own source, which is the same for all extensions; None where it is to be
    compiled too, as ``runtime.o``. Some sources begin with the headers of ``prefix``.
    """
    cxx, toolkit = host_compiler(), None
    if needs_cuda(request):
        toolkit = cuda_toolkit()
        if toolkit is None:
            raise ToolkitError(
                "extension: the server has no nvcc, which host code that launches kernels needs; its operator can "
                "install CUDA's toolkit (CUDA_HOME). Kernels alone need none: telegrad.cuda.RawModule"
            )
    own = _own(toolkit)
    shared = [f"-DTORCH_EXTENSION_NAME={request.name}", *own]
    shared += [f"-I{placed(directory, folder)}" for folder in request.include_paths]
    includes = [f"-I{path}" for path in _cuda_includes(toolkit)] if toolkit else []
    host = [*_COMMON, *shared, *includes]
    compiles: list[list[str]] = []
    objects = ["runtime.o" if runtime is None else str(runtime)]
    if runtime is None:
        source = str(placed(directory, "telegrad_runtime.cpp"))
        flags = [*_COMMON, "-O1", *own, *includes, *abi_flags(request)]
        compiles.append([cxx, *flags, source, "-c", "-o", "runtime.o"])
    for number, (path, text) in enumerate(request.sources):
        objects.append(f"{number}.o")
        source = str(placed(directory, path))
        if toolkit is not None and path.endswith(CUDA_SUFFIXES):
            compiles.append([*_nvcc(toolkit, cxx, shared, architecture, request), source, "-c", "-o", objects[-1]])
        else:
            first = ["-include", str(prefix.header)] if prefix is not None and path in prefix.sources else []
            first += ["-include", "torch/nn.h"] if _names_networks(text, request) else []
            compiles.append([cxx, *host, *request.cflags, *first, source, "-c", "-o", objects[-1]])
    link = [cxx, "-shared", *objects, "-o", "extension.so", "-Wl,-Bsymbolic", "-Wl,--exclude-libs,ALL"]
    if toolkit is not None:
        link += [f"-Wl,--wrap={name}" for name in _WRAPPED]
    link += request.ldflags
    if toolkit is not None:
        link += [f"-L{path}" for path in _cuda_libraries(toolkit)]
        link += ["-lcudart_static", "-ldl", "-lrt", "-lpthread"]
    return [compiles, [link]]


def preparing(request: BuildExtension, header: Path, flags: list[str]) -> list[str]:
    """Return the command that prepares a header for compilations with these flags."""
    toolkit = cuda_toolkit() if needs_cuda(request) else None
    includes = [f"-I{path}" for path in _cuda_includes(toolkit)] if toolkit else []
    flags = [*_COMMON, *_own(toolkit), *includes, *flags]
    return [host_compiler(), *flags, "-x", "c++-header", str(header), "-o", f"{header}.gch"]


def abi_flags(request: BuildExtension) -> list[str]:
    """Return the flags by which the standard library's types have another layout, for telegrad's own source too."""
    return [flag for flag in request.cflags if flag.startswith(("-D_", "-stdlib=", "-fabi-version="))]


def placed(directory: Path, path: str) -> Path:
    """Return where a file of the client's lies in the build directory."""
    return directory / "files" / os.path.normpath(f"/{path}").lstrip("/")


def as_given(path: str) -> str:
    """Return the client's name of a file that was placed in some build directory."""
    return path.rpartition("/files/")[2] if "/files/" not in path else "/" + path.split("/files/", 1)[1]


def _names_networks(text: str, request: BuildExtension) -> bool:
    """Whether a source names PyTorch's modules, or includes headers of the program's that do.

    PyTorch's ``torch/extension.h`` has them; most extensions have none, and need not read them.
    """
    within = _INCLUDES_OWN.search(text) and any(_NETWORKS.search(header) for _, header in request.headers)
    return bool(within or _NETWORKS.search(text))


def _own(toolkit: Toolkit | None) -> list[str]:
    """Return what all compilations are told of telegrad's headers."""
    macros = ["-DTELEGRAD_WITH_CUDA", "-DWITH_CUDA"] if toolkit is not None else []
    return ["-DTORCH_API_INCLUDE_EXTENSION_H", *macros, f"-I{INCLUDE}"]


def _nvcc(toolkit: Toolkit, cxx: str, shared: list[str], architecture: str, request: BuildExtension) -> list[str]:
    command = [toolkit.nvcc, "-ccbin", cxx, "-std=c++17", "-O2", "--expt-relaxed-constexpr", "-diag-suppress", "20012"]
    command += [option for flag in _COMMON[2:] for option in ("-Xcompiler", flag)]
    chosen = request.cuda_cflags
    if not _names_architectures(chosen):
        command += _architectures(request.architectures or architecture)
    return [*command, *shared, *chosen]


def _names_architectures(flags: list[str]) -> bool:
    return any(flag.startswith(("-arch", "--gpu-architecture", "-gencode", "--generate-code")) for flag in flags)


def _architectures(listed: str) -> list[str]:
    """Return nvcc's options for architectures as ``TORCH_CUDA_ARCH_LIST`` lists them: ``9.0 10.0+PTX``."""
    options: list[str] = []
    for item in re.split(r"[;, ]+", listed.strip()):
        number, plus, _ = item.partition("+")
        plain = number.replace(".", "")
        if not re.fullmatch(r"\d+[af]?", plain):
            raise NotSupportedError(f"TORCH_CUDA_ARCH_LIST: expected numbers such as 9.0 or 9.0+PTX, got {item!r}")
        options.append(f"-gencode=arch=compute_{plain},code=sm_{plain}")
        if plus:
            options.append(f"-gencode=arch=compute_{plain},code=compute_{plain}")
    return options


def _cuda_includes(toolkit: Toolkit) -> list[Path]:
    return [path for path in (toolkit.top / "include", toolkit.top / "targets/x86_64-linux/include") if path.is_dir()]


def _cuda_libraries(toolkit: Toolkit) -> list[Path]:
    folders = (toolkit.top / "lib64", toolkit.top / "lib", toolkit.top / "targets/x86_64-linux/lib")
    return [path for path in folders if path.is_dir()]


def versions(request: BuildExtension) -> list[Any]:
    """Return what the compilers say of themselves, which a library that was built before depends on."""
    named = [host_compiler()]
    toolkit = cuda_toolkit() if needs_cuda(request) else None
    if toolkit is not None:
        named.append(toolkit.nvcc)
    return [_version(name) for name in named]


@cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
