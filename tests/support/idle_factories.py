"""An idle GPU whose operations are prepared as on a real one: by the factories of all kernel families, and cuBLASLt's.

What these work out for a new shape is there to be measured: texts, geometry, constants, buffers and descriptors.
Neither CuPy nor a library of NVIDIA is needed; their calls do nothing. A process that opens this device is good for
nothing else: modules that launch kernels are given these stand-ins, and keep them.
"""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from server.allocator import Block
from server.engine.cuda.families import import_families
from server.engine.cuda.gemm import cublaslt
from server.engine.cuda.runtime import faults, launch, overlapping
from server.worker.host import Host

from .idle_gpu import GPU, IdleGpu

_ARCHITECTURE: Final = "sm_90"
_RESULT: Final = np.dtype([("algo", np.uint64, (8,)), ("workspace_size", np.uint64), ("state", np.int32)], align=True)
_ATTRIBUTES: Final = {
    "_OPERATION": ("TRANSA", "TRANSB", "EPILOGUE", "BIAS_POINTER"),
    "_LAYOUT": ("BATCH_COUNT", "STRIDED_BATCH_OFFSET"),
    "_PREFERENCE": (
        "MAX_WORKSPACE_BYTES", "REDUCTION_SCHEME_MASK", "MIN_ALIGNMENT_A_BYTES", "MIN_ALIGNMENT_B_BYTES",
        "MIN_ALIGNMENT_C_BYTES", "MIN_ALIGNMENT_D_BYTES",
    ),
}  # fmt: skip


def _nothing(*arguments: Any) -> None:
    """In place of a call that starts something, or changes a descriptor."""


class _NoError(Exception):
    """In place of an error that nothing raises here."""


class _Device:
    id = 0


class NoFaults:
    """Kernels that are never started find no index out of range."""

    pointer = 0

    def __init__(self, backend: Any, stream: int) -> None:
        pass

    def mark(self) -> None:
        pass

    def reached(self, wait: bool) -> bool:
        return True

    def finding(self) -> None:
        return None


def _cupy() -> Any:
    runtime = SimpleNamespace(memsetAsync=_nothing, memcpyAsync=_nothing)
    driver = SimpleNamespace(launchKernel=_nothing)
    return SimpleNamespace(cuda=SimpleNamespace(Device=_Device, driver=driver, runtime=runtime))


def _cublaslt() -> Any:
    numbers = itertools.count(1)

    def create(*arguments: Any) -> int:
        return next(numbers)

    def propose(handle: int, operation: int, *rest: Any) -> None:
        ctypes.c_int32.from_address(rest[-1]).value = 1

    makers = ("create", "matmul_desc_create", "matrix_layout_create", "matmul_preference_create")
    others = (
        "matmul", "matmul_algo_check", "matmul_desc_destroy", "matmul_desc_set_attribute", "matrix_layout_destroy",
        "matrix_layout_set_attribute", "matmul_preference_destroy", "matmul_preference_set_attribute",
    )  # fmt: skip
    return SimpleNamespace(
        **dict.fromkeys(makers, create), **dict.fromkeys(others, _nothing), matmul_algo_get_heuristic=propose,
        matmul_heuristic_result_dtype=_RESULT, get_version=lambda: 130000, cuBLASLtError=_NoError,
    )  # fmt: skip


class PreparingGpu(IdleGpu):
    """The device; factories ask for its number, and for scratch memory."""

    index = GPU.index
    _scratch: Block | None = None

    def workspace(self, nbytes: int) -> Block:
        if self._scratch is None:
            with self.exclusive_allocator() as allocator:
                self._scratch = allocator.allocate(cublaslt.WORKSPACE_BYTES, self.stream)
        return self._scratch


def _use(backend: PreparingGpu) -> None:
    """Have the families launch their kernels on a device."""
    stand_in = _cupy()
    for module in (launch, overlapping, *import_families()):
        if "cp" in vars(module):
            vars(module)["cp"] = stand_in
    vars(cublaslt).update(lt=_cublaslt(), **{
        name: SimpleNamespace(**{attribute: place for place, attribute in enumerate(attributes)})
        for name, attributes in _ATTRIBUTES.items()
    })  # fmt: skip
    function = SimpleNamespace(ptr=0)
    vars(launch).update(
        _target=_ARCHITECTURE, launches_on=lambda index: backend.launches,
        _module=lambda *arguments: SimpleNamespace(get_function=lambda name: function),
    )  # fmt: skip
    launch._kernel.cache_clear()  # kernels keep the launches of the device that they were loaded for
    launch.Kernel._allow_shared = _nothing  # type: ignore[method-assign]
    vars(faults)["FaultRecord"] = NoFaults


class PreparingHost(Host):
    """A host of the worker whose devices are such a GPU and the CPU."""

    def __init__(self) -> None:
        super().__init__(["cpu"])
        backend = PreparingGpu()
        _use(backend)
        self.backends = {GPU: backend, **self.backends}
        self.default_device = GPU
