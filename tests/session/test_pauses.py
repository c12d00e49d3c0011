"""Other sessions' work in the middle of a backward pass: nothing of either session changes by it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from server.engine.device import cancellation
from server.ipc.heartbeat import BEGIN, SESSION, Cancelled, Heartbeat
from server.worker.rounds import Rounds
from server.worker.slices import Slices
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.messages import DropGrads, Free, SetRequiresGrad

from .driver import Talk, backward, call

DEPTH, PASSES = 6, 8
LOSS, GRADIENT = 100, 101


class Pauses:
    """Lets a neighbour work at every step of a session's backward passes, as the worker's loop does."""

    def __init__(self, talk: Talk, work: Callable[[], None]) -> None:
        self._session, self._work = talk.session, work
        self.count = self.refused = 0

    def ask(self) -> None:
        cancellation.request_pause(self._give_way)

    def _give_way(self) -> None:
        suspended = self._session.suspend()
        if suspended is None:
            self.refused += 1
            return
        self.count += 1
        self._work()
        self._session.resume(suspended)
        self.ask()


@pytest.fixture
def heartbeat() -> Iterator[Heartbeat]:
    """What a worker notes; the signal of its timer is as before afterwards."""
    before, noted = signal.getsignal(signal.SIGALRM), Heartbeat()
    yield noted
    noted.close()
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def no_request() -> Iterator[None]:
    """No test leaves a request to the next one."""
    yield
    cancellation.request_pause(lambda: None)
    cancellation.pause()


def _gradients(talk: Talk, x: np.ndarray, before_backward: Callable[[], None]) -> list[np.ndarray]:
    """The gradients of passes of the same kind: made, recorded, and repeated."""
    talk.upload(1, x)
    talk.send(SetRequiresGrad(1, True))
    found = []
    for _ in range(PASSES):
        talk.send(
            call("mul", 2, 1, 1), *[call("sin", n + 1, n) for n in range(2, 2 + DEPTH)],
            call("sum", LOSS, 2 + DEPTH), Free(list(range(2, 3 + DEPTH))),
        )  # fmt: skip
        before_backward()
        talk.send(backward((LOSS,), ((1, GRADIENT),)))
        found.append(talk.read(GRADIENT))
        talk.send(DropGrads([1]), Free([LOSS, GRADIENT]))
    return found


def test_a_pass_and_its_neighbour_compute_what_they_do_alone(
    open_talk: Callable[..., Talk], rng: np.random.Generator
) -> None:
    alone, talk, other = open_talk(), open_talk(), open_talk()
    x, y = rng.standard_normal((3, 4), np.float32), rng.standard_normal(5, np.float32)
    other.upload(1, y)
    other.send(SetRequiresGrad(1, True))
    seen: list[np.ndarray] = []

    def work() -> None:
        other.send(call("mul", 2, 1, 1), call("sum", 3, 2), backward((3,), ((1, 9),)))
        seen.append(other.read(9))
        other.send(DropGrads([1]), Free([2, 3, 9]))

    _gradients(open_talk(), x, lambda: None)  # what is planned takes numbers of nodes, too
    expected = _gradients(alone, x, lambda: None)
    pauses = Pauses(talk, work)
    found = _gradients(talk, x, pauses.ask)
    np.testing.assert_array_equal(found, expected)
    assert pauses.count >= DEPTH * PASSES
    np.testing.assert_allclose(seen, [2 * y] * len(seen), rtol=1e-6)
    nodes = [each.session.state.host_memory.nodes for each in (alone, talk)]
    assert nodes[0] == nodes[1], "the neighbour's nodes were counted as this session's"


def test_a_neighbour_that_ends_or_fails_in_a_pause_harms_nobody(
    open_talk: Callable[..., Talk], rng: np.random.Generator
) -> None:
    alone, talk = open_talk(), open_talk()
    x = rng.standard_normal((3, 4), np.float32)

    def work() -> None:
        short = Talk(talk.host)
        short.upload(1, x)
        short.send(call("matmul", 2, 1, 1))  # which fails
        short.session.close()

    pauses = Pauses(talk, work)
    np.testing.assert_array_equal(_gradients(talk, x, pauses.ask), _gradients(alone, x, lambda: None))
    assert pauses.count >= DEPTH * PASSES


def test_no_other_instruction_is_interrupted(talk: Talk, rng: np.random.Generator) -> None:
    """Passes within operations go on: launches may wait there, and nobody has noted what was done."""
    pauses = Pauses(talk, lambda: pytest.fail("another session worked"))
    talk.upload(1, rng.standard_normal((3, 4), np.float32))
    pauses.ask()
    talk.send(call("sin", 2, 1), call("sum", 3, 2))
    assert talk.session.suspend() is None
    assert not isinstance(talk.read(3), TelegradError) and pauses.count == 0


def test_a_pause_does_not_end_what_an_earlier_request_meant_to_end() -> None:
    class Ended(Exception): ...

    def end() -> None:
        raise Ended

    cancellation.request(end)
    with pytest.raises(Ended):
        cancellation.stop()
    given: list[bool] = []
    cancellation.request_pause(lambda: given.append(True))
    cancellation.pause()
    assert given == [True] and not cancellation.requested


def test_a_request_to_end_a_pass_that_comes_in_anothers_turn_ends_the_pass_and_not_the_turn(
    talk: Talk, heartbeat: Heartbeat, rng: np.random.Generator
) -> None:
    begin, others, numbers = 1.0, 2.0, heartbeat.numbers
    heard: list[bool] = []

    def let_pass() -> None:
        """Take the turn of another session, which looks whether it is to end."""
        numbers[BEGIN], numbers[SESSION] = others, 8
        heartbeat.cancel(turn)
        cancellation.request(heartbeat.check)
        cancellation.stop()
        heard.append(True)

    running: Any = SimpleNamespace(session=talk.session, number=7, pause=lambda: None)
    slices = Slices(heartbeat, Rounds([]), cancellation.request_pause, lambda: True, let_pass)
    slices.running = running
    slices.allow_timer()

    def tick() -> None:
        numbers[BEGIN], numbers[SESSION] = begin, running.number
        signal.raise_signal(signal.SIGALRM)

    numbers[BEGIN], numbers[SESSION] = begin, running.number
    turn = heartbeat.turn()
    assert turn is not None
    with pytest.raises(Cancelled):
        _gradients(talk, rng.standard_normal((3, 4), np.float32), tick)
    assert heard == [True]
