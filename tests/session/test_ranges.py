"""What a session emits for a profiler that is attached to its worker: ranges that are balanced whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from server.engine.autograd.node import OpNode
from server.engine.device import cancellation
from server.engine.profiling import kernel, nvtx, open_ranges
from server.engine.profiling.nvtx import find_library
from server.engine.profiling.recorder import MOST_OPEN_RANGES
from server.session.profiling.profiles import noted_so_far, start_profile
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.messages import (
    Answer,
    BeginCapture,
    Detach,
    EndCapture,
    Failure,
    Free,
    Interrupt,
    Mode,
    Query,
    ReplayGraph,
    SetRequiresGrad,
    Upload,
)

from ..support.written_ranges import WrittenRanges, write_ranges
from .driver import F32, ONES, Talk, backward, call, fails
from .queued import GPU, queued_host
from .test_interrupts import interrupt

STOP = Mode("stop_ranges", None)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[WrittenRanges]:
    yield (written := write_ranges(monkeypatch))
    assert not written.open, "ranges are open that nobody ends"


@pytest.fixture
def emitting(open_talk: Callable[..., Talk], written: WrittenRanges) -> Iterator[Callable[..., Talk]]:
    """Opens sessions that emit, have a tensor 1, and emit nothing any more after the test."""
    opened: list[Talk] = []

    def open_one(shapes: bool = False) -> Talk:
        opened.append(open_talk())
        opened[-1].upload(1, ONES)
        assert _start(opened[-1], shapes) == ""
        return opened[-1]

    yield open_one
    for one in opened:
        one.session.close()
    assert not open_ranges.stacks and OpNode.apply.__name__ == "apply"


def _start(talk: Talk, shapes: bool = False) -> Any:
    return talk.ask("start_ranges", shapes)


def _begin(number: int, name: str) -> Mode:
    return Mode("range", [number, name])


def _end(number: int) -> Mode:
    return Mode("range", [number])


def test_operations_nodes_and_other_instructions_are_ranges(
    emitting: Callable[..., Talk], written: WrittenRanges
) -> None:
    talk = emitting(shapes=True)
    talk.send(SetRequiresGrad(1, True), call("mul", 2, 1, 1), call("sum", 3, 2), backward((3,), ((1, 9),)))
    np.testing.assert_array_equal(talk.read(9), 2 * ONES)
    lines = written.take()
    assert lines[:3] == [
        "telegrad::set_requires_grad", "aten::mul, seq = 0, sizes = [[2, 3], [2, 3]]",
        "aten::sum, seq = 1, sizes = [[2, 3], [], [], []]",
    ]  # fmt: skip
    nodes = [line.strip() for line in lines if "Backward0" in line]
    assert nodes == ["SumBackward0, seq = 1, sizes = [[]]", "MulBackward0, seq = 0, sizes = [[2, 3]]"]
    at = lines.index("telegrad::backward")
    assert all(line.startswith("  ") for line in lines[at + 1 : -1]) and lines[-1] == "telegrad::read"
    assert any(line.startswith("    aten::mul, sizes") for line in lines[at:]), "operations lie within their nodes"
    talk.send(STOP, call("add", 4, 1, 1))
    assert not written.take() and not talk.session.state.plain_handlers
    assert talk.session.state.context.profiler is None


def test_nodes_that_were_made_before_have_no_number(open_talk: Callable[..., Talk], written: WrittenRanges) -> None:
    talk = open_talk()
    talk.upload(1, ONES)
    talk.send(SetRequiresGrad(1, True), call("exp", 2, 1))
    _start(talk)
    talk.send(call("sum", 3, 2), backward((3,), ((1, 9),)), STOP)
    assert [line.strip() for line in written.take() if "Backward0" in line] == ["SumBackward0, seq = 0", "ExpBackward0"]


def test_ranges_and_marks_of_the_program_lie_between_its_operations(
    emitting: Callable[..., Talk], written: WrittenRanges
) -> None:
    talk = emitting()
    talk.send(
        _begin(7, "outer"), call("add", 2, 1, 1), _begin(8, "inner"), Mode("mark", "here"), call("neg", 3, 2), _end(7),
        call("exp", 4, 3), _end(8), _end(8), _end(99), Mode("mark", "x" * 600),
    )  # fmt: skip
    assert written.take() == [
        "outer", "  aten::add", "  inner", "    ! here", "    aten::neg", "inner", "  aten::exp", f"! {'x' * 512}",
    ]  # fmt: skip
    assert not written.open


def test_ranges_end_where_operations_fail(emitting: Callable[..., Talk], written: WrittenRanges) -> None:
    talk = emitting()
    failure = fails(
        talk, _begin(7, "step"), call("mm", 2, 1, 1), call("add", 3, 1, 1), _begin(8, "passed over"), _end(8), _end(7)
    )
    assert failure.code == "ShapeError" and not written.open
    assert written.take() == ["step", "  aten::mm", "  passed over"]
    talk.resume()
    talk.send(call("add", 3, 1, 1))
    assert written.take() == ["aten::add"]


def test_ranges_end_where_a_node_fails_or_an_interrupt_drops_what_follows(
    emitting: Callable[..., Talk], written: WrittenRanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = emitting()

    def fail(node: Any, grads: Any) -> Any:
        assert written.open == ["step", "telegrad::backward", "SumBackward0, seq = 1"]
        raise ArgumentError("this node fails")

    talk.send(SetRequiresGrad(1, True), call("mul", 2, 1, 1), call("sum", 3, 2), _begin(7, "step"))
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "_apply", fail)
        assert fails(talk, backward((3,), ((1, 9),))).message == "this node fails"
    assert written.open == ["step"]
    talk.resume()
    interrupt(talk)
    talk.send(call("exp", 4, 1), _end(7), Interrupt(1))
    assert not written.open


def test_a_sessions_open_ranges_hold_nothing_of_other_sessions(
    emitting: Callable[..., Talk], open_talk: Callable[..., Talk], written: WrittenRanges
) -> None:
    first, second, silent = emitting(), emitting(), open_talk()
    written.take()
    first.send(_begin(7, "first"), call("add", 2, 1, 1))
    first.send(call("neg", 3, 1))
    assert written.open == ["first"], "a range is one over several turns, while no other session has its own"
    second.send(_begin(7, "second"), call("exp", 2, 1))
    assert written.open == ["second"]
    silent.upload(1, ONES)
    assert not written.open, "a session that emits nothing has its turn"
    first.send(call("sin", 4, 1), _end(7))
    assert not written.open
    second.send(call("cos", 4, 1), _end(7))
    assert written.take() == [
        "first", "  aten::add", "  aten::neg", "second", "  aten::exp", "first", "  aten::sin", "second", "  aten::cos",
    ]  # fmt: skip


def test_others_work_in_the_middle_of_a_pass_outside_of_its_ranges(
    emitting: Callable[..., Talk], open_talk: Callable[..., Talk], written: WrittenRanges
) -> None:
    talk, other = emitting(), open_talk()
    seen: list[list[str]] = []

    def give_way() -> None:
        suspended = talk.session.suspend()
        assert suspended is not None
        other.upload(1, ONES)
        seen.append(list(written.open))
        talk.session.resume(suspended)
        assert written.open[0] == "telegrad::backward"
        cancellation.request_pause(give_way)

    talk.send(SetRequiresGrad(1, True), call("mul", 2, 1, 1), call("sum", 3, 2))
    cancellation.request_pause(give_way)
    talk.send(backward((3,), ((1, 9),)))
    cancellation.request_pause(lambda: None)
    cancellation.pause()
    assert len(seen) > 1 and not any(seen) and not written.open
    np.testing.assert_array_equal(talk.read(9), 2 * ONES)


@pytest.mark.parametrize("how", ["stop", "close", "close in another's turn", "detach"])
def test_ranges_end_with_what_emits_them(
    emitting: Callable[..., Talk], open_talk: Callable[..., Talk], written: WrittenRanges, how: str
) -> None:
    talk = emitting()
    talk.send(_begin(7, "never ended"), call("add", 2, 1, 1))
    if how == "close in another's turn":
        open_talk().upload(1, ONES)
    if how == "stop":
        talk.send(STOP)
    elif how == "detach":
        talk.send(Detach())
    else:
        talk.session.close()
    assert not written.open and not open_ranges.stacks


def test_a_session_is_looked_at_in_one_way_at_a_time(emitting: Callable[..., Talk], written: WrittenRanges) -> None:
    talk = emitting()
    for wrong in (_start(talk), talk.ask("start_profile", False, False, 1 << 20)):
        assert isinstance(wrong, Failure) and "emits ranges for another profiler already" in wrong.message
        talk.resume()
    not_profiled = talk.ask("stop_profile")
    assert isinstance(not_profiled, Failure) and "not profiled" in not_profiled.message
    talk.resume()
    talk.send(STOP, STOP)
    (begun,) = talk.send(Query(1, "start_profile", [False, False, 1 << 20]))
    assert isinstance(begun, Answer)
    wrong = _start(talk)
    assert isinstance(wrong, Failure) and "is profiled already" in wrong.message
    talk.resume()
    talk.send(STOP)
    assert talk.session.state.context.profiler is not None, "the profile goes on"
    talk.session.state.values.pop(talk.ask("stop_profile"))


def test_a_session_that_is_watched_emits_instead(
    open_talk: Callable[..., Talk], written: WrittenRanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = open_talk()
    talk.upload(1, ONES)
    state = talk.session.state
    start_profile(state, False, False, 1 << 20, wraps=True)
    with monkeypatch.context() as patch:
        patch.setattr(nvtx, "find_library", find_library)
        assert _start(talk) == "the server has no GPU"
    assert state.context.profiler.wraps, "nothing is emitted, so it is still watched"
    assert _start(talk) == ""
    with pytest.raises(ArgumentError, match="not watched"):
        noted_so_far(state, 9)
    talk.send(call("add", 2, 1, 1), STOP)
    assert written.take() == ["aten::add"] and state.context.profiler is None


def test_calls_that_come_again_are_ranges_each(emitting: Callable[..., Talk], written: WrittenRanges) -> None:
    """They would be executed as one otherwise, and passes would be replayed."""
    talk = emitting()
    talk.send(SetRequiresGrad(1, True))
    written.take()
    for _ in range(20):
        talk.send(*[call("exp", n + 1, n) for n in range(1, 12)], call("sum", 20, 12), backward((20,), ((1, 30),)))
        lines = written.take()
        assert len([line for line in lines if line.startswith("aten::exp")]) == 11
        assert len([line for line in lines if "ExpBackward0" in line]) == 11
        talk.send(Free([20, *range(2, 13)]))


def test_graphs_that_the_program_captures_are_ranges(written: WrittenRanges) -> None:
    talk = Talk(queued_host()[0])
    talk.send(Upload(1, 7, F32, (2,), GPU.name, np.float32([1, 2]).tobytes()))
    assert _start(talk) == ""
    add = call("add_", 1, 1, [10])
    talk.send(BeginCapture(50, 7, GPU.name, (1, 1)), add, EndCapture(50, 7, True), *[ReplayGraph(50, 7)] * 2, STOP)
    assert talk.read(1).tolist() == [21, 22]
    talk.session.close()
    assert [line for line in written.take() if not line.startswith(" ")] == [
        "telegrad::begin_capture", "aten::add_", "telegrad::end_capture", *["telegrad::replay_graph"] * 2,
    ]  # fmt: skip


def test_a_program_opens_no_more_ranges_than_there_is_room_for(
    emitting: Callable[..., Talk], written: WrittenRanges
) -> None:
    talk = emitting()
    talk.send(*[_begin(number, "one") for number in range(1, 2 * MOST_OPEN_RANGES)])
    assert len(written.open) == MOST_OPEN_RANGES
    (failure,) = talk.send(Mode("mark", 3))
    assert isinstance(failure, Failure) and "unknown mode" in failure.message


def test_without_a_gpu_or_its_library_nothing_is_emitted(talk: Talk) -> None:
    assert _start(talk) == "the server has no GPU"
    assert talk.session.state.context.profiler is None and not talk.session.state.plain_handlers
