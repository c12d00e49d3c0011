"""What programs ask of CUDA's runtime beside tensors: its errors, its compiler's targets, and calls of ``cudart()``."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NoReturn

from telegrad._session.current import current_session
from telegrad._session.devices import DeviceLike
from telegrad_protocol.errors import NotSupportedError

from .devices import get_device_capability, is_available
from .memory import mem_get_info

__all__ = [
    "CudaError", "check_error", "cudaStatus", "cudart", "get_arch_list", "get_gencode_flags", "ipc_collect",
    "is_tf32_supported",
]  # fmt: skip


class CudaError(RuntimeError):
    """A call of CUDA's runtime has failed."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{_CudaRuntime.cudaGetErrorString(code)} ({int(code)})")


class _Code(IntEnum):
    """What a call of CUDA's runtime returns."""

    success = 0
    ERROR_NOT_READY = 34


cudaStatus = _Code


class _CudaRuntime:
    """The calls that PyTorch's ``cudart()`` has, as far as a program can make them from outside of the server."""

    cudaError = _Code

    @staticmethod
    def cudaGetErrorString(code: int) -> str:
        return "no error" if code == _Code.success else "unknown CUDA error"

    @staticmethod
    def cudaMemGetInfo(device: DeviceLike = None) -> tuple[int, int]:
        """Free and total bytes of a GPU. One round trip."""
        return mem_get_info(device)

    @staticmethod
    def cudaProfilerStart() -> _Code:
        """Do nothing: a profiler of the GPU is started where the server runs."""
        return _Code.success

    @staticmethod
    def cudaProfilerStop() -> _Code:
        """Do nothing, as ``cudaProfilerStart``."""
        return _Code.success

    @staticmethod
    def cudaHostRegister(ptr: int, size: int, flags: int) -> NoReturn:
        raise NotSupportedError(
            "cudaHostRegister: the memory of this process cannot be pinned for the server's GPU; "
            "copies are pinned by the server"
        )

    @staticmethod
    def cudaHostUnregister(ptr: int) -> NoReturn:
        raise NotSupportedError("cudaHostUnregister: no memory of this process is registered with the server's GPU")

    @staticmethod
    def cudaStreamCreate(ptr: int) -> NoReturn:
        raise NotSupportedError("cudaStreamCreate: streams have no addresses here; use cuda.Stream()")

    @staticmethod
    def cudaStreamDestroy(ptr: int) -> NoReturn:
        raise NotSupportedError("cudaStreamDestroy: streams have no addresses here; cuda.Stream() needs no end")


_runtime = _CudaRuntime()


def cudart() -> Any:
    """Return an object with the calls of CUDA's runtime that PyTorch offers; those that need addresses refuse."""
    return _runtime


def check_error(res: int) -> None:
    """Raise CudaError unless ``res`` means success."""
    if res != _Code.success:
        raise CudaError(res)


def get_arch_list() -> list[str]:
    """The architectures that the server compiles kernels for, which are those of its GPUs; empty without a GPU."""
    gpus = [device for device in current_session().devices if device.type == "cuda"]
    return [f"sm_{major}{minor}" for major, minor in sorted({get_device_capability(gpu) for gpu in gpus})]


def get_gencode_flags() -> str:
    """The flags with which NVIDIA's compiler makes code for the server's GPUs."""
    targets = [target.split("_") for target in get_arch_list()]
    return " ".join([f"-gencode compute=compute_{number},code={kind}_{number}" for kind, number in targets])


def is_tf32_supported() -> bool:
    """Whether the current GPU multiplies in TensorFloat-32: from compute capability 8 on."""
    return is_available() and get_device_capability()[0] >= 8


def ipc_collect() -> None:
    """Do nothing: no memory of a GPU is shared between processes."""
