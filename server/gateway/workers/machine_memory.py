"""What each worker and each tenant may have of the machine's memory where nothing is set.

The CPU's tensors get less than the machine, or the control group that limits it, has: the gateway, the workers
themselves, and what sessions hold besides tensors need room, too. Knows no settings.
"""

from __future__ import annotations

from typing import Final

from server.allocator.upstream.machine import physical_memory

MIB: Final = 1 << 20
GATEWAY_BYTES: Final = 384 * MIB
"""Room for the gateway: its code, and what it holds of requests and streams."""
WORKER_BYTES: Final = 256 * MIB
"""Room for a worker on the CPU: its code, its caches, and what computing takes besides tensors."""
GPU_WORKER_BYTES: Final = 2048 * MIB
"""Room for a worker with GPUs: its CUDA contexts and libraries, and pinned memory."""
LEAST_CPU_BYTES: Final = 64 * MIB
_PART_FOR_OBJECTS: Final = 8
_LEAST_OBJECTS, _MOST_OBJECTS = 256 * MIB, 16384 * MIB


def default_host_quota(total: int | None = None) -> int:
    """Return what the sessions of a tenant may hold on the host besides elements of tensors: an eighth of it."""
    total = physical_memory() if total is None else total
    return min(max(total // _PART_FOR_OBJECTS, _LEAST_OBJECTS), _MOST_OBJECTS)


def default_cpu_memory(workers: int, workers_with_gpus: int = 0, total: int | None = None) -> int:
    """Return what the tensors on ``cpu`` of each of so many workers may take, those with GPUs among them."""
    total = physical_memory() if total is None else total
    on_cpu = workers - workers_with_gpus
    room = GATEWAY_BYTES + on_cpu * WORKER_BYTES + workers_with_gpus * GPU_WORKER_BYTES + default_host_quota(total)
    return max((total - room) // max(workers, 1), LEAST_CPU_BYTES)
