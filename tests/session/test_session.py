"""What a session does with instructions: order, failing and going on, reads, uploads, modes, and its end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from server.failures import Absent
from server.host import Host
from telegrad_protocol import dtypes, wire
from telegrad_protocol.messages import (
    CHUNK_BYTES,
    Answer,
    Backward,
    Data,
    Describe,
    Failure,
    Free,
    Gradient,
    Mode,
    Query,
    Read,
    Resume,
    RetainGrad,
    Seed,
    SetGrad,
    SetRequiresGrad,
    Site,
    Upload,
)  # fmt: skip
from telegrad_protocol.meta import CPU

from .driver import Talk, call

F32 = dtypes.float32.code
ONES = np.ones((2, 3), np.float32)


def fails(talk: Talk, *instructions: Any) -> Failure:
    """The one failure that these instructions end in."""
    (failure,) = talk.send(*instructions)
    assert isinstance(failure, Failure), failure
    return failure


# -- failing and going on ---------------------------------------------------------------------------------------------


def test_a_failure_names_operation_operands_line_and_cause(talk: Talk) -> None:
    talk.upload(1, ONES)
    failure = fails(talk, Site(4, "train.py", 12, "step"), call("mm", 2, 1, 1, site=4))
    assert (failure.code, failure.operation, failure.operands) == ("ShapeError", "mm", "float32[2,3], float32[2,3]")
    assert failure.site == "train.py:12 in step"
    assert failure.request is None
    assert "ShapeError" in failure.traceback


def test_after_a_failure_nothing_runs_but_frees_until_resume(talk: Talk) -> None:
    talk.upload(1, ONES)
    talk.upload(2, ONES)
    fails(talk, call("mm", 3, 1, 1), call("add_", (), 1, [5.0]), call("neg", 4, 1), Free([2]))
    assert set(talk.session.values) == {1, 3, 4}
    talk.resume()
    np.testing.assert_array_equal(talk.read(1), ONES)
    assert talk.send(call("neg", 5, 1)) == []
    np.testing.assert_array_equal(talk.read(5), -ONES)


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
    assert isinstance(talk.session.values[3], Absent)
    talk.send(Resume(1), call("zeros", 4, [2]))
    assert talk.read(4).shape == (2,)
    assert fails(talk, call("neg", 2, 1)).number == 2


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


# -- gradients --------------------------------------------------------------------------------------------------------


def _graph(talk: Talk) -> None:
    """Tensor 3 = sum(1 * 2), where 1 is a leaf."""
    talk.upload(1, ONES)
    talk.upload(2, 2 * ONES)
    talk.send(SetRequiresGrad(1, True), call("mul", 4, 1, 2), call("sum", 3, 4), Free([4]))


def _backward(roots: tuple[int, ...] = (3,), leaves: Any = ((1, 9),), **rest: Any) -> Backward:
    options = {"retain_graph": False, "create_graph": False} | rest
    return Backward(0, roots, (None,) * len(roots), list(leaves), **options)


def test_gradients_get_the_clients_numbers(talk: Talk) -> None:
    _graph(talk)
    assert talk.send(_backward()) == []
    np.testing.assert_array_equal(talk.read(9), 2 * ONES)


def test_a_backward_that_fails_leaves_the_gradients_that_are_there(talk: Talk) -> None:
    _graph(talk)
    talk.send(_backward())
    assert fails(talk, _backward()).code == "AutogradError"
    talk.resume()
    np.testing.assert_array_equal(talk.read(9), 2 * ONES)


def test_a_gradient_that_nothing_reached_is_absent(talk: Talk) -> None:
    _graph(talk)
    talk.upload(5, ONES)
    talk.send(SetRequiresGrad(5, True), _backward(leaves=((1, 9), (5, 10))))
    assert talk.read(10).code == "NotComputedError"


def test_grad_names_its_results(talk: Talk) -> None:
    _graph(talk)
    talk.upload(5, ONES)
    talk.send(SetRequiresGrad(5, True), Gradient(0, (3,), (None,), (1, 5), (20, 21), False, False, True))
    np.testing.assert_array_equal(talk.read(20), 2 * ONES)
    assert talk.read(21).code == "NotComputedError"


@pytest.mark.parametrize(
    "message",
    [
        Backward(0, (3,), (), [(1, 9)], False, False),
        Backward(0, (3,), (None, None), [(1, 9)], False, False),
        Gradient(0, (3,), (None,), (1,), (), False, False, True),
        Gradient(0, (3,), (), (1,), (9,), False, False, True),
    ],
)
def test_counts_that_do_not_fit_are_malformed(talk: Talk, message: Any) -> None:
    _graph(talk)
    assert fails(talk, message).code == "ProtocolError"


def test_only_leaves_of_floating_type_can_be_told_to_require_grad(talk: Talk) -> None:
    _graph(talk)
    talk.upload(6, np.array([1]))
    assert fails(talk, SetRequiresGrad(6, True)).code == "DTypeError"
    talk.resume()
    assert fails(talk, SetRequiresGrad(3, False)).code == "AutogradError"
    talk.resume()
    assert talk.send(SetRequiresGrad(3, True), SetRequiresGrad(6, False)) == []


def test_gradients_can_be_set_and_dropped(talk: Talk) -> None:
    _graph(talk)
    talk.upload(5, 7 * ONES)
    talk.send(SetGrad(1, 5), _backward(leaves=((1, 5),)))
    np.testing.assert_array_equal(talk.read(5), 9 * ONES)
    talk.upload(6, ONES[0])
    assert fails(talk, SetGrad(1, 6)).code == "ShapeError"


# -- uploads ----------------------------------------------------------------------------------------------------------


def _begin(talk: Talk, id: int, shape: tuple[int, ...], **rest: Any) -> Any:
    options = {"dtype": F32, "device": "cpu", "data": None} | rest
    return talk.send(Upload(id, 0, options["dtype"], shape, options["device"], options["data"]))


def test_an_upload_in_chunks_is_seen_when_it_is_complete(talk: Talk, rng: np.random.Generator) -> None:
    array = rng.random((700, 500), np.float32)
    data = array.tobytes()
    assert _begin(talk, 1, array.shape) == []
    assert 1 not in talk.session.values
    assert talk.chunk(1, 0, data[:CHUNK_BYTES]) == talk.chunk(1, CHUNK_BYTES, data[CHUNK_BYTES:]) == []
    np.testing.assert_array_equal(talk.read(1), array)


@pytest.mark.parametrize("shape", [(), (0,), (0, 2**40), (5,)])
def test_uploads_of_any_shape(talk: Talk, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    _begin(talk, 1, shape, data=array.tobytes())
    _begin(talk, 2, shape)
    talk.chunk(2, 0, array.tobytes()) if array.nbytes else None
    for id in (1, 2):
        np.testing.assert_array_equal(talk.read(id), array)


@pytest.mark.parametrize(
    ("owner", "offset", "size"),
    [(1, 4, 4), (2, 0, 4), (1, 0, 44), (1, 2**63, 4), (2**64 - 1, 0, 4)],
    ids=["out of order", "of another tensor", "too long", "far behind", "of nobody"],
)
def test_a_chunk_in_the_wrong_place_ends_the_upload(talk: Talk, owner: int, offset: int, size: int) -> None:
    _begin(talk, 1, (10,))
    (failure,) = talk.chunk(owner, offset, b"\1" * size)
    assert failure.code == "ProtocolError"
    talk.resume()
    assert talk.read(1).code == "NotComputedError"
    talk.resume()
    assert talk.held() == 0
    assert [f.code for f in talk.chunk(1, 0, b"\0" * 40)] == ["ProtocolError"]


def test_an_upload_in_the_middle_of_another_fails_both(talk: Talk) -> None:
    _begin(talk, 1, (10,))
    (failure,) = _begin(talk, 2, (10,))
    assert failure.code == "ProtocolError"
    talk.resume()
    assert {type(v) for v in talk.session.values.values()} == {Absent}
    assert talk.held() == 0


@pytest.mark.parametrize("size", [0, 4, 39, 41])
def test_inline_data_of_another_size_is_refused(talk: Talk, size: int) -> None:
    (failure,) = _begin(talk, 1, (10,), data=b"\0" * size)
    assert failure.code == "ProtocolError"
    assert talk.held() == 0


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"shape": (2**62, 2**62)}, "ShapeError"), ({"shape": (2**44,)}, "OutOfMemoryError"),
        ({"shape": (-1,)}, "ArgumentError"), ({"shape": (1,) * 65}, "ShapeError"),
        ({"shape": (0, 2**63 - 1)}, "ShapeError"), ({"shape": (2**31, 2**31, 0)}, "ShapeError"),
        ({"dtype": 12}, "ProtocolError"), ({"dtype": -1}, "ProtocolError"), ({"device": "cuda:7"}, "DeviceError"),
        ({"device": "tpu"}, "ArgumentError"), ({"device": "meta"}, "DeviceError"),
    ],
)  # fmt: skip
def test_an_upload_of_what_cannot_be_is_refused(talk: Talk, changed: dict[str, Any], code: str) -> None:
    shape = changed.pop("shape", (2,))
    (failure,) = _begin(talk, 1, shape, **changed)
    assert failure.code == code
    assert talk.held() == 0


def test_bools_are_made_of_whatever_bytes_came(talk: Talk) -> None:
    _begin(talk, 1, (4,), dtype=dtypes.bool_.code, data=b"\0\1\2\xff")
    talk.send(call("sum", 2, 1))
    assert talk.read(2) == 3


def test_the_quota_of_a_session_is_its_own(open_talk: Callable[..., Talk]) -> None:
    small, other = open_talk(quota_bytes=1 << 20), open_talk()
    failure = fails(small, call("zeros", 1, [1 << 20]))
    assert failure.code == "OutOfMemoryError"
    assert "4.00 MiB" in failure.message
    assert other.send(call("zeros", 1, [1 << 20])) == []
    small.resume()
    assert small.send(call("zeros", 2, [1 << 10])) == []


# -- reads and questions ----------------------------------------------------------------------------------------------


def test_a_large_read_comes_in_chunks_and_ends_the_turn(talk: Talk, rng: np.random.Generator) -> None:
    talk.send(call("zeros", 1, [1 << 21]), call("add_", (), 1, [2.5]))
    talk.session.receive(wire.BATCH, memoryview(wire.encode_batch([Read(n, 1) for n in range(9)])))
    talk.session.run(64)
    frames = talk.session.take_replies()
    assert sum(len(part) for _, parts in frames for part in parts) < 20 << 20
    assert not talk.session.has_work, "memory is shown until the frames have left"
    talk.session.frames_left()
    assert talk.session.has_work
    talk.run()
    answers = talk.replies()
    assert [a.request for a in answers] == list(range(1, 9))
    assert all(np.all(np.frombuffer(a.data, np.float32) == 2.5) for a in answers)


def test_a_view_is_read_row_major(talk: Talk) -> None:
    array = np.arange(12, dtype=np.int64).reshape(3, 4)
    talk.upload(1, array)
    talk.send(call("t", 2, 1), call("expand", 3, 1, [2, -1, -1]))
    np.testing.assert_array_equal(talk.read(2), array.T)
    np.testing.assert_array_equal(talk.read(3), np.stack([array, array]))


def test_reading_an_expanded_tensor_counts_against_the_quota(open_talk: Callable[..., Talk]) -> None:
    talk = open_talk(quota_bytes=1 << 20)
    talk.upload(1, np.ones(1, np.float32))
    talk.send(call("expand", 2, 1, [1 << 40]))
    assert talk.read(2).code == "OutOfMemoryError"


def test_an_empty_view_may_begin_anywhere(talk: Talk) -> None:
    talk.send(call("zeros", 1, [0, 1000]), call("as_strided", 2, 1, [0], [1], 10**6))
    assert talk.read(2).shape == (0,)


class Slow:
    """A download that is ready when it is told so."""

    def __init__(self, download: Any) -> None:
        self.download, self.arrived = download, False

    def is_ready(self) -> bool:
        return self.arrived

    def bytes(self) -> memoryview:
        found: memoryview = self.download.bytes()
        return found


@pytest.fixture
def slow(host: Host, monkeypatch: pytest.MonkeyPatch) -> list[Slow]:
    """The downloads of a device that delivers late."""
    backend, begun = host.backends[CPU], []
    begin = backend.open_download

    def open_download(value: Any) -> Slow:
        begun.append(Slow(begin(value)))
        return begun[-1]

    monkeypatch.setattr(backend, "open_download", open_download)
    monkeypatch.setattr(backend, "open_window", lambda value: None)
    return begun


def test_reads_wait_for_the_device_and_nothing_else_does(talk: Talk, slow: list[Slow]) -> None:
    talk.upload(1, ONES)
    (answer,) = talk.send(Read(1, 1), call("add_", (), 1, [1.0]), Read(2, 1), Query(3, "tensor_count", []))
    assert answer == Answer(3, 1)
    assert talk.session.waits
    assert talk.send(Query(4, "synchronize", [])) == []
    slow[1].arrived = True
    talk.session.poll()
    assert talk.replies() == []
    slow[0].arrived = True
    talk.session.poll()
    first, second, synchronized = talk.replies()
    assert not talk.session.waits
    np.testing.assert_array_equal(np.frombuffer(first.data, np.float32), np.ones(6))
    np.testing.assert_array_equal(np.frombuffer(second.data, np.float32), 2 * np.ones(6))
    assert synchronized == Answer(4, None)


def test_reads_before_a_failure_are_still_answered(talk: Talk, slow: list[Slow]) -> None:
    talk.upload(1, ONES)
    (failure,) = talk.send(Read(1, 1), call("neg", 2, 99))
    slow[0].arrived = True
    talk.session.poll()
    (data,) = talk.replies()
    assert (failure.code, data.request) == ("UnknownIdError", 1)


def test_copies_that_the_device_owes_are_bounded(talk: Talk, slow: list[Slow]) -> None:
    talk.send(call("zeros", 1, [5 << 20]))
    replies = talk.send(*[Read(n, 1) for n in range(10)])
    assert 0 < sum(d.download is not None and not d.arrived for d in slow) - len(replies) <= 4


@pytest.mark.parametrize(
    ("what", "args"),
    [
        ("nothing", []), ("memory_stats", [1]), ("memory_stats", ["cpu", True, 3]), ("memory_stats", ["cpu", None]),
        ("set_rng_state", ["cpu"]), ("set_rng_state", ["cpu", "text"]), ("trace", [1]), ("synchronize", [1]),
        ("synchronize", ["cpu", "cpu"]),
    ],
)  # fmt: skip
def test_malformed_questions_are_protocol_errors(talk: Talk, what: str, args: list[Any]) -> None:
    assert talk.ask(what, *args).code == "ProtocolError"


@pytest.mark.parametrize("what", ["memory_stats", "mem_get_info", "get_rng_state", "initial_seed", "synchronize"])
def test_questions_about_devices_that_are_not_there(talk: Talk, what: str) -> None:
    assert talk.ask(what, "cuda:5").code == "DeviceError"


def test_questions_are_answered(talk: Talk) -> None:
    talk.upload(1, ONES)
    assert talk.ask("tensor_count") == 1
    assert talk.ask("synchronize") is None
    assert talk.ask("memory_stats", "cpu")["requested_bytes.all.current"] == ONES.nbytes
    assert f"session {talk.number}" in talk.ask("memory_summary")
    assert {"segments", "device_traces"} <= set(talk.ask("memory_snapshot"))
    assert talk.ask("device_properties")["total_memory"] == talk.ask("mem_get_info")[1]
    for what in ("reset_peak", "reset_accumulated", "empty_cache"):
        assert talk.ask(what) is None


def test_seeds_and_states_of_generators(talk: Talk) -> None:
    talk.send(Seed("", 5))
    state = talk.ask("get_rng_state", "cpu")
    assert talk.ask("initial_seed", "cpu") == 5
    seed = talk.ask("seed")
    assert talk.ask("initial_seed") == seed
    talk.ask("set_rng_state", "cpu", state)
    assert talk.ask("get_rng_state", "cpu") == state
    assert fails(talk, Seed("cuda:3", 1)).code == "DeviceError"
    talk.resume()
    assert talk.send(Seed("cpu", 2**64 - 1), Seed("cpu", -(2**63)), Seed("", 1)) == []
    assert fails(talk, Seed("none", 1)).code == "ArgumentError"
    talk.resume()
    assert talk.ask("set_rng_state", "cpu", b"short").code == "ArgumentError"


def test_the_trace_tells_which_kernels_ran(talk: Talk) -> None:
    talk.send(Mode("trace", True), call("zeros", 1, [1]))
    assert any("op=zeros" in line for line in talk.ask("trace"))


def test_operations_are_counted_once_each(talk: Talk) -> None:
    before = talk.host.operations
    talk.send(call("zeros", 1, [1]), call("neg", 2, 1), Free([2]), Site(1, "", 0, ""), call("neg", 3, 2))
    assert talk.host.operations == before + 2


# -- ends -------------------------------------------------------------------------------------------------------------


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
    assert talk.send(_backward(create_graph=True, retain_graph=True)) == []


def _in_the_middle(talk: Talk) -> None:
    talk.upload(1, ONES)
    _begin(talk, 5, (100,))
    talk.chunk(5, 0, b"\0" * 40)
    talk.session.control("upload_begin", [6, "float32", [10], "cpu"])
    talk.session.control("read_begin", [1])


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
    assert host.control("memory_stats", ["cpu", talk.number])["cpu"]["allocation.all.allocated"] == 0
    talk.session.close()


def test_a_session_that_ends_by_an_error_in_flight_is_settled_later(host: Host, no_collector: None) -> None:
    talk = Talk(host)
    _second_order(talk)
    try:
        keeper = talk.session.values[1]
        raise RuntimeError("a defect")
    except RuntimeError:
        talk.session.close()
        assert talk.held() > 0
    del keeper
    host.control("devices", [])
    assert talk.held() == 0
    assert host._ending == {}


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
