"""CUDA C++ text to machine code: NVRTC with our own options, and the cubins kept on disk.

CuPy's compiler always flushes denormals; this one never does. A cubin is named by the hash of all that it depends on
(text, options, architecture, compiler), so a stale one is never found. Knows nothing of devices or launches.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from cuda.bindings import nvrtc

from server.compilations import compilations
from server.engine.device import cancellation
from server.kernel_cache import kernels_directory
from telegrad_protocol.errors import InternalError

from . import cubin_files

EXACT = "--exact-architecture"
"""An option of ours: the text has instructions that later architectures lack (``sm_90a``)."""
OPTIONS = ("--std=c++17", "--fmad=true", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "-default-device")


class KernelCompilationError(InternalError):
    """A CUDA kernel of the server does not compile on this machine; the message has the compiler's log."""

    @property
    def code(self) -> str:
        """That of its base: clients know of no defect in particular."""
        return InternalError.__name__


def is_kept(source: str, architecture: str, options: tuple[str, ...] = ()) -> bool:
    """Whether the machine code of ``source`` is on the disk."""
    return path_of(source, architecture, options).exists()


def path_of(source: str, architecture: str, options: tuple[str, ...] = ()) -> Path:
    """Where the machine code of ``source`` is kept on the disk."""
    return kernels_directory() / name_of(source, architecture, options)


def name_of(source: str, architecture: str, options: tuple[str, ...] = ()) -> str:
    """The name of the file that the machine code of ``source`` is kept in."""
    return _name(source, _all_options(architecture, options))


def compile_cubin(source: str, architecture: str, options: tuple[str, ...] = ()) -> bytes:
    """Machine code of ``source`` for an architecture such as ``sm_90``, from the disk where it was compiled before."""
    options = _all_options(architecture, options)
    path = kernels_directory() / _name(source, options)
    kept = cubin_files.read(path)
    if kept:
        return kept
    if cancellation.requested:
        cancellation.stop()
    cubin = _compile(source, options)
    compilations.on_path += 1
    cubin_files.keep(path, cubin)
    return cubin


def _all_options(architecture: str, options: tuple[str, ...]) -> tuple[str, ...]:
    exact = "a" if EXACT in options else ""
    return (f"--gpu-architecture={architecture}{exact}", *OPTIONS, *(option for option in options if option != EXACT))


def _name(source: str, options: tuple[str, ...]) -> str:
    digest = hashlib.sha256(repr((options, version())).encode())
    digest.update(source.encode())
    return f"{digest.hexdigest()}{cubin_files.SUFFIX}"


@functools.cache
def version() -> tuple[int, int]:
    """That of the compiler."""
    status, major, minor = nvrtc.nvrtcVersion()
    _check(status, "version")
    return major, minor


def _compile(source: str, options: tuple[str, ...]) -> bytes:
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    _check(status, "create program")
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise KernelCompilationError(f"a CUDA kernel does not compile: {_log(program)}")
        status, size = nvrtc.nvrtcGetCUBINSize(program)
        _check(status, "cubin size")
        cubin = bytearray(size)
        (status,) = nvrtc.nvrtcGetCUBIN(program, cubin)
        _check(status, "cubin")
        return bytes(cubin)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(program: object) -> str:
    status, size = nvrtc.nvrtcGetProgramLogSize(program)
    _check(status, "log size")
    log = bytearray(size)
    (status,) = nvrtc.nvrtcGetProgramLog(program, log)
    _check(status, "log")
    return log.rstrip(b"\0").decode(errors="replace").strip()


def _check(status: object, what: str) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise KernelCompilationError(f"NVRTC: {what}: {status}")
