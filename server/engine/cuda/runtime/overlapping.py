"""Kernels of a graph that begin while the one before them ends: what to call in their text, and how they are launched.

A kernel may fetch into the cache what it will read before it waits for the earlier one, since a cache has what is
written last; it reads and writes after that. Only in a graph: launched alone, kernels are launched as all others are.
Devices before Hopper start each kernel when the one before it has ended.
"""

from __future__ import annotations

from typing import Final

from cuda.bindings import driver

from server.engine.device.cuda_graphs import CudaGraph
from server.engine.device.cupy_module import cp

OVERLAPPING: Final = r"""
// Lets the next kernel begin, which then waits for this one before it reads or writes anything
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Waits until all earlier kernels have ended, and what they have written is there
__device__ __forceinline__ void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Has what lies from an address on brought into the L2 cache: multiples of 16 bytes
__device__ __forceinline__ void fetch(const void* at, int nbytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(at), "r"(nbytes) : "memory");
#endif
}
"""
_FIRST: Final = 90
"""The oldest architecture that has it, as a number."""


def can_overlap(architecture: str) -> bool:
    """Whether kernels begin before earlier ones have ended on a device of an architecture."""
    return int("".join([character for character in architecture if character.isdigit()])) >= _FIRST


def launch_overlapping(
    function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, parameters: int,
    extra: int,
) -> None:  # fmt: skip
    """Launch as ``cupy.cuda.driver.launchKernel`` does; where a graph is made, so that it begins early in that."""
    if not CudaGraph.is_capturing:
        cp.cuda.driver.launchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra)
        return
    early = driver.CUlaunchAttribute()
    early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    early.value.programmaticStreamSerializationAllowed = 1
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = gx, gy, gz
    config.blockDimX, config.blockDimY, config.blockDimZ = bx, by, bz
    config.sharedMemBytes, config.hStream = shared, stream
    config.attrs, config.numAttrs = [early], 1
    (status,) = driver.cuLaunchKernelEx(config, driver.CUfunction(function), parameters, extra)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise cp.cuda.driver.CUDADriverError(int(status))
