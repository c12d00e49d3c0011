"""cuBLAS and cuSOLVER through nvmath's bindings: a handle of each per device, and their functions by type."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

try:
    from nvmath.bindings import cublas, cusolverDn
except ImportError:
    cublas = cusolverDn = None

blas: Any = cublas
solver: Any = cusolverDn
IS_AVAILABLE = blas is not None and solver is not None

PREFIXES: dict[DType, str] = {
    dtypes.float32: "s", dtypes.float64: "d", dtypes.complex64: "c", dtypes.complex128: "z",
}  # fmt: skip
"""The types that both libraries factorize, and the first letter of their functions."""
LOWER, UPPER = 0, 1
PLAIN, TRANSPOSED, ADJOINT = 0, 1, 2
LEFT, RIGHT = 0, 1


def blas_function(name: str, dtype: DType) -> Callable[..., Any]:
    """A function of cuBLAS, such as ``getrf_batched``."""
    function: Callable[..., Any] = getattr(blas, PREFIXES[dtype] + name)
    return function


def solver_function(name: str, dtype: DType) -> Callable[..., Any]:
    """A function of cuSOLVER, such as ``potrf``."""
    function: Callable[..., Any] = getattr(solver, PREFIXES[dtype] + name)
    return function


@functools.cache
def _blas_handle(device: int) -> int:
    return int(blas.create())


@functools.cache
def _solver_handle(device: int) -> int:
    return int(solver.create())


def blas_on(backend: Any) -> int:
    """The handle of cuBLAS for the backend's device, whose calls go to the current stream."""
    handle = _blas_handle(backend.index)
    blas.set_stream(handle, backend.stream)
    return handle


def solver_on(backend: Any) -> int:
    """The handle of cuSOLVER for the backend's device, whose calls go to the current stream."""
    handle = _solver_handle(backend.index)
    solver.set_stream(handle, backend.stream)
    return handle
