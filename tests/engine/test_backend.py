"""What a device frees, and when."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from server.allocator import CachingAllocator, HostUpstream
from server.engine import context, functional, ops
from server.engine.context import Context
from server.engine.device.cpu_backend import CpuBackend
from server.engine.value import Backend, Value
from telegrad_protocol import dtypes
from telegrad_protocol.meta import CPU, Meta
from tests.ops.adapters import EngineAdapter

_ = ops  # registers every operation's kernels
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


class Dropping(CachingAllocator):
    """An allocator in the middle of whose calls the garbage collector drops a value, as often as there is one."""

    def __init__(self) -> None:
        super().__init__(HostUpstream())
        self.dropped: list[Value] = []
        for name in ("allocate", "free"):
            setattr(self, name, self._interrupted(getattr(self, name)))

    def _interrupted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def interrupted(*args: Any) -> Any:
            if self.dropped:
                self.dropped.pop()
            return call(*args)

        return interrupted


@pytest.mark.parametrize("drops", [1, 3])
def test_whatever_calls_the_allocator_frees_what_was_dropped_meanwhile(drops: int) -> None:
    allocator = Dropping()
    backend = CpuBackend(CPU, allocator)
    context.activate(Context({CPU: backend}))
    x = backend.empty(META)
    actions: list[Callable[[], Any]] = [
        lambda: backend.empty(META),
        lambda: functional.add(x, x),
        lambda: functional.exp(x),
        lambda: backend.check_room(8),
    ]
    for action in actions:
        values = [backend.empty(META) for _ in range(drops)]
        before = allocator.allocated_bytes()
        allocator.dropped += values
        values.clear()
        action()
        allocator.dropped.clear()
        assert allocator.allocated_bytes() == before - drops * (before // (drops + 1))  # all but ``x``


def test_a_backend_has_all_that_is_declared() -> None:
    optional = {"capture", "place", "random_state"}  # of devices that can capture
    missing = {
        name for name, declared in vars(Backend).items()
        if callable(declared) and "NotImplementedError" in inspect.getsource(declared)
        and getattr(CpuBackend, name) is declared
    }  # fmt: skip
    assert missing == optional


def test_a_backend_frees_nothing_once_the_process_ends(backend: CpuBackend) -> None:
    value = backend.empty(META)
    held = backend.allocator.allocated_bytes()
    backend.stop_freeing()
    del value
    assert backend.allocator.allocated_bytes() == held > 0


@pytest.mark.gpu
def test_a_block_that_a_kernel_returned_belongs_to_one_value(cuda_host: Any, cuda_device: str) -> None:
    """What is saved before an in-place operation is a copy, also of a value whose block CuPy allocated."""
    adapter = EngineAdapter(cuda_device)
    backend = adapter.backends[adapter.device]
    before = backend.allocator.allocated_bytes()
    array = backend.xp.arange(1000, dtype="f")
    meta = Meta.of((1000,), dtypes.float32, adapter.device)
    first, second = backend.adopt(array, meta), backend.adopt(array, meta)
    del array
    assert first.storage.block is not second.storage.block
    third = backend.adopt(first.array, meta)
    functional.add_(first, 1)
    assert [float(backend.to_host(value.array)[0]) for value in (first, second, third)] == [1, 0, 0]
    del first, second, third
    backend.leave(adapter.context)
    assert backend.allocator.allocated_bytes() == before
