"""Functions of PyTorch's that hand addresses between a program and CUDA. The server's addresses mean nothing here.

Their names can be imported; calling one is refused, and the error says what to use instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from telegrad._session.devices import DeviceLike
from telegrad_protocol.errors import NotSupportedError

from .streams import Stream

__all__ = [
    "CUDAPluggableAllocator", "ExternalStream", "GreenContext", "caching_allocator_disabled",
    "caching_allocator_enable", "change_current_allocator", "current_blas_handle", "current_solver_handle",
    "get_stream_from_external",
]  # fmt: skip


class ExternalStream(Stream):
    """Refuses to be made: a stream that another library made is one of this process, not of the server's."""

    def __init__(self, stream_ptr: int, device: DeviceLike = None, **kwargs: Any) -> None:
        raise NotSupportedError(f"ExternalStream: {_STREAMS}")


def get_stream_from_external(data_ptr: int, device: DeviceLike = None) -> Stream:
    """Refuse, as ``ExternalStream``."""
    raise NotSupportedError(f"get_stream_from_external: {_STREAMS}")


_STREAMS = "the server's GPU has no streams of this process; use cuda.Stream()"


class CUDAPluggableAllocator:
    """Refuses to be made: a library of functions that allocate is loaded by the server, by its operator's will."""

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        raise NotSupportedError(
            "CUDAPluggableAllocator: the server allocates; its operator names a library by TELEGRAD_CUDA_ALLOCATOR"
        )


def change_current_allocator(allocator: Any) -> None:
    """Refuse: one allocator serves all sessions of a GPU."""
    raise NotSupportedError(
        "change_current_allocator: one allocator serves all sessions; its operator names another by "
        "TELEGRAD_CUDA_ALLOCATOR, and cuda.MemPool gives a program memory of its own"
    )


def caching_allocator_enable(value: bool = True) -> None:
    """Do nothing for True: the allocator always caches. Raises NotSupportedError for False."""
    if not value:
        raise NotSupportedError(
            "caching_allocator_enable: one allocator serves all sessions, and always caches; "
            "cuda.empty_cache() gives back what no tensor uses"
        )


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Refuse, as ``caching_allocator_enable(False)``."""
    caching_allocator_enable(False)
    yield


def current_blas_handle() -> NoReturn:
    """Refuse: cuBLAS is called by the server."""
    raise NotSupportedError("current_blas_handle: cuBLAS is the server's; call the products themselves, such as matmul")


def current_solver_handle() -> NoReturn:
    """Refuse: cuSOLVER is called by the server."""
    raise NotSupportedError("current_solver_handle: cuSOLVER is the server's; call the functions of linalg")


class GreenContext:
    """Refuses to be made: how a GPU is divided between sessions is its operator's choice."""

    def __init__(self) -> None:
        self.create()

    @staticmethod
    def create(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotSupportedError("GreenContext: a session cannot divide its GPU; use streams with priorities")
