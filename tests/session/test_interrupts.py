"""What an interrupt drops of a session's queue, and what it leaves as if the program had been interrupted earlier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from telegrad_protocol import messages, wire
from telegrad_protocol.messages import (
    DROPPED,
    Answer,
    DropGrads,
    Failure,
    Free,
    Interrupt,
    Mode,
    Query,
    Read,
    SetRequiresGrad,
    Site,
    Upload,
)

from .driver import F32, ONES, Talk, backward, begin_upload, call, fails


def interrupt(talk: Talk, number: int = 1) -> None:
    """Announce an interrupt past the stream, as the gateway does."""
    talk.host.control(talk.session, "interrupt", [number])


def why_absent(talk: Talk, id: int) -> str:
    """What the user of a dropped result is told."""
    failure = talk.read(id)
    assert isinstance(failure, Failure) and failure.code == "NotComputedError", failure
    talk.resume()
    return failure.message


def test_results_before_the_interrupt_are_absent_and_later_ones_are_computed(talk: Talk) -> None:
    talk.upload(1, ONES)
    interrupt(talk)
    assert talk.send(Site(7, "train.py", 12, "main"), call("add", 2, 1, 1, site=7)) == []
    assert talk.send(Interrupt(1), call("neg", 3, 1)) == []
    np.testing.assert_array_equal(talk.read(3), -ONES)
    assert "an interrupt dropped add at train.py:12 in main before it ran" in why_absent(talk, 2)


def test_what_has_not_started_is_dropped_and_what_ran_is_kept(talk: Talk) -> None:
    talk.upload(1, ONES)
    batch = [call("add", number, number - 1, 1) for number in range(2, 12)]
    talk.session.receive(wire.BATCH, memoryview(wire.encode_batch([*batch, Interrupt(1)])))
    talk.session.run(4)
    interrupt(talk)
    talk.run()
    executed = talk.session.state.operations
    assert executed == 4
    np.testing.assert_array_equal(talk.read(5), ONES + 4)
    assert why_absent(talk, 6)


def test_an_interrupt_that_the_stream_has_passed_drops_nothing(talk: Talk) -> None:
    talk.upload(1, ONES)
    talk.send(call("add", 2, 1, 1), Interrupt(1))
    interrupt(talk)
    talk.send(call("add", 3, 2, 1))
    np.testing.assert_array_equal(talk.read(3), ONES + 2)


def test_the_last_of_several_interrupts_ends_the_drop(talk: Talk) -> None:
    talk.upload(1, ONES)
    interrupt(talk, 2)
    interrupt(talk, 1)
    talk.send(call("add", 2, 1, 1), Interrupt(1), call("add", 3, 1, 1), Interrupt(2), call("add", 4, 1, 1))
    assert why_absent(talk, 2) == why_absent(talk, 3)
    np.testing.assert_array_equal(talk.read(4), ONES + 1)


def test_tensors_changed_in_place_keep_their_values(talk: Talk) -> None:
    talk.upload(1, ONES)
    talk.send(call("add_", 1, 1, 1))
    interrupt(talk)
    talk.send(call("add_", 1, 1, 1), call("zero_", 1, 1), Interrupt(1), call("add_", 1, 1, 1))
    np.testing.assert_array_equal(talk.read(1), ONES * 4)


def test_frees_and_modes_are_executed_all_the_same(talk: Talk) -> None:
    talk.upload(1, ONES)
    talk.upload(2, ONES)
    talk.upload(3, ONES)
    interrupt(talk)
    talk.send(Free([1]), call("neg", 4, 3, freed=[2]), Mode("grad", False), Interrupt(1))
    assert talk.session.state.values.keys() == {3, 4}
    talk.send(SetRequiresGrad(3, True), call("neg", 5, 3))
    assert talk.session.state.value(5).autograd is None


def test_dropped_requests_are_answered_and_nothing_is_to_be_resumed(talk: Talk) -> None:
    talk.upload(1, ONES)
    interrupt(talk)
    replies = talk.send(Read(1, 1), Query(2, "synchronize", [""]), Interrupt(1), Query(3, "tensor_count", []))
    for reply, request in zip(replies[:2], (1, 2), strict=True):
        assert isinstance(reply, Failure)
        assert (reply.number, reply.request, reply.code) == (DROPPED, request, "NotComputedError")
    assert replies[2] == Answer(3, 1)


def test_a_failure_that_the_client_has_not_seen_outlives_the_interrupt(talk: Talk) -> None:
    talk.upload(1, ONES)
    fails(talk, call("mm", 2, 1, 1))
    interrupt(talk)
    talk.send(call("add", 3, 1, 1), Interrupt(1), call("add", 4, 1, 1))
    assert "mm failed" in talk.session.state.values[4].reason  # type: ignore[union-attr]
    talk.resume()
    talk.send(call("add", 5, 1, 1))
    np.testing.assert_array_equal(talk.read(5), ONES + 1)


def test_resuming_after_a_failure_does_not_end_the_drop(talk: Talk) -> None:
    talk.upload(1, ONES)
    fails(talk, call("mm", 2, 1, 1))
    interrupt(talk)
    talk.resume()
    talk.send(call("add", 3, 1, 1), Interrupt(1), call("add", 4, 1, 1))
    assert why_absent(talk, 3)
    np.testing.assert_array_equal(talk.read(4), ONES + 1)


def test_an_upload_in_flight_is_dropped_with_its_memory(talk: Talk) -> None:
    half = np.zeros(1 << 17, np.float32).tobytes()
    begin_upload(talk, 1, (1 << 18,))
    talk.chunk(1, 0, half)
    interrupt(talk)
    assert talk.chunk(1, len(half), half) == []
    talk.send(Interrupt(1))
    assert "upload" in why_absent(talk, 1)
    assert talk.held() == 0
    talk.send(Upload(2, 0, F32, (2, 3), "cpu", ONES.tobytes()))
    np.testing.assert_array_equal(talk.read(2), ONES)


@pytest.mark.parametrize("executed", range(5))
def test_training_goes_on_after_a_step_was_cut_anywhere(talk: Talk, rng: np.random.Generator, executed: int) -> None:
    """The gradient of a step after the drop is the one that PyTorch's users expect: of that step alone."""
    weights = rng.standard_normal((3, 2)).astype(np.float32)
    data = rng.standard_normal((4, 3)).astype(np.float32)
    talk.upload(1, weights)
    talk.upload(2, data)
    talk.send(SetRequiresGrad(1, True))

    def step(first: int) -> list[Any]:
        return [
            call("mm", first, 2, 1), call("mul", first + 1, first, first), call("sum", first + 2, first + 1),
            backward((first + 2,), [(1, 100)]), call("neg", first + 3, 100),
        ]  # fmt: skip

    for first in (10, 20, 30):
        assert talk.send(*step(first), DropGrads([1])) == []
    talk.session.receive(wire.BATCH, memoryview(wire.encode_batch([*step(40), DropGrads([1]), Interrupt(1)])))
    talk.session.run(executed)
    interrupt(talk)
    talk.run()
    assert talk.send(*step(50)) == []
    expected = 2 * data.T.astype(np.float64) @ (data.astype(np.float64) @ weights)
    tolerance = {"rtol": 1e-5, "atol": 1e-6 * float(np.abs(expected).max())}  # an element may be a small difference
    np.testing.assert_allclose(talk.read(100), expected, **tolerance)
    np.testing.assert_allclose(talk.read(53), -expected, **tolerance)


def test_an_interrupt_of_one_session_is_none_of_another(open_talk: Callable[..., Talk]) -> None:
    mine, other = open_talk(), open_talk()
    interrupt(mine)
    for talk in (mine, other):
        talk.send(Upload(1, 0, F32, (2, 3), "cpu", ONES.tobytes()))
    np.testing.assert_array_equal(other.read(1), ONES)
    assert mine.session.state.values.keys() == {1}
    assert mine.send(messages.Read(1, 1))[0].number == DROPPED  # type: ignore[union-attr]
