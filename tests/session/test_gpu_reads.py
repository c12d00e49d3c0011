"""Small reads of a GPU go through memory that is kept for them, each with the bytes of its own value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from tests.ops.adapters import EngineAdapter

pytestmark = pytest.mark.gpu
SIZES = (1, 2, 3, 511, 512, 1023, 1024, 1025, 2000)


def test_values_of_all_small_sizes_come_as_they_are(cuda_tg: Any, rng: np.random.Generator) -> None:
    for size in SIZES:
        for dtype in (np.float32, np.float64, np.int64, np.uint8, np.bool_):
            data = (rng.standard_normal(size) * 100).astype(dtype)
            x = cuda_tg.tensor(data, device="cuda")
            for part in (slice(None), slice(size // 2, None), slice(None, None, 2)):
                np.testing.assert_array_equal(x[part].numpy(), data[part])


@pytest.fixture
def gpu(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


def _value(gpu: EngineAdapter, data: np.ndarray[Any, Any]) -> Any:
    backend = gpu.backends[gpu.device]
    value = backend.empty(Meta.of(data.shape, dtypes.float64, gpu.device))
    backend.fill_from_host(value, data)
    return value


def test_copies_that_wait_have_memory_of_their_own(gpu: EngineAdapter, rng: np.random.Generator) -> None:
    backend: Any = gpu.backends[gpu.device]
    data = rng.standard_normal((20, 64))
    values = [_value(gpu, row) for row in data]
    copies = [backend.open_download(value) for value in values]
    del values
    for copy, row in zip(reversed(copies), reversed(data), strict=True):
        assert bytes(copy.bytes()) == bytes(copy.bytes()) == row.tobytes() and copy.is_ready()
    kept = len(backend._kept_copies)
    assert kept >= len(copies)
    later = backend.open_download(_value(gpu, data[0]))
    assert len(backend._kept_copies) == kept - 1
    assert bytes(later.bytes()) == data[0].tobytes() and len(backend._kept_copies) == kept


def test_a_copy_that_is_dropped_while_it_is_made_leaves_nothing(gpu: EngineAdapter, rng: np.random.Generator) -> None:
    backend: Any = gpu.backends[gpu.device]
    value = _value(gpu, rng.standard_normal(64))
    backend.open_download(value).bytes()
    kept = len(backend._kept_copies)
    backend.open_download(value)
    assert len(backend._kept_copies) == kept - 1
