"""What a session does with instructions: failing and going on, and its end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from server.allocator import CachingAllocator, HostUpstream
from server.engine.device.cpu_backend import CpuBackend
from server.session.state import MAX_STOPPED_THREADS, Absent
from server.worker.host import Host
from telegrad_protocol import dtypes
from telegrad_protocol.messages import (
    Data,
    Describe,
    Detach,
    Failure,
    Free,
    Mode,
    Query,
    Read,
    Resume,
    RetainGrad,
    SetRequiresGrad,
    Site,
)
from telegrad_protocol.meta import Device

from .driver import F32, ONES, Talk, backward, begin_upload, call, fails


def test_a_failure_names_operation_operands_line_and_cause(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    talk.upload(1, ONES)
    failure = fails(talk, Site(4, "train.py", 12, "step"), call("mm", 2, 1, 1, site=4))
    assert (failure.code, failure.operation, failure.operands) == ("ShapeError", "mm", "float32[2,3], float32[2,3]")
    assert failure.site == "train.py:12 in step"
    assert failure.request is None
    assert failure.traceback == ""
    monkeypatch.setenv("TELEGRAD_DEBUG", "1")
    talk.resume()
    assert "ShapeError" in fails(talk, call("mm", 2, 1, 1, site=4)).traceback


def test_after_a_failure_nothing_runs_but_frees_until_resume(talk: Talk) -> None:
    talk.upload(1, ONES)
    talk.upload(2, ONES)
    fails(talk, call("mm", 3, 1, 1), call("add_", (), 1, [5.0]), call("neg", 4, 1), Free([2]))
    assert set(talk.session.state.values) == {1, 3, 4}
    talk.resume()
    np.testing.assert_array_equal(talk.read(1), ONES)
    assert talk.send(call("neg", 5, 1)) == []
    np.testing.assert_array_equal(talk.read(5), -ONES)


def test_what_a_call_frees_makes_room_for_its_results(talk: Talk) -> None:
    talk.upload(1, ONES)
    talk.upload(2, ONES)
    held, place = talk.held(), talk.session.state.value(2).array.ctypes.data
    talk.send(call("neg", 3, 1, freed=[2]))
    assert set(talk.session.state.values) == {1, 3}
    assert (talk.held(), talk.session.state.value(3).array.ctypes.data) == (held, place)


def test_a_call_frees_also_where_it_fails_and_where_it_is_skipped(talk: Talk) -> None:
    for id in (1, 2, 3, 4):
        talk.upload(id, ONES)
    fails(talk, call("mm", 5, 1, 1, freed=[2]), call("neg", 6, 1, freed=[3, 5, 77]))
    assert set(talk.session.state.values) == {1, 4, 6}
    talk.resume()
    assert fails(talk, call("neg", 7, 4, freed=[4])).code == "UnknownIdError"
    assert set(talk.session.state.values) == {1, 6, 7}


def test_what_autocast_keeps_of_leaves_ends_with_the_session(talk: Talk) -> None:
    talk.upload(1, ONES)
    bfloat16 = [True, [["cpu", dtypes.bfloat16.code]]]
    assert talk.send(SetRequiresGrad(1, True), Mode("autocast", bfloat16), call("linear", 2, 1, 1, None)) == []
    talk.session.close()
    assert talk.held() == 0


def test_freeing_what_is_being_uploaded_ends_the_upload(talk: Talk) -> None:
    talk.upload(1, ONES)
    assert begin_upload(talk, 2, (100_000,)) == []
    assert talk.send(call("neg", 3, 1, freed=[2])) == []
    assert talk.session.state.upload is None
    assert talk.chunk(2, 0, b"1234")[0].code == "ProtocolError"


def test_requests_behind_a_failure_are_answered_with_it(talk: Talk) -> None:
    talk.upload(1, ONES)
    replies = talk.send(call("mm", 2, 1, 1), Read(7, 1), Query(8, "tensor_count", []), Describe(9, (1,)))
    assert [(type(r), r.request, r.code, r.number) for r in replies] == [
        (Failure, request, "ShapeError", 1) for request in (None, 7, 8, 9)
    ]


def test_a_request_that_fails_itself_is_answered_once(talk: Talk) -> None:
    (failure,) = talk.send(Read(3, 99))
    assert (failure.request, failure.code) == (3, "UnknownIdError")


def test_results_that_were_never_computed_say_why(talk: Talk) -> None:
    talk.upload(1, ONES)
    fails(talk, Site(1, "a.py", 3, "f"), call("mm", 2, 1, 1, site=1), call("neg", 3, 2))
    talk.resume()
    for id in (2, 3):
        failure = talk.read(id)
        assert failure.code == "NotComputedError"
        assert "mm failed at a.py:3 in f: mm: cannot multiply" in failure.message
        talk.resume()
    talk.send(Free([2, 3]))
    assert talk.read(2).code == "UnknownIdError"


def test_only_the_number_of_the_failure_resumes(talk: Talk) -> None:
    fails(talk, call("neg", 2, 1))
    assert talk.send(Resume(77), call("zeros", 3, [2])) == []
    assert isinstance(talk.session.state.values[3], Absent)
    talk.send(Resume(1), call("zeros", 4, [2]))
    assert talk.read(4).shape == (2,)
    assert fails(talk, call("neg", 2, 1)).number == 2


def test_a_failure_stops_the_instructions_of_its_thread_alone(talk: Talk) -> None:
    talk.upload(1, ONES)
    failure = fails(talk, Mode("thread", 5), call("mm", 2, 1, 1), call("neg", 3, 1))
    assert failure.thread == 5
    assert talk.send(Mode("thread", 0), call("neg", 4, 1)) == []
    np.testing.assert_array_equal(talk.read(4), -ONES)
    other = fails(talk, call("neg", 6, 3))
    assert (other.thread, other.code) == (0, "NotComputedError") and "mm failed" in other.message
    assert talk.read(1).number == other.number
    assert talk.send(Resume(failure.number), call("neg", 7, 1), Mode("thread", 5), call("neg", 8, 1)) == []
    np.testing.assert_array_equal(talk.read(8), -ONES)
    talk.send(Mode("thread", 0))
    assert talk.read(1).number == other.number, "the first thread has not been resumed"
    talk.resume()
    assert talk.read(7).code == "NotComputedError"


def test_the_next_client_is_stopped_by_no_thread_of_the_last_one(talk: Talk) -> None:
    fails(talk, call("mm", 2, 1, 1))
    fails(talk, Mode("thread", 5), call("mm", 2, 1, 1))
    assert talk.send(Detach(), call("zeros", 1, [2])) == []
    np.testing.assert_array_equal(talk.read(1), [0.0, 0.0])
    assert talk.send(Mode("thread", 5), call("neg", 2, 1)) == []
    np.testing.assert_array_equal(talk.read(2), [0.0, 0.0])


def test_as_many_threads_are_kept_stopped_as_the_limit_allows(talk: Talk) -> None:
    talk.upload(1, ONES)
    for thread in range(MAX_STOPPED_THREADS + 3):
        fails(talk, Mode("thread", thread), call("mm", 2, 1, 1), Free([2]))
    assert len(talk.session.state.stopped) == MAX_STOPPED_THREADS
    talk.send(Mode("thread", 0))
    np.testing.assert_array_equal(talk.read(1), ONES)
    talk.send(Mode("thread", 5))
    assert talk.read(1).code == "ShapeError"


@pytest.mark.parametrize("number", [-1, "main", 1.0, None, True])
def test_a_thread_is_told_by_its_number(talk: Talk, number: object) -> None:
    assert fails(talk, Mode("thread", number)).code == "ProtocolError"


def test_modes_are_kept_while_failed(talk: Talk) -> None:
    talk.upload(1, ONES)
    talk.send(SetRequiresGrad(1, True))
    fails(talk, call("mm", 2, 1, 1), Mode("grad", False), Mode("default_dtype", dtypes.float64.code))
    talk.resume()
    talk.send(call("neg", 3, 1), call("zeros", 4, [2]))
    (described,) = talk.send(Describe(1, (3, 4)))
    assert [(code, wants) for *_, code, wants in described.metas] == [(F32, False), (dtypes.float64.code, False)]


def test_one_sessions_default_dtype_and_failure_are_its_own(open_talk: Callable[..., Talk]) -> None:
    one, other = open_talk(), open_talk()
    one.send(Mode("default_dtype", dtypes.float64.code))
    fails(one, call("neg", 1, 1))
    other.send(call("zeros", 1, [2]))
    assert other.read(1).dtype == np.float32


def test_an_operation_that_fails_leaves_its_operands(talk: Talk) -> None:
    talk.upload(1, ONES)
    fails(talk, call("add_", (1,), 1, [0.0, 1.0]))
    talk.resume()
    np.testing.assert_array_equal(talk.read(1), ONES)


def test_an_index_out_of_range_stops_what_follows(talk: Talk) -> None:
    talk.upload(1, ONES)
    talk.upload(2, np.array([9]))
    failure = fails(talk, call("index_select", 3, 1, 0, 2), call("mul_", (), 1, [0.0]))
    assert failure.code == "IndexOutOfRangeError"
    talk.resume()
    np.testing.assert_array_equal(talk.read(1), ONES)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Python's collector does not happen to run in the middle of the test."""
    gc.disable()
    yield
    gc.enable()


def _second_order(talk: Talk) -> None:
    """A graph in which a leaf's gradient depends on the leaf: a reference cycle."""
    talk.upload(1, ONES)
    talk.send(SetRequiresGrad(1, True), call("mul", 2, 1, 1), call("sum", 3, 2), RetainGrad(2))
    assert talk.send(backward(create_graph=True, retain_graph=True)) == []


def _in_the_middle(talk: Talk) -> None:
    talk.upload(1, ONES)
    begin_upload(talk, 5, (100,))
    talk.chunk(5, 0, b"\0" * 40)
    talk.host.control(talk.session, "upload_begin", [6, "float32", [10], "cpu"])
    talk.host.control(talk.session, "read_begin", [1])


def _failing(talk: Talk) -> None:
    _second_order(talk)
    fails(talk, call("mm", 5, 1, 2), call("neg", 6, 1))
    talk.resume()
    fails(talk, call("add", 5, 1, 99))


@pytest.mark.parametrize("begin", [_second_order, _in_the_middle, _failing])
def test_a_closed_session_holds_nothing(host: Host, no_collector: None, begin: Callable[[Talk], None]) -> None:
    talk = Talk(host)
    begin(talk)
    assert talk.held() > 0
    talk.session.close()
    assert talk.held() == 0
    assert host.control(None, "memory_stats", ["cpu", talk.number])["cpu"]["allocation.all.allocated"] == 0
    talk.session.close()


def test_a_session_that_ends_by_an_error_in_flight_is_settled_later(host: Host, no_collector: None) -> None:
    talk = Talk(host)
    _second_order(talk)
    try:
        keeper = talk.session.state.values[1]
        raise RuntimeError("a defect")
    except RuntimeError:
        talk.session.close()
        assert talk.held() > 0
    del keeper
    host.control(None, "devices", [])
    assert talk.held() == 0
    assert host.closing == {}


def test_a_failing_session_keeps_no_values_by_its_traceback(talk: Talk, no_collector: None) -> None:
    talk.upload(1, ONES)
    talk.upload(2, ONES)
    fails(talk, call("mm", 3, 1, 2), Free([1, 2]))
    assert talk.held() == 0


def test_equal_ids_of_two_sessions_are_different_tensors(open_talk: Callable[..., Talk]) -> None:
    one, other = open_talk(), open_talk()
    one.upload(1, ONES)
    assert other.read(1).code == "UnknownIdError"
    other.resume()
    other.upload(1, 5 * ONES)
    np.testing.assert_array_equal(one.read(1), ONES)
    other.session.close()
    np.testing.assert_array_equal(one.read(1), ONES)


def test_data_of_replies_is_what_was_asked_for(talk: Talk) -> None:
    talk.upload(1, ONES)
    (data,) = talk.send(Read(17, 1))
    assert isinstance(data, Data)
    assert (data.request, data.dtype, data.shape, data.nbytes) == (17, F32, (2, 3), 24)


class Accelerator(CpuBackend):
    """A device whose launches wait; notes what it is told."""

    def __init__(self) -> None:
        super().__init__(Device("cuda", 6), CachingAllocator(HostUpstream()))
        self.told: list[str] = []
        self.error: Exception | None = None

    def allow_waiting(self) -> None:
        self.told.append("allow")

    def end_waiting(self) -> None:
        self.told.append("end")

    def flush(self) -> None:
        self.told.append("flush")
        if self.error is not None:
            raise self.error


@pytest.fixture
def accelerated() -> Iterator[tuple[Talk, Accelerator]]:
    """A session that has a device with launches."""
    device = Accelerator()
    host = Host(["cpu"])
    host.backends[device.device] = device
    talk = Talk(host)
    talk.upload(1, ONES)
    device.told.clear()
    yield talk, device
    device.error = None
    talk.session.close()
    assert talk.held() == 0


def test_launches_wait_from_call_to_call_until_somebody_looks(accelerated: tuple[Talk, Accelerator]) -> None:
    talk, device = accelerated
    talk.send(call("neg", 2, 1), call("neg", 3, 2), Free([2]), call("neg", 4, 3))
    assert device.told == ["allow", "end", "flush"]
    device.told.clear()
    talk.send(call("neg", 5, 1), Read(1, 5), call("neg", 6, 5))
    assert device.told == ["allow", "end", "flush", "allow", "end", "flush"]


def test_launches_wait_for_frames_that_are_there(accelerated: tuple[Talk, Accelerator]) -> None:
    talk, device = accelerated
    talk.session.expects_more = True
    talk.send(call("neg", 2, 1))
    assert device.told == ["allow", "end"]
    talk.session.expects_more = False
    talk.send(call("neg", 3, 1))
    assert device.told == ["allow", "end", "allow", "end", "flush"]


def test_a_long_batch_goes_on_waiting_in_its_next_turn(accelerated: tuple[Talk, Accelerator]) -> None:
    talk, device = accelerated
    talk.send(*[call("neg", 2 + k, 1) for k in range(100)])
    assert device.told == ["allow", "end", "allow", "end", "flush"]


def test_a_launch_that_fails_late_fails_the_session_as_any_other(accelerated: tuple[Talk, Accelerator]) -> None:
    talk, device = accelerated
    device.error = RuntimeError("the driver refuses")
    (failure,) = talk.send(call("neg", 2, 1))
    assert isinstance(failure, Failure)
    assert (failure.code, failure.operation) == ("InternalError", "neg")
    assert "(RuntimeError)" in failure.message
    device.error = None
    talk.resume()
    assert talk.send(call("neg", 3, 1)) == []
