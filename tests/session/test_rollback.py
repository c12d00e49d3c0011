"""What a device finds only after the host has gone on, here acted by the host: an index_select that checks late."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from server.engine import context, keys
from server.engine.checks import Check, Finding
from server.engine.operators import OPERATORS, KernelInfo
from telegrad._session.thread_modes import DEFAULT
from telegrad.errors import IndexOutOfRangeError, NotComputedError, TelegradError


class LateRecord:
    """A device that comes as far as the host only when it has been asked some times."""

    def __init__(self, asked: int) -> None:
        self.left = self.asked = asked
        self.found: Finding | None = None

    def reached(self, wait: bool) -> bool:
        self.left -= 1
        return wait or self.left <= 0

    def finding(self) -> Finding | None:
        found, self.found = self.found, None
        return found


@pytest.fixture
def slow_device() -> Iterator[LateRecord]:
    """Let index_select report instead of raise."""
    record = LateRecord(0)
    operator = OPERATORS["index_select"]
    before = operator.kernels[keys.CPU]

    def select(xp: Any, input: Any, dim: Any, index: Any, *, out: Any) -> None:
        checks, size = context.current.checks, input.shape[dim]
        checks.records[1] = record
        tag = checks.expect(Check("index_select", (f"size {size}",)), context.current.generators.values())
        record.left = record.asked
        missed = index[(index < 0) | (index >= size)]
        if missed.size and record.found is None and tag:
            record.found = Finding(tag, int(missed[0]), 0)
        out[...] = np.take(input, index, axis=dim, mode="clip")

    operator.kernels[keys.CPU] = KernelInfo(select, movement=True)
    operator.clear_caches()
    yield record
    operator.kernels[keys.CPU] = before
    operator.clear_caches()


def _missed(tg: Any, index: int = 7) -> Any:
    return tg.zeros(3).index_select(0, tg.tensor([index]))


def test_results_since_then_are_absent(tg: Any, slow_device: LateRecord) -> None:
    before, victims = tg.ones(2) * 2, []
    with pytest.raises(IndexOutOfRangeError, match="index 7 is out of range for size 3") as raised:
        victims.append(_missed(tg))
        victims.append(victims[0] + 1)
        victims[1].tolist()
    assert raised.value.operation == "index_select"
    assert __file__ in raised.value.site
    for victim in victims:
        with pytest.raises(NotComputedError, match="index_select failed"):
            victim.tolist()
    assert before.tolist() == [2.0, 2.0]


def test_what_calls_have_freed_since_then_stays_freed(tg: Any, slow_device: LateRecord) -> None:
    kept, gone = tg.ones(2), tg.ones(2)
    numbers = [gone._id]
    with pytest.raises(IndexOutOfRangeError):
        missed = _missed(tg)
        numbers.append(missed._id)
        del missed, gone
        tg.zeros(1)
        tg.ones(1).tolist()
    tg.ones(1).tolist()
    held = kept._session.transport._session.state.values
    assert not held.keys() & numbers and kept._id in held


@pytest.mark.parametrize("asked", [0, 3, 1000])
@pytest.mark.parametrize("what", ["in place", "backward", "seed", "statistics", "renormalization"])
def test_what_cannot_be_undone_waits(tg: Any, slow_device: LateRecord, what: str, asked: int) -> None:
    slow_device.asked = asked
    weight, counter = tg.ones(2, requires_grad=True), tg.zeros(2)
    loss = (weight * 3).sum()
    table, functional = tg.full((3, 2), 5.0), tg.nn.functional
    changes = {
        "in place": lambda: counter.add_(1), "backward": loss.backward, "seed": lambda: tg.manual_seed(9),
        "statistics": lambda: functional.batch_norm(table, counter, tg.ones(2), training=True),
        "renormalization": lambda: functional.embedding(tg.tensor([1]), table, max_norm=0.0),
    }  # fmt: skip
    change = changes[what]
    tg.manual_seed(5)
    expected = tg.rand(4).tolist()
    tg.manual_seed(5)
    with pytest.raises(IndexOutOfRangeError):
        _missed(tg)
        tg.rand(100)
        change()
        tg.ones(1).tolist()
        tg.ones(1).tolist()
    assert counter.tolist() == [0.0, 0.0] and table.tolist() == [[5.0, 5.0]] * 3
    assert tg.rand(4).tolist() == expected
    loss.backward()
    assert weight.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("asked", [0, 5, 100])
def test_nothing_is_lost_where_all_is_well(tg: Any, slow_device: LateRecord, asked: int) -> None:
    slow_device.asked = asked
    table, total = tg.arange(5.0).requires_grad_(), tg.zeros(2)
    for _ in range(20):
        found = table.index_select(0, tg.tensor([1, 4]))
        found.sum().backward()
        total += found.detach()
    assert total.tolist() == [20.0, 80.0]
    assert table.grad.tolist() == [0.0, 20.0, 0.0, 0.0, 20.0]


def test_a_later_error_does_not_hide_the_first(tg: Any, slow_device: LateRecord) -> None:
    slow_device.asked = 1000
    with pytest.raises(IndexOutOfRangeError, match="index_select: index 7"):
        _missed(tg)
        tg.zeros(3).take(tg.tensor([99])).tolist()
    assert tg.ones(1).tolist() == [1.0]


def test_the_first_of_several_is_raised_once(tg: Any, slow_device: LateRecord) -> None:
    with pytest.raises(IndexOutOfRangeError, match="11"):
        for n in (11, 12, 13):
            _missed(tg, n)
        tg.ones(1).tolist()
    for _ in range(3):
        assert tg.ones(3).index_select(0, tg.tensor([1])).tolist() == [1.0]


def test_it_is_raised_without_a_read_too(tg: Any, slow_device: LateRecord) -> None:
    slow_device.asked = 30
    with pytest.raises(IndexOutOfRangeError):
        _missed(tg)
        for _ in range(10_000):
            tg.zeros(1)
    assert tg.ones(2).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("asked", [0, 3, 1000])
def test_what_another_thread_has_done_since_then_stays_done(tg: Any, slow_device: LateRecord, asked: int) -> None:
    slow_device.asked = asked
    victim, results = _missed(tg), []
    thread = threading.Thread(target=lambda: results.append((tg.ones(2) + 1).tolist()))
    thread.start()
    thread.join()
    assert results == [[2.0, 2.0]]
    with pytest.raises(IndexOutOfRangeError, match="index 7 is out of range"):
        victim.tolist()


def test_calls_of_too_few_arguments_are_refused_where_they_are_executed(tg: Any, slow_device: LateRecord) -> None:
    """A client may send what no contract allows, also while a check is outstanding."""
    slow_device.asked = 1000
    session = tg.ones(1)._session
    good = tg.zeros(3).index_select(0, tg.tensor([1]))
    session.call(OPERATORS["batch_norm"].op.index, session.sites.current(), (session.new_id(),), [], DEFAULT)
    with pytest.raises(TelegradError, match="batch_norm"):
        session.synchronize()
    assert good.tolist() == [0.0]
