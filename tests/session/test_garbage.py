"""A worker looks for cycles of objects when nobody calls, and is not kept from a call by it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from server.worker.garbage import QUIET_SECONDS, wait_and_collect


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def counts() -> Iterator[None]:
    """The collector at rest, and as it was afterwards."""
    before = gc.get_threshold()
    gc.collect()
    yield
    gc.set_threshold(*before)


def _after_a_look() -> weakref.ref[_Cycle]:
    """Return a cycle that was made after the collector had looked at new objects once."""
    gc.set_threshold(100_000, 1000, 1000)
    gc.collect(0)
    return weakref.ref(_Cycle())


def test_cycles_are_collected_where_nothing_comes_for_a_while() -> None:
    cycle, limits = _after_a_look(), []

    def wait(limit: float | None) -> list[str]:
        limits.append(limit)
        return [] if limit is not None else ["call"]

    assert wait_and_collect(wait) == ["call"]
    assert limits == [QUIET_SECONDS, None] and cycle() is None


def test_a_call_that_comes_soon_is_answered_first() -> None:
    cycle, limits = _after_a_look(), []

    def wait(limit: float | None) -> list[str]:
        limits.append(limit)
        return ["call"]

    assert wait_and_collect(wait) == ["call"]
    assert limits == [QUIET_SECONDS] and cycle() is not None


def test_where_nothing_is_new_there_is_one_wait_without_a_limit() -> None:
    limits: list[float | None] = []
    gc.set_threshold(100_000, 1000, 1000)
    gc.collect()
    assert wait_and_collect(lambda limit: limits.append(limit) or ["call"]) == ["call"]  # type: ignore[func-returns-value]
    assert limits == [None]
