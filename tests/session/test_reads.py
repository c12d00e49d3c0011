"""What a session is asked for: elements, which the device may still owe, and facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from server.worker.host import Host
from telegrad_protocol import wire
from telegrad_protocol.messages import (
    Answer,
    Free,
    Mode,
    Query,
    Read,
    Seed,
    Site,
)
from telegrad_protocol.meta import CPU

from .driver import ONES, Talk, call, fails


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
        self.looks = 0
        self.on_look: Callable[[Slow], None] = lambda slow: None

    def is_ready(self) -> bool:
        self.looks += 1
        self.on_look(self)
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
    monkeypatch.setattr(backend, "host_view", lambda value: None)
    monkeypatch.setattr(backend, "bytes_at_once", lambda value: None)
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


def _arrive_at(slow: Slow, look: int) -> None:
    slow.arrived = slow.looks >= look


def test_who_lingers_has_the_reply_as_soon_as_it_is_ready(talk: Talk, slow: list[Slow]) -> None:
    talk.upload(1, ONES)
    assert talk.send(Read(1, 1), Read(2, 1)) == []
    slow[0].on_look = lambda one: _arrive_at(one, 5)
    talk.session.linger(1e9)
    (answer,) = talk.replies()
    assert (answer.request, slow[0].looks, talk.session.waits) == (1, 6, True)


def test_who_lingers_goes_when_time_is_up_or_the_turn_is_to_end(talk: Talk, slow: list[Slow]) -> None:
    talk.upload(1, ONES)
    talk.send(Read(1, 1))
    before = slow[0].looks
    talk.session.linger(0.0)
    assert slow[0].looks == before + 1
    slow[0].on_look = lambda one: talk.session.pause() if one.looks == before + 9 else None
    talk.session.linger(1e9)
    assert slow[0].looks == before + 9 and talk.replies() == []
    talk.session.unpause()
    slow[0].arrived = True
    talk.session.linger(0.0)
    assert [answer.request for answer in talk.replies()] == [1]


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
    before = talk.host.operations.total()
    talk.send(call("zeros", 1, [1]), call("neg", 2, 1), Free([2]), Site(1, "", 0, ""), call("neg", 3, 2))
    assert talk.host.operations.total() == before + 2
