"""Extensions in C++ and CUDA: their sources travel to the server, are compiled there, and run in its worker.

The server's operator decides whether it runs code of clients (``TELEGRAD_ALLOW_HOST_CODE``); a private server does.
docs/extensions.md says what extensions can use, and what they can do to others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._building import CUDA_HOME as CUDA_HOME
from ._building import IS_HIP_EXTENSION as IS_HIP_EXTENSION
from ._building import ROCM_HOME as ROCM_HOME
from ._building import SyclExtension as SyclExtension
from ._building import check_compiler_is_gcc as check_compiler_is_gcc
from ._building import check_compiler_ok_for_platform as check_compiler_ok_for_platform
from ._building import get_compiler_abi_compatibility_and_version as get_compiler_abi_compatibility_and_version
from ._building import get_cxx_compiler as get_cxx_compiler
from ._building import get_default_build_root as get_default_build_root
from ._building import include_paths as include_paths
from ._building import is_ninja_available as is_ninja_available
from ._building import library_paths as library_paths
from ._building import remove_extension_h_precompiler_headers as remove_extension_h_precompiler_headers
from ._building import verify_ninja_availability as verify_ninja_availability
from ._loading import load as load
from ._loading import load_inline as load_inline

if TYPE_CHECKING:
    from ._setup import BuildExtension as BuildExtension
    from ._setup import CppExtension as CppExtension
    from ._setup import CUDAExtension as CUDAExtension
else:

    def __getattr__(name: str) -> Any:
        """Return what needs setuptools, which only setup scripts have to have."""
        if name not in ("BuildExtension", "CUDAExtension", "CppExtension"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("._setup", __name__), name)


__all__ = [
    "CUDA_HOME",
    "IS_HIP_EXTENSION",
    "ROCM_HOME",
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "SyclExtension",
    "check_compiler_is_gcc",
    "check_compiler_ok_for_platform",
    "get_compiler_abi_compatibility_and_version",
    "get_cxx_compiler",
    "get_default_build_root",
    "include_paths",
    "is_ninja_available",
    "library_paths",
    "load",
    "load_inline",
    "remove_extension_h_precompiler_headers",
    "verify_ninja_availability",
]
