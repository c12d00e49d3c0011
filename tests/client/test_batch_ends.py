"""Full batches end before a line that an earlier batch began with, or an outer loop's."""

from __future__ import annotations

import random
import time
from collections import Counter
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from telegrad._session.parts.mark import Part
from telegrad._session.sending.batch_ends import BatchEnds, places_of
from telegrad._session.thread_modes import DEFAULT
from telegrad._transport.flush_timer import FlushTimer
from telegrad_protocol import messages, wire

BATCH = 64


def _call(line: int) -> messages.Call:
    return messages.Call(1, line, (), [], ())


def _batches(ends: BatchEnds, lines: list[int], count: int) -> list[list[int]]:
    """The lines of the first batches of a program that goes through these lines again and again."""
    sent: list[list[int]] = []
    queued: list[Any] = []
    place = 0
    while len(sent) < count:
        queued.append(_call(lines[place % len(lines)]))
        place += 1
        if len(queued) == BATCH:
            size = ends.count(queued)
            sent.append([one.site for one in queued[:size]])
            del queued[:size]
    return sent


@pytest.mark.parametrize(
    ("body", "most"), [(5, 1), (21, 1), (33, 1), (40, 1), (63, 1), (64, 1), (65, 18), (97, 2), (200, 7)]
)
def test_a_loop_comes_to_the_same_batches(body: int, most: int) -> None:
    """Where a loop is a little longer than a batch, its begin is in the last half of few batches."""
    sent = _batches(BatchEnds(), list(range(body)), 400)
    different = {tuple(batch) for batch in sent[-100:]}
    assert len(different) <= most
    assert [line for batch in sent for line in batch] == [place % body for place in range(sum(map(len, sent)))]


@pytest.mark.parametrize(("layers", "body", "around"), [(12, 21, 8), (4, 30, 5), (24, 13, 11), (3, 70, 9)])
def test_all_turns_of_an_outer_loop_come_to_the_same_batches(layers: int, body: int, around: int) -> None:
    turn = [*range(1000, 1000 + around), *list(range(body)) * layers]
    sent = _batches(BatchEnds(), turn, 600)
    different = {tuple(batch) for batch in sent[-200:]}
    per_turn = len(turn) / BATCH
    assert len(different) < 4 * per_turn, "batches of 64 would come again after some sixteen turns"
    assert sum(map(len, sent)) / len(sent) > 0.6 * BATCH


@pytest.mark.parametrize(("parameters", "each", "forward"), [(8, 12, 14), (4, 18, 30), (30, 5, 40)])
def test_an_optimizer_of_a_programs_own_comes_to_the_same_batches(parameters: int, each: int, forward: int) -> None:
    """A backward pass between the lines of a turn hides none of them, and the next turn begins with a batch."""
    backward = messages.Backward(1, (1,), (None,), [], False, False)
    update = [_call(2000 + line) for line in range(each)]
    turn = [*map(_call, range(1000, 1000 + forward)), messages.Free([1]), backward, *update * parameters]
    ends, queued, sent = BatchEnds(), list[Any](), list[list[Any]]()
    for place in range(40 * len(turn)):
        queued.append(turn[place % len(turn)])
        if len(queued) == BATCH:
            sent.append(queued[: ends.count(queued)])
            del queued[: len(sent[-1])]
    flat = [one for batch in sent for one in batch]
    assert flat == [turn[place % len(turn)] for place in range(len(flat))]
    late = sent[len(sent) // 2 :]
    begun = [batch for batch in late if batch[0] is turn[0]]
    assert sum(map(len, late)) < 3 * len(begun) * len(turn), "turns begin with a batch"


@pytest.mark.parametrize(("layers", "body", "around"), [(12, 21, 8), (24, 13, 11)])
def test_a_turn_of_an_outer_loop_is_sent_as_the_last_one_whatever_was_before(
    seed: int, layers: int, body: int, around: int
) -> None:
    """What the timer sends early leaves two batches that are others, and the next turn begins with a batch."""
    draw, ends = random.Random(seed), BatchEnds()
    turn = [*range(1000, 1000 + around), *list(range(body)) * layers]
    queued: list[Any] = []
    sent: Counter[tuple[int, ...]] = Counter()
    cuts = 0
    for place in range(60 * len(turn)):
        queued.append(_call(turn[place % len(turn)]))
        size = 0
        if place > 20 * len(turn) and draw.random() < 0.001:
            ends.note_early(len(queued))
            size, cuts = len(queued), cuts + 1
        elif len(queued) == BATCH:
            size = ends.count(queued)
        if place > 20 * len(turn) and size:
            sent[tuple([one.site for one in queued[:size]])] += 1
        del queued[:size]
    usual = len(turn) // 40 + 1
    assert len(sent) <= usual + cuts * usual
    assert sum([count for _, count in sent.most_common(usual)]) > 0.75 * sent.total() - usual * cuts


def test_what_is_sent_early_does_not_become_where_batches_begin(seed: int) -> None:
    draw = random.Random(seed)
    ends, queued, begun = BatchEnds(), list[Any](), set[int]()
    for place in range(20_000):
        queued.append(_call(place % 50))
        if place > 1000 and draw.random() < 0.005:
            ends.note_early(len(queued))
            queued.clear()
        elif len(queued) == BATCH:
            begun.add(queued[0].site)
            del queued[: ends.count(queued)]
    assert len(ends._starts) < 16 < len(begun)


def test_only_what_may_be_is_left_for_the_next_batch() -> None:
    ends = BatchEnds()
    lines = list(range(40))
    assert ends.count([_call(line) for line in [*lines, *lines[:24]]]) == 40
    other: list[Any] = [_call(line) for line in [*lines, *lines[:24]]]
    other[50] = messages.Query(3, "synchronize", [""])
    assert ends.count(other) == BATCH
    other[50] = messages.Free([3])
    assert ends.count(other) == 40
    under_modes: list[Any] = [(DEFAULT, one) for one in [_call(line) for line in [*lines, *lines[:24]]]]
    assert ends.count(under_modes) == 40


def test_a_long_program_is_sent_in_order_and_whole(tg: Any, rng: Any) -> None:
    """Everything arrives, whether batches end early or are cut by reads."""
    start = rng.standard_normal(8)
    x = tg.tensor(start)
    expected = start
    for turn in range(60):
        for _ in range(11):
            x = (x + 1.5).sin()
            expected = np.sin(expected + 1.5)
        if turn % 7 == 3:
            assert abs(float(x.sum().item()) - expected.sum()) < 1e-9
    assert abs(x.numpy() - expected).max() < 1e-12


def _sizes(tg: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list of how many instructions each batch has that is sent from here on."""
    sizes: list[int] = []
    transport = tg.ones(1)._session.transport
    send = transport.send_batch

    def counting(body: Any) -> None:
        sizes.append(len(wire.decode_instructions(body)))
        send(body)

    monkeypatch.setattr(transport, "send_batch", counting)
    return sizes


def _turn(x: Any) -> Any:
    """One turn of a loop that calls 192 operations, of which the first one has a line of its own."""
    x = x.cos()
    for _ in range(95):
        x = x * 1.01
        x = x.sin()
    return x + 0.5


def test_a_program_that_waits_for_nothing_sends_whole_turns_of_its_loop(
    tg: Any, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    start = rng.standard_normal(8)
    x, expected = tg.tensor(start), start
    sizes = _sizes(tg, monkeypatch)
    for _ in range(40):
        x = _turn(x)
        expected = np.cos(expected)
        for _ in range(95):
            expected = np.sin(expected * 1.01)
        expected = expected + 0.5
    assert sizes.count(192) > 20
    assert max(sizes) < 200
    assert abs(x.numpy() - expected).max() < 1e-9


def test_a_program_that_waits_in_each_turn_sends_no_long_batch(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it waits for would begin so much later."""
    x = tg.ones(8)
    sizes = _sizes(tg, monkeypatch)
    for _ in range(40):
        x = _turn(x)
        x[0].item()
    assert max(sizes) <= BATCH + 8


def test_what_the_timer_sends_early_is_a_part_of_the_turn() -> None:
    ends, turn, queued = BatchEnds(), [1000, 1001, *list(range(45)) * 4], list[Any]()
    sizes: list[int] = []
    at = 0
    for place in range(40 * len(turn)):
        queued.append(_call(turn[place % len(turn)]))
        size = 0
        if place == 30 * len(turn) + 100:
            at, size = len(sizes), len(queued)
            ends.note_early(size)
            ends.note_sent(size)
        elif len(queued) >= BATCH and not ends.left_of_turn(len(queued), place):
            size = ends.count(queued)
            ends.note_sent(size if size == len(queued) else 0)
        if size:
            sizes.append(size)
            del queued[:size]
    assert sizes[at - 1] == sizes[at + 2] == sizes[at] + sizes[at + 1] == len(turn)


def test_a_turn_is_known_although_its_begin_was_sent_early() -> None:
    ends, turn, queued = BatchEnds(), [1000, 1001, *list(range(45)) * 4], list[Any]()
    sizes: list[int] = []
    for place in range(40 * len(turn)):
        queued.append(_call(turn[place % len(turn)]))
        size = 0
        if place > 20 * len(turn) and place % (3 * len(turn)) == 1:
            ends.note_early(size := len(queued))
            ends.note_sent(size)
        elif len(queued) >= BATCH and not ends.left_of_turn(len(queued), place):
            size = ends.count(queued)
            ends.note_sent(size if size == len(queued) else 0)
        if place > 20 * len(turn) and size:
            sizes.append(size)
        del queued[:size]
    assert sum([size for size in sizes if size >= 170]) > 0.9 * sum(sizes)


def test_a_report_between_two_batches_is_asked_for_under_the_modes_of_the_last(tg: Any) -> None:
    x = tg.ones(4)
    session = x._session
    with tg.no_grad():
        y = x.sin()
        session.flush()
        z = y.cos()
        session._ask_for_report(session.ahead.pace.submitted, 0)
        modes, asked = session._pending[0]
        assert modes is session._pending[-1][0] is session._told is not DEFAULT
        assert isinstance(asked, messages.Query)
    assert float(z[0].item()) == pytest.approx(np.cos(np.sin(1.0)))


def test_a_part_that_stays_in_the_queue_is_taken_out_of_the_batch_that_it_comes_with(tg: Any) -> None:
    x = tg.ones(4)
    session = x._session
    session.flush()
    y = x.sin()
    held: Any = object()
    session.begin_part(Part(0), held)
    z = y.cos()
    session.holder = None
    with session._sending:
        session._send_pending(size=1)
    assert any(isinstance(one, Part) for one in session._pending)
    assert float(z[0].item()) == pytest.approx(np.cos(np.sin(1.0)))


class _Owner:
    """Notes when it is asked to flush."""

    def __init__(self) -> None:
        self.flushed: SimpleQueue[float] = SimpleQueue()

    def flush_late(self) -> None:
        self.flushed.put(time.monotonic())

    def tick(self) -> None:
        """There is nothing to keep alive."""


def test_the_timer_counts_from_the_last_time_that_it_was_armed() -> None:
    """Armed again and again it flushes after the last time, and not before unless this thread did not have its turn."""
    owner, delay = _Owner(), 0.2
    timer = FlushTimer(owner, delay, 60)
    longest = 0.0
    try:
        begin = last = time.monotonic()
        while last < begin + 4 * delay:
            before, last = last, time.monotonic()
            longest = max(longest, last - before)
            timer.arm()
        flushed = owner.flushed.get(timeout=60)
        assert flushed >= last + delay or longest > delay / 2
    finally:
        timer.stop()


def test_lines_begin_where_python_finds_them(seed: int) -> None:
    rng = random.Random(seed)
    modes, others = object(), [messages.Free([1]), messages.Query(3, "synchronize", [""])]
    for size in (0, 1, 64, 500):
        for lines in (1, 3, 40, 1000):
            calls = [
                rng.choice((_call(rng.randrange(lines)), rng.choice(others) if rng.random() < 0.05 else _call(1)))
                for _ in range(size)
            ]
            batch = [(modes, one) if rng.random() < 0.3 else one for one in calls]
            found = BatchEnds.places_of(batch)
            assert list(found.items()) == list(places_of(batch).items())
