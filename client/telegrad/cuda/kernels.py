"""Kernels of the program's own, as CUDA C++ text, PTX or a cubin; see docs/custom-kernels.md."""

from __future__ import annotations

from telegrad._kernels.raw import RawKernel as RawKernel
from telegrad._kernels.raw import RawModule as RawModule
from telegrad._kernels.raw import _compile_kernel as _compile_kernel
