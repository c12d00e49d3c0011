"""How many threads BLAS has: one between operations of a process that shares its cores, all while a large one runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from server.engine import blas_threads as blas


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Two threads for each library, also where the environment or the machine has one; what matrix products had."""
    seen: list[int] = []
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    before = [each.num_threads for each in libraries]
    for each in libraries:
        each.set_num_threads(2)
    product = np.matmul

    def counted(*args: object, **options: object) -> object:
        seen.append(_threads())
        return product(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(np, "matmul", counted)
    monkeypatch.setattr(blas, "_shared", [])
    blas.share_cores()
    yield seen
    for each, count in zip(libraries, before, strict=True):
        each.set_num_threads(count)


def _threads() -> int:
    return max(each.num_threads for each in ThreadpoolController().select(user_api="blas").lib_controllers)


@pytest.mark.parametrize(("side", "expected"), [(64, 1), (512, 2)])
def test_large_products_alone_have_all_threads(
    tg: Any, threads: list[int], rng: np.random.Generator, side: int, expected: int
) -> None:
    first, second = rng.standard_normal((2, side, side))
    result = tg.mm(tg.tensor(first), tg.tensor(second)).numpy()
    assert threads == [expected]
    np.testing.assert_allclose(result, first @ second, rtol=1e-9, atol=1e-9)
    assert _threads() == 1


def test_a_failing_operation_leaves_one_thread(threads: list[int]) -> None:
    def fail(_: object) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        blas.on_all_threads(fail)(())
    assert _threads() == 1


LOADS_LATE = """
from threadpoolctl import ThreadpoolController
from server.engine.array_library.host_libraries import linear_algebra
from server.engine.blas_threads import share_cores
def threads():
    return [library.num_threads for library in ThreadpoolController().select(user_api="blas").lib_controllers]
share_cores()
before = threads()
linear_algebra()
print(len(threads()) > len(before), set(threads()))
"""


def test_a_library_that_is_loaded_later_has_one_thread_too() -> None:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    run = subprocess.run([sys.executable, "-c", LOADS_LATE], env=environment, capture_output=True, text=True)
    assert run.stdout == "True {1}\n", run.stderr
