"""The engine that most tests of it work on; a module that wants another says so."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.ops.adapters import EngineAdapter


@pytest.fixture
def adapter(loaded_loops: None) -> Iterator[EngineAdapter]:
    """An engine whose memory is all given back at the end, without a garbage collection."""
    from tests.ops.adapters import EngineAdapter  # the kernel cache is tested where there is no torch, too

    adapter = EngineAdapter()
    stats = adapter.backends[adapter.device].allocator.memory_stats
    gc.collect()  # what earlier tests left is not counted
    gc.freeze()  # what they keep is not looked through again
    before = stats()["allocated_bytes.all.current"]
    gc.disable()
    yield adapter
    gc.enable()
    assert stats()["allocated_bytes.all.current"] == before
