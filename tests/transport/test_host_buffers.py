"""Memory of large answers is used again once the program has let go of it, and never before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from telegrad._transport import host_buffers
from telegrad._transport.host_buffers import KEPT_BYTES, SMALLEST, HostBuffers

MIB = 1 << 20


def test_what_nothing_refers_to_is_lent_again_and_nothing_else() -> None:
    pool = HostBuffers()
    first = pool.take(8 * MIB)
    place = first.ctypes.data
    view = np.frombuffer(memoryview(first), np.float64).reshape(-1, 8)[3:, ::2]
    del first
    other = pool.take(8 * MIB)
    assert pool.kept_bytes == 0 and other.ctypes.data != place, "a view still shows the first one"
    del view
    assert pool.kept_bytes == 8 * MIB
    smaller = pool.take(5 * MIB)
    assert smaller.ctypes.data == place and smaller.nbytes == 5 * MIB
    assert pool.take(SMALLEST - 1).nbytes == SMALLEST - 1
    del smaller
    assert pool.take(3 * MIB).ctypes.data != place, "half of it would be wasted"


def test_memory_is_kept_within_a_limit_and_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = HostBuffers()
    size = KEPT_BYTES // 4
    arrays = [pool.take(size) for _ in range(6)]
    arrays.clear()
    pool.trim()
    assert pool.kept_bytes <= KEPT_BYTES
    monkeypatch.setattr(host_buffers, "KEPT_SECONDS", -1.0)
    pool.trim()
    assert pool.kept_bytes == 0


def test_arrays_that_were_read_stay_as_they_are(tg: Any, rng: np.random.Generator) -> None:
    given = rng.standard_normal((3, MIB))
    tensors = [tg.from_numpy(given[k]) for k in range(3)]
    first = tensors[0].numpy()
    part = tensors[1].numpy()[5::7]
    del tensors[1]
    third = tensors[1].numpy()
    np.testing.assert_array_equal(first, given[0])
    np.testing.assert_array_equal(part, given[1][5::7])
    np.testing.assert_array_equal(third, given[2])
