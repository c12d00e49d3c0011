"""The way to the server and back is no work: it holds up no program that reads nothing, and lets no more work wait."""

from __future__ import annotations

import random
from collections import deque
from typing import Final

import pytest

from telegrad._transport import ahead as ahead_module
from telegrad._transport.ahead import Ahead
from telegrad_protocol.pace import GROWTH, MOST_SUBMISSIONS, Pace

COST: Final = 1e-4
BATCH: Final = 64
DELAYS: Final = (0.0, 0.001, 0.03, 0.15, 2.0)


class Distance:
    """A program that sends instructions as soon as it may, and a server ``delay`` seconds of round trip away.

    Times are of an own clock, in seconds. What a server's answer needs is counted on its way there, so that the server
    is at work as it looks from the program.
    """

    def __init__(self, delay: float, handshake: float, seconds: float) -> None:
        self.now, self.delay, self.handshake = 1e4, delay, handshake
        self.ahead = Ahead(seconds)
        self.gaps = 0
        """How often the server had nothing to do between two batches."""
        self.idle = 0.0
        """For how many seconds it had nothing to do."""
        self.most_work = 0.0
        """The most seconds of work that have waited at the server."""
        self._free_at = self._sent_at = 0.0
        self._reports: deque[tuple[float, int]] = deque()

    def monotonic(self) -> float:
        return self.now

    def send(self, count: int, cost: float) -> None:
        """Send so many instructions of that cost, as the queue of a session does, and wait where that has to."""
        ahead = self.ahead
        end = ahead.pace.submitted + count
        while (before := ahead.pace.submitted) < end:
            submitted = min(end, before + max(ahead.room(BATCH), 1))
            ahead.begin_batch(self.handshake)
            self._sent_at = self.now
            if ahead.wants_report(submitted):
                ahead.expect(submitted, submitted)
            ahead.submit(submitted)
            self._execute(submitted - before, cost)
            if ahead.is_reported:
                self._reports.append((self._free_at, submitted))
            self._take_reports()
            while ahead.is_full():
                self._wait()

    def ask(self) -> None:
        """Wait for the answer to all that was sent."""
        asked = self._sent_at
        self.now = max(self.now, self._free_at)
        self._take_reports()
        self.ahead.complete(self.ahead.pace.submitted, asked)

    def _execute(self, count: int, cost: float) -> None:
        arrival = self.now + self.delay
        self.gaps += arrival > self._free_at
        self.idle += max(arrival - self._free_at, 0.0)
        self._free_at = max(self._free_at, arrival) + count * cost
        self.most_work = max(self.most_work, self._free_at - arrival)

    def _wait(self) -> None:
        if not self._reports:
            submitted = self.ahead.pace.submitted
            self.ahead.expect(submitted, submitted)
            self._reports.append((self._free_at, submitted))
        self.now = max(self.now, self._reports[0][0])
        self._take_reports()

    def _take_reports(self) -> None:
        while self._reports and self._reports[0][0] <= self.now:
            self.ahead.take_report(self._reports.popleft()[1])


@pytest.fixture
def draw(seed: int) -> random.Random:
    return random.Random(seed)


def distance(
    monkeypatch: pytest.MonkeyPatch, delay: float, handshake: float | None = None, seconds: float = 1.0
) -> Distance:
    """Return a program at that distance, whose clock the bound looks at."""
    made = Distance(delay, delay if handshake is None else handshake, seconds)
    monkeypatch.setattr(ahead_module, "time", made)
    return made


@pytest.mark.parametrize("seconds", [0.05, 1.0])
@pytest.mark.parametrize("delay", DELAYS)
def test_the_server_always_has_work_soon_after_the_start(
    monkeypatch: pytest.MonkeyPatch, draw: random.Random, delay: float, seconds: float
) -> None:
    """Where the bound is a few hundredths of the way, it is smaller than what the measured speed is wrong by."""
    program = distance(monkeypatch, delay, seconds=seconds)
    cost = COST * draw.uniform(0.5, 2)
    program.send(100_000, cost)
    assert program.gaps <= 16, "the first instructions are of unknown duration"
    program.gaps, program.idle = 0, 0.0
    program.send(100_000, cost)
    if seconds > delay / 20:
        assert program.gaps == 0
    assert program.idle < 0.15 * 100_000 * cost


@pytest.mark.parametrize("delay", DELAYS)
def test_the_server_has_work_again_soon_after_a_value_was_read(
    monkeypatch: pytest.MonkeyPatch, draw: random.Random, delay: float
) -> None:
    program = distance(monkeypatch, delay)
    program.send(50_000, COST)
    for _ in range(20):
        program.ask()
        program.now += draw.uniform(0, 0.5)
        program.gaps = 0
        program.send(draw.randrange(500, 5000), COST)
        assert program.gaps == 1, "only the first batch finds a server that has nothing to do"


@pytest.mark.parametrize("delay", DELAYS)
def test_no_more_work_waits_at_the_server_than_may_be_ahead(
    monkeypatch: pytest.MonkeyPatch, draw: random.Random, delay: float
) -> None:
    """So Ctrl-C and progress bars find the same over a slow network; what is on its way comes in addition."""
    program = distance(monkeypatch, delay, seconds=0.5)
    cost = COST * draw.uniform(0.5, 2)
    program.send(20_000, cost)
    program.most_work = 0.0
    program.send(100_000, cost)
    assert 0.3 < program.most_work <= 0.5 + delay + BATCH * cost + 0.01
    assert program.ahead.limit * cost == pytest.approx(0.5 + delay, rel=0.02)


def test_the_least_that_an_answer_took_is_the_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    program = distance(monkeypatch, 0.03, handshake=0.08)
    program.send(10, COST)
    assert program.ahead.pace.delay == 0.08
    program.ask()
    assert program.ahead.pace.delay == pytest.approx(0.03 + 10 * COST)
    program.send(1, COST)
    program.ask()
    assert program.ahead.pace.delay == pytest.approx(0.03 + COST)
    program.send(5000, COST)
    program.ask()
    assert program.ahead.pace.delay == pytest.approx(0.03 + COST)


def test_a_new_connection_tells_the_round_trip_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    program = distance(monkeypatch, 0.03)
    program.send(100, COST)
    program.delay = program.handshake = 0.2
    program.send(1, COST)
    assert program.ahead.pace.delay == 0.2
    program.send(5000, COST)
    program.gaps = 0
    program.send(100_000, COST)
    assert program.gaps == 0


def test_a_report_tells_of_the_whole_batch_that_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would be left for the next report, and the time since it was sent be taken for work."""
    program = distance(monkeypatch, 0.1)
    ahead = program.ahead
    ahead.begin_batch(0.1)
    ahead.expect(1, 10)
    ahead.submit(12)  # a change of modes, and the report itself
    program.now += 0.2
    ahead.take_report(1)
    assert (ahead.pace.completed, ahead.pace.ahead, ahead.is_reported) == (12, 0, False)


def test_what_was_done_long_before_the_rest_is_left_out_of_its_time() -> None:
    pace = Pace(1.0, 64, delay=0.3)
    pace.submit(4, 0.0)
    pace.submit(36, 0.31)
    pace.complete(36, 0.31 + 0.3 + 32 * COST)
    assert pace.limit == GROWTH * 64
    pace.submit(136, 1.0)
    pace.submit(140, 1.31)
    pace.complete(140, 1.31 + 0.3 + 4 * COST)
    assert pace.limit < 600, "most of them were sent first, and nobody knows when they were done"


def test_a_report_is_overdue_only_after_the_way_there_and_back() -> None:
    pace = Pace(1.0, 16, delay=0.5)
    pace.submit(100, 0.0)
    pace.complete(50, 0.6)
    assert pace.allowed(100, 10.0, 10.5) == pace.limit
    assert pace.allowed(100, 10.0, 10.5 + 100) < pace.limit


def test_the_times_of_submissions_are_bounded_and_still_tell_idle_time_from_work() -> None:
    pace = Pace(1.0, 16)
    for number in range(1, 4 * MOST_SUBMISSIONS):
        pace.submit(number, 0.0)
    assert len(pace._submissions) == MOST_SUBMISSIONS
    pace.complete(pace.submitted, pace.submitted * COST)
    for second in range(1000, 1020):
        pace.submit(pace.submitted + 100, second)
        pace.complete(pace.submitted, second + 100 * COST)
    assert len(pace._submissions) <= 2
    assert pace.limit * COST == pytest.approx(1.0, rel=0.02)
