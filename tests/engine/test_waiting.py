"""Launches that wait: made in their order, as one where a run of them comes again, and never mistaken for others."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from server.engine.device import launch_queue
from server.engine.device.launch_queue import FEW, MOST, LaunchQueue
from server.engine.replay import launch_sequences
from server.engine.replay.launch_sequences import perform
from server.replay_policy import IDLE_WINDOW, LAUNCH_SEQUENCES, LAUNCH_WAITING, Limits

STREAM = 7
FIRST = 16
Call = tuple[int, int, int, int]
"""A kernel by its number, the address of its result and those of its operands."""


class Device:
    """Memory of numbers, kernels that combine two of them, and graphs of these."""

    def __init__(self, limits: Limits = LAUNCH_SEQUENCES) -> None:
        self.memory: dict[int, int] = {}
        self.noted: list[Callable[[], None]] | None = None
        self.refuses_capture = self.refuses_launch = False
        self.is_idle = True
        self.captured = self.launched = self.alone = 0
        self.launches = LaunchQueue(self.capture, lambda stream: self.is_idle, limits)
        self.launches.allow()
        self.kernels = [self._kernel(factor) for factor in (3, 5, 7)]

    def _kernel(self, factor: int) -> Callable[[Any, Any], None]:
        def perform(stream: int, out: int, a: int, b: int) -> None:
            if self.noted is not None:
                self.noted.append(lambda: self._combine(factor, out, a, b))
            else:
                self.alone += 1
                self._combine(factor, out, a, b)

        return self.launches.deferring(lambda args, outs: self.launches.launch(perform, STREAM, *outs, *args))

    def _combine(self, factor: int, out: int, a: int, b: int) -> None:
        self.memory[out] = (self.memory.get(a, a) * factor + self.memory.get(b, b)) % 1_000_003

    def capture(self, stream: int, work: Callable[[], bool]) -> Any:
        assert stream == STREAM
        self.noted, self.captured = [], self.captured + 1
        is_whole, noted, self.noted = work(), self.noted, None
        return None if self.refuses_capture or not is_whole else _Graph(self, noted)

    def fire(self, kernel: int, out: int, a: int, b: int) -> None:
        """An operation."""
        self.kernels[kernel]((a, b), (out,))

    def repeat(self, calls: list[Call], times: int) -> None:
        """Make calls, and let nothing of them wait, several times."""
        for _ in range(times):
            _run(self, calls, {})
            self.launches.flush()


class _Graph:
    def __init__(self, device: Device, noted: list[Callable[[], None]]) -> None:
        self._device, self._noted = device, noted

    def launch(self) -> bool:
        if self._device.refuses_launch:
            return False
        self._device.launched += 1
        for launch in self._noted:
            launch()
        return True


@pytest.fixture
def longer_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """More launches wait at first than a usual test makes."""
    monkeypatch.setattr(launch_queue, "FIRST", FIRST)


@pytest.fixture
def device(longer_queue: None) -> Device:
    return Device()


def test_a_device_with_nothing_to_do_gets_something_at_once(seed: int) -> None:
    device = Device()
    _run(device, _calls(random.Random(seed), launch_queue.FIRST), {})
    assert device.alone == launch_queue.FIRST < FEW


def _run(device: Device, calls: list[Call], expected: dict[int, int]) -> None:
    for kernel, out, a, b in calls:
        device.fire(kernel, out, a, b)
        factor = (3, 5, 7)[kernel]
        expected[out] = (expected.get(a, a) * factor + expected.get(b, b)) % 1_000_003


def _calls(rng: random.Random, count: int) -> list[Call]:
    return [(rng.randrange(3), rng.randrange(9), rng.randrange(9), rng.randrange(9)) for _ in range(count)]


def test_programs_that_repeat_and_change_compute_the_same(device: Device, seed: int) -> None:
    rng, expected = random.Random(seed), {}
    programs = [_calls(rng, rng.choice([1, FEW, 10, FIRST, 40, 100])) for _ in range(8)]
    for _ in range(1000):
        program = rng.choice(programs)
        if rng.random() < 0.1:
            rng.shuffle(program)
        _run(device, program, expected)
        if rng.random() < 0.8:
            device.launches.flush()
    device.launches.flush()
    assert device.memory == expected
    assert device.launched > 100


def test_the_second_time_is_captured_and_launched(device: Device, seed: int) -> None:
    program, expected = _calls(random.Random(seed), FIRST - 1), {}
    for turn in range(6):
        _run(device, program, expected)
        device.launches.flush()
        assert (device.captured, device.launched) == (min(turn, 1), turn)
    assert device.memory == expected and device.alone == FIRST - 1


class _Chains:
    """Makes the first launches of a sequence in a chain, and the others one by one."""

    def __init__(self, share: float) -> None:
        self.share = share

    def perform(self, sequence: Any) -> int:
        perform(sequence)
        return int(len(sequence) * self.share)


@pytest.mark.parametrize(("share", "sighting"), [(0.0, 2), (0.5, 3), (0.75, 5), (1.0, 118)])
def test_what_chains_make_is_captured_once_it_has_cost_as_much(
    device: Device, seed: int, share: float, sighting: int
) -> None:
    device.launches.chains = _Chains(share)
    program = _calls(random.Random(seed), 12)
    device.repeat(program, sighting - 1)
    assert (device.captured, device.launched, device.alone) == (0, 0, 12 * (sighting - 1))
    device.repeat(program, 1)
    assert (device.captured, device.launched) == (1, 1)


def test_launches_go_on_waiting_where_chains_make_some_of_them(device: Device) -> None:
    """What has come for the first time is made one by one, however often that happens between chains."""
    chains = _Chains(1.0)
    device.launches.chains = chains
    for number in range(2 * LAUNCH_WAITING.budget):
        chains.share = float(number % 4 == 0)
        device.repeat([(0, number, 2, 3)] * FEW, 1)
        assert device.launches.may_wait, number
    chains.share = 0.0
    for number in range(LAUNCH_WAITING.budget + 1):
        device.repeat([(1, number, 2, 3)] * FEW, 1)
    assert not device.launches.may_wait, "nothing has come again"


def test_sequences_of_one_hash_are_told_apart(device: Device, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(launch_sequences, "hash", lambda sequence: 5, raising=False)
    rng, expected = random.Random(seed), dict[int, int]()
    programs = [_calls(rng, 5) for _ in range(2)]
    for _ in range(6):
        for program in programs:
            _run(device, program, expected)
            device.launches.flush()
    assert device.memory == expected and device.launched >= 6


def test_few_are_made_one_by_one(device: Device) -> None:
    device.repeat([(0, 1, 2, 3)] * (FEW - 1), 4)
    assert device.alone == 4 * (FEW - 1) and not device.captured


def test_many_do_not_wait_for_a_flush(device: Device, seed: int) -> None:
    _run(device, _calls(random.Random(seed), FIRST), {})
    assert device.alone == FIRST and not device.launches.waiting
    _run(device, _calls(random.Random(seed), 2 * FIRST), {})
    assert device.alone == 3 * FIRST
    for _ in range(5):
        _run(device, _calls(random.Random(seed + 1), MOST), {})
    assert len(device.launches.waiting) < device.launches.full == MOST


def test_a_flush_lets_fewer_wait_again(device: Device, seed: int) -> None:
    _run(device, _calls(random.Random(seed), 3 * FIRST), {})
    assert device.launches.full == 4 * FIRST
    _run(device, [(0, 1, 2, 3)], {})
    device.launches.flush()
    assert device.launches.full == FIRST


def test_what_differs_in_one_address_is_another_run(device: Device) -> None:
    program = [(0, 1, 2, 3), (1, 4, 1, 1), (2, 5, 4, 4)]
    expected: dict[int, int] = {}
    for _ in range(3):
        _run(device, program, expected)
        device.launches.flush()
    _run(device, [*program[:2], (2, 6, 4, 4)], expected)
    device.launches.flush()
    assert device.memory == expected and device.launched == 2


@pytest.mark.parametrize("refusal", ["refuses_capture", "refuses_launch"])
def test_what_the_device_refuses_is_made_one_by_one(device: Device, refusal: str, seed: int) -> None:
    setattr(device, refusal, True)
    program, expected = _calls(random.Random(seed), 8), {}
    for _ in range(5):
        _run(device, program, expected)
        device.launches.flush()
    assert device.memory == expected
    assert device.captured == 1 and device.alone == 40 and not device.launched


def test_nothing_waits_where_it_may_not(device: Device) -> None:
    _run(device, [(0, 1, 2, 3)], {})
    device.launches.disallow()
    assert device.launches.waiting, "they wait for a flush"
    _run(device, [(1, 1, 1, 1)], {})
    assert device.alone == 2 and not device.launches.waiting


def test_one_that_fails_keeps_no_other_from_being_made(device: Device) -> None:
    def fail(stream: int) -> None:
        raise ValueError("no such kernel")

    device.fire(0, 1, 2, 3)
    device.launches.waiting.append((fail, STREAM))
    device.fire(0, 4, 2, 3)
    with pytest.raises(ValueError, match="no such kernel"):
        device.launches.flush()
    assert device.memory.keys() == {1, 4} and not device.launches.waiting


def test_work_by_other_ways_comes_after_what_waits_and_nothing_waits_within(device: Device) -> None:
    seen = []

    def other(first: int, second: int) -> int:
        seen.append(dict(device.memory))
        device.fire(1, 4, 1, 1)  # as when a kernel calls an operation
        seen.append(dict(device.memory))
        return first + second

    device.fire(0, 1, 2, 3)
    assert device.launches.at_once(other)(5, 6) == 11
    assert [set(memory) for memory in seen] == [{1}, {1, 4}]
    device.fire(0, 5, 2, 3)
    assert device.launches.waiting, "they may wait again"


def test_work_by_other_ways_within_a_launch_leaves_it_open(device: Device) -> None:
    def launch(args: Any, outs: Any) -> None:
        device.fire(0, 1, 2, 3)
        device.launches.at_once(lambda: seen.append(dict(device.memory)))()
        device.fire(1, 4, 1, 1)

    seen: list[dict[int, int]] = []
    device.launches.deferring(launch)((), ())
    assert seen == [{1: 9}] and device.memory == {1: 9} and len(device.launches.waiting) == 1
    device.launches.flush()
    assert device.memory == {1: 9, 4: 54}


def test_a_launch_that_fails_leaves_nothing_open(device: Device) -> None:
    def launch(args: Any, outs: Any) -> None:
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        device.launches.deferring(launch)((), ())
    assert not device.launches.is_open


def test_a_flush_in_the_middle_of_a_launch_leaves_it_open(device: Device) -> None:
    device.fire(0, 1, 2, 3)
    device.launches.is_open = True
    device.launches.flush()
    assert device.launches.is_open and device.alone == 1
    device.launches.is_open = False


def test_who_never_repeats_himself_does_not_wait_for_a_while(device: Device, seed: int) -> None:
    rng, expected = random.Random(seed), {}
    while device.launches.may_wait:
        _run(device, _calls(rng, 2 * FEW), expected)
        device.launches.flush()
    assert device.alone == 2 * FEW * LAUNCH_WAITING.budget and not device.captured
    for _ in range(LAUNCH_WAITING.cooldown):
        assert not device.launches.may_wait
        _run(device, _calls(rng, 1), expected)
        device.launches.flush()
    assert device.memory == expected


def test_cooldowns_become_longer_until_a_sequence_comes_again(device: Device, seed: int) -> None:
    rng = random.Random(seed)

    def cooldown() -> int:
        """How many flushes launches do not wait for after nothing has come again for long enough."""
        while device.launches.may_wait:
            device.repeat(_calls(rng, FEW), 1)
        flushes = 0
        while not device.launches.may_wait:
            device.launches.flush()
            flushes += 1
        return flushes

    first = LAUNCH_WAITING.cooldown
    assert [cooldown() for _ in range(3)] == [first, 2 * first, 4 * first]
    device.repeat([(0, 1, 2, 3)] * FEW, 3)
    assert cooldown() == first and device.launches.policy.cooldowns == 4


def test_a_cooldown_that_is_ended_lets_launches_wait_again(device: Device, seed: int) -> None:
    rng = random.Random(seed)
    while device.launches.may_wait:
        device.repeat(_calls(rng, FEW), 1)
    device.launches.end_cooldown()
    assert device.launches.may_wait and not device.launches.policy.cooldown


@pytest.mark.usefixtures("longer_queue")
def test_runs_that_stopped_coming_are_forgotten() -> None:
    device = Device(LAUNCH_SEQUENCES._replace(records=8))
    lasting = [(0, 1, 2, 3)] * FEW
    for number in range(40):
        device.repeat(lasting, 2)
        device.repeat([(1, number, 2, 3)] * FEW, 2)
    captured = device.captured
    device.repeat(lasting, 1)
    assert device.captured == captured == 41, "it was used all the time"
    device.repeat([(1, 0, 2, 3)] * FEW, 1)
    assert device.captured == captured + 1, "it was not"


@pytest.mark.usefixtures("longer_queue")
def test_credit_for_captures_is_earned() -> None:
    device = Device(LAUNCH_SEQUENCES._replace(budget=2 * LAUNCH_SEQUENCES.cost))
    for number in range(10):
        device.repeat([(1, number, 2, 3)] * FEW, 2)
    assert device.captured == 2, "each launch earns a part of the next capture"
    device.repeat([(1, 0, 2, 3)] * FEW, LAUNCH_SEQUENCES.cost)
    device.repeat([(1, 9, 2, 3)] * FEW, 1)
    assert device.captured == 3


def test_a_device_that_is_always_busy_needs_no_graphs(device: Device) -> None:
    device.is_idle = False
    device.repeat([(1, 1, 2, 3)] * FEW, 20)
    assert not device.captured
    device.is_idle = True
    device.repeat([(1, 1, 2, 3)] * FEW, 1)
    device.is_idle = False
    for number in range(2 * IDLE_WINDOW):
        device.repeat([(2, number, 2, 3)] * FEW, 2)
    assert 1 < device.captured <= IDLE_WINDOW, "for a while it may become idle again"
