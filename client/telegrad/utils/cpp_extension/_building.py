"""What setup scripts ask of this machine's compilers and folders, where extensions are compiled on the server."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from telegrad_protocol.errors import NotSupportedError

CUDA_HOME: Final = None
"""CUDA's toolkit on this machine: extensions are compiled on the server, so there is none to be used."""
ROCM_HOME: Final = None
IS_HIP_EXTENSION: Final = False
_INSTEAD: Final = (
    "extensions are compiled on the server: use CppExtension, CUDAExtension and BuildExtension in a setup script, or "
    "torch.utils.cpp_extension.load(name, sources) where the program imports the extension's module"
)


def _refuse(name: str) -> NoReturn:
    raise NotSupportedError(f"{name}: {_INSTEAD}")


def SyclExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Refuse: there are no SYCL devices, and a setup script has no server that would compile."""
    raise NotSupportedError("SyclExtension: there are no SYCL devices; CUDAExtension is for GPUs")


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
    """Return no directories: the headers are on the server, whose compiler finds them by itself."""
    return []


def library_paths(
    device_type: str = "cpu", torch_include_dirs: bool = True, cross_target_platform: Any = None
) -> list[str]:
    """Return no directories: extensions are linked on the server, with what they need."""
    return []


def is_ninja_available() -> bool:
    """Whether builds run side by side: they do, on the server, without ninja."""
    return True


def verify_ninja_availability() -> None:
    """Return: nothing is needed here."""


def check_compiler_ok_for_platform(compiler: str) -> bool:
    """Whether a compiler fits: the server's does."""
    return True


def get_compiler_abi_compatibility_and_version(compiler: str) -> tuple[bool, Any]:
    """Return that the compiler fits, and no version of it: it is the server's."""
    return True, None


def check_compiler_is_gcc(compiler: str) -> bool:
    """Whether a compiler is GCC: the server chooses its own."""
    return True


def get_cxx_compiler() -> str:
    """Return what a setup script would call; the server uses a compiler of its own."""
    return "c++"


def get_default_build_root() -> NoReturn:
    """Refuse: the server has the directories of builds."""
    _refuse("get_default_build_root")


def remove_extension_h_precompiler_headers() -> None:
    """Return: there are none on this machine."""
