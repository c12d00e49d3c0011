"""What CUDA tells of a GPU, under PyTorch's names."""

from __future__ import annotations

from typing import Any

from .cupy_module import runtime

_PROPERTIES = {
    "warp_size": "warpSize", "L2_cache_size": "l2CacheSize", "is_integrated": "integrated",
    "is_multi_gpu_board": "isMultiGpuBoard", "max_threads_per_multi_processor": "maxThreadsPerMultiProcessor",
    "max_threads_per_block": "maxThreadsPerBlock", "regs_per_multiprocessor": "regsPerMultiprocessor",
    "shared_memory_per_block": "sharedMemPerBlock", "shared_memory_per_block_optin": "sharedMemPerBlockOptin",
    "shared_memory_per_multiprocessor": "sharedMemPerMultiprocessor",
}  # fmt: skip
"""Whole numbers by their names in PyTorch and in CUDA; a version of CUDA may lack one."""


def properties_of(index: int) -> dict[str, Any]:
    """Name, total memory, capability and other figures of a GPU."""
    device = runtime.getDeviceProperties(index)
    return {
        "name": device["name"].decode(),
        "total_memory": int(device["totalGlobalMem"]),
        "multi_processor_count": int(device["multiProcessorCount"]),
        "capability": (int(device["major"]), int(device["minor"])),
        **{name: int(device[theirs]) for name, theirs in _PROPERTIES.items() if theirs in device},
    }
