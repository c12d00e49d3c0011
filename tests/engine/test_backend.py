"""What a device frees, and when."""

from __future__ import annotations

import pytest

from server.allocator import CachingAllocator, HostUpstream
from server.engine.device.cpu_backend import CpuBackend
from telegrad_protocol import dtypes
from telegrad_protocol.meta import CPU, Meta

META = Meta.of((1000,), dtypes.float32, CPU)


@pytest.fixture
def backend() -> CpuBackend:
    return CpuBackend(CPU, CachingAllocator(HostUpstream()))


def test_what_the_garbage_collector_drops_in_the_allocator_is_freed_after(backend: CpuBackend) -> None:
    value, other = backend.empty(META), backend.empty(META)
    with backend.exclusive_allocator() as allocator:
        held = allocator.allocated_bytes()
        del value
        assert allocator.allocated_bytes() == held
    del other
    assert backend.allocator.allocated_bytes() == 0


def test_a_backend_frees_nothing_once_the_process_ends(backend: CpuBackend) -> None:
    value = backend.empty(META)
    held = backend.allocator.allocated_bytes()
    backend.stop_freeing()
    del value
    assert backend.allocator.allocated_bytes() == held > 0
