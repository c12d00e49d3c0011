"""The engine that most tests of it work on; a module that wants another says so."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.ops.adapters import EngineAdapter


@cache
def _transforms_are_loaded() -> None:
    """Have all Fourier transforms be the loops' from the beginning: a library's differ from them by a rounding."""
    from server.engine import compiled
    from server.engine.array_library import host_fourier

    for name in host_fourier.MODULES:
        compiled.kernels(name)


@pytest.fixture
def adapter() -> Iterator[EngineAdapter]:
    """An engine whose memory is all given back at the end, without a garbage collection."""
    from tests.ops.adapters import EngineAdapter  # the kernel cache is tested where there is no torch, too

    _transforms_are_loaded()
    adapter = EngineAdapter()
    stats = adapter.backends[adapter.device].allocator.memory_stats
    gc.collect()  # what earlier tests left is not counted
    gc.freeze()  # what they keep is not looked through again
    before = stats()["allocated_bytes.all.current"]
    gc.disable()
    yield adapter
    gc.enable()
    assert stats()["allocated_bytes.all.current"] == before
