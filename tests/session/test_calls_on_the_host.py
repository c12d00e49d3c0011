"""On the host calls that come again are executed one by one, since nothing is gained by more; on a GPU they are not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from server.session.programs.batches import recurring

from .queued import queued_host

ROUNDS = 8


@pytest.fixture
def learnt(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches were compared with one that had come before."""
    counted, learn = [0], recurring.RecurringBatches._learn

    def noting(*args: Any) -> bool:
        counted[0] += 1
        return learn(*args)

    monkeypatch.setattr(recurring.RecurringBatches, "_learn", noting)
    return counted


def _loop(tg: Any, device: str) -> None:
    x = tg.ones(4, device=device)
    for _ in range(ROUNDS):
        y = x
        for _ in range(12):
            y = y.sin() * 0.5
        y.sum().item()


def test_nothing_is_learnt_where_there_is_no_gpu(tg: Any, noted: Counter[str], learnt: list[int]) -> None:
    _loop(tg, "cpu")
    assert not noted and learnt == [0]


def test_calls_are_executed_as_one_where_that_pays(
    gains_by_stretches: None, tg: Any, noted: Counter[str], learnt: list[int]
) -> None:
    _loop(tg, "cpu")
    assert noted["_record"] and noted["_begin"] and learnt[0]


@pytest.mark.parametrize(("device", "is_one"), [("cuda", True), ("cpu", False)])
def test_a_session_with_a_gpu_executes_as_one_what_is_done_there(
    device: str, is_one: bool, noted: Counter[str]
) -> None:
    import telegrad

    with telegrad.connect(in_process=queued_host()[0]):
        _loop(telegrad, device)
    assert bool(noted["_record"]) == bool(noted["_begin"]) == is_one
