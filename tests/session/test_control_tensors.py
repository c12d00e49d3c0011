"""Tensors and devices that the gateway asks a session and a host for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from server.ipc import requests as verbs
from server.worker.host import Host
from telegrad_protocol.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    NotComputedError,
    OutOfMemoryError,
    ProtocolError,
    ShapeError,
    UnknownIdError,
)
from telegrad_protocol.messages import CHUNK_BYTES

from .driver import Talk, call
from .requests import X, ask, new, op, run, t


def test_describe_and_free(talk: Talk) -> None:
    run(talk, new(1, X), op("t", t(1), out=2))
    one, two = ask(talk, verbs.Describe((1, 2)), list[verbs.TensorInfo])
    assert (one.shape, two.shape, two.strides) == ((2, 3), (3, 2), (1, 3))
    with pytest.raises(UnknownIdError):
        ask(talk, verbs.Free((1, 3)))
    assert ask(talk, verbs.Free((1, 2))) is None
    assert talk.held() == 0


def test_a_result_that_the_stream_never_computed_says_so(talk: Talk) -> None:
    talk.send(call("neg", 5, 1))
    with pytest.raises(NotComputedError, match="neg failed"):
        ask(talk, verbs.Describe((5,)))
    assert run(talk, new(1, X)).id == 1


def _begin(talk: Talk, id: int, shape: tuple[int, ...], dtype: str = "float32", device: str = "") -> int:
    return int(ask(talk, verbs.UploadBegin(id, dtype, shape, device), int))


def test_an_upload_is_a_tensor_when_it_ends(talk: Talk, rng: np.random.Generator) -> None:
    array = rng.random((600, 500))
    data = array.tobytes()
    number = _begin(talk, 1, array.shape, "float64")
    held = talk.held()
    for offset in range(0, len(data), CHUNK_BYTES):
        ask(talk, verbs.UploadChunk(number, offset, data[offset : offset + CHUNK_BYTES]))
    assert 1 not in talk.session.state.values
    assert ask(talk, verbs.UploadEnd(number, True), verbs.TensorInfo).shape == (600, 500)
    assert talk.held() == held
    chunks = []
    info = ask(talk, verbs.ReadBegin(1), verbs.ReadInfo)
    for offset in range(0, info.nbytes, CHUNK_BYTES):
        chunks.append(ask(talk, verbs.ReadChunk(info.read, offset, min(CHUNK_BYTES, info.nbytes - offset)), bytes))
    assert b"".join(chunks) == data


def test_an_upload_that_is_dropped_leaves_nothing(talk: Talk) -> None:
    number = _begin(talk, 1, (100,))
    assert talk.held() > 0
    assert ask(talk, verbs.UploadEnd(number, False)) is None
    assert ask(talk, verbs.UploadEnd(number, False)) is None
    assert talk.held() == 0


def test_an_upload_that_is_short_leaves_nothing(talk: Talk) -> None:
    number = _begin(talk, 1, (100,))
    with pytest.raises(ProtocolError, match="400 bytes is 400 short"):
        ask(talk, verbs.UploadEnd(number, True))
    assert talk.held() == 0
    with pytest.raises(UnknownIdError):
        ask(talk, verbs.UploadEnd(number, True))


@pytest.mark.parametrize(
    ("upload", "offset", "size", "error"),
    [(1, 4, 4, ProtocolError), (1, 0, 404, ProtocolError), (1, -4, 4, ProtocolError), (9, 0, 4, UnknownIdError),
     (1, 0, CHUNK_BYTES + 1, ProtocolError)],
)  # fmt: skip
def test_chunks_in_the_wrong_place_are_refused(talk: Talk, upload: int, offset: int, size: int, error: Any) -> None:
    number = _begin(talk, 1, (100,))
    with pytest.raises(error):
        ask(talk, verbs.UploadChunk(number + upload - 1, offset, b"\0" * size))
    ask(talk, verbs.UploadChunk(number, 0, b"\0" * 400))
    assert ask(talk, verbs.UploadEnd(number, True), verbs.TensorInfo).id == 1


def test_memory_is_asked_for_before_anything_is_sent(open_talk: Callable[..., Talk]) -> None:
    talk = open_talk(quota_bytes=1 << 20)
    for shape, error in (((1 << 20,), OutOfMemoryError), ((2**62,), ShapeError), ((-1,), ArgumentError)):
        with pytest.raises(error):
            _begin(talk, 1, shape)
    with pytest.raises(DTypeError):
        _begin(talk, 1, (1,), "quaternion")
    with pytest.raises(DeviceError):
        _begin(talk, 1, (1,), device="cuda:3")


def test_a_read_holds_the_elements_as_they_were(talk: Talk) -> None:
    run(talk, new(1, X))
    info = ask(talk, verbs.ReadBegin(1), verbs.ReadInfo)
    run(talk, op("add_", t(1), 1))
    ask(talk, verbs.Free((1,)))
    assert ask(talk, verbs.ReadChunk(info.read, 4, 8), bytes) == X.tobytes()[4:12]
    for offset, size in ((0, 25), (-1, 4), (24, 1), (0, -1), (0, CHUNK_BYTES + 1)):
        with pytest.raises(ArgumentError):
            ask(talk, verbs.ReadChunk(info.read, offset, size))
    ask(talk, verbs.ReadEnd(info.read))
    ask(talk, verbs.ReadEnd(info.read))
    with pytest.raises(UnknownIdError):
        ask(talk, verbs.ReadChunk(info.read, 0, 1))


def test_empty_tensors_are_read_and_sent(talk: Talk) -> None:
    number = _begin(talk, 1, (0, 3))
    assert ask(talk, verbs.UploadEnd(number, True), verbs.TensorInfo).shape == (0, 3)
    assert ask(talk, verbs.ReadBegin(1), verbs.ReadInfo).nbytes == 0


def test_devices_say_what_they_are(host: Host) -> None:
    (cpu,) = msgspec.convert(host.control(None, "devices", []), list[verbs.DeviceInfo])
    assert (cpu.device, cpu.type, cpu.index, cpu.capability) == ("cpu", "cpu", None, None)
    assert 0 < cpu.free_memory <= cpu.total_memory
    assert cpu.allocated_memory <= cpu.reserved_memory


def test_memory_of_a_failing_session_is_reported(talk: Talk) -> None:
    run(talk, new(1, X))
    talk.send(call("mm", 2, 1, 1))
    assert talk.session.state.failure
    stats = talk.host.control(None, "memory_stats", ["cpu", talk.number])["cpu"]
    assert stats["requested_bytes.all.current"] == X.nbytes
    text = talk.host.control(None, "memory_summary", ["", talk.number])
    assert f"device cpu, session {talk.number}" in text
    everything = talk.host.control(None, "memory_stats", [])["cpu"]
    assert everything["allocated_bytes.all.current"] >= stats["allocated_bytes.all.current"] > 0
    segments = talk.host.control(None, "memory_snapshot", ["", talk.number])["segments"]
    assert any(segment["active_size"] for segment in segments)
    msgspec.json.encode(talk.host.control(None, "memory_snapshot", []))


@pytest.mark.parametrize("verb", ["memory_summary", "memory_stats", "memory_snapshot"])
def test_memory_of_devices_that_are_not_there(host: Host, verb: str) -> None:
    with pytest.raises(DeviceError):
        host.control(None, verb, ["cuda:4", None])


def test_requests_that_are_unknown_or_malformed(talk: Talk) -> None:
    for whom, verb, args in (
        (talk.session, "explode", []), (None, "run_ops", [0, []]), (talk.session, "devices", []),
        (talk.session, "describe", ["x"]), (talk.session, "run_ops", [0, [["op"]]]), (None, "memory_stats", [1]),
    ):  # fmt: skip
        with pytest.raises(ProtocolError):
            talk.host.control(whom, verb, args)


def test_a_quota_is_a_number_of_bytes(host: Host) -> None:
    for quota in ("1GiB", -1, 1.5, True):
        with pytest.raises(ArgumentError):
            host.open(10**6, {"quota_bytes": quota})
    assert 10**6 not in host.sessions
