"""Data that comes to a session, whole and in chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from server.session.state import Absent
from telegrad_protocol import dtypes
from telegrad_protocol.messages import (
    CHUNK_BYTES,
)

from .driver import Talk, begin_upload, call, fails


def test_an_upload_in_chunks_is_seen_when_it_is_complete(talk: Talk, rng: np.random.Generator) -> None:
    array = rng.random((700, 500), np.float32)
    data = array.tobytes()
    assert begin_upload(talk, 1, array.shape) == []
    assert 1 not in talk.session.state.values
    assert talk.chunk(1, 0, data[:CHUNK_BYTES]) == talk.chunk(1, CHUNK_BYTES, data[CHUNK_BYTES:]) == []
    np.testing.assert_array_equal(talk.read(1), array)


@pytest.mark.parametrize("shape", [(), (0,), (0, 2**40), (5,)])
def test_uploads_of_any_shape(talk: Talk, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    begin_upload(talk, 1, shape, data=array.tobytes())
    begin_upload(talk, 2, shape)
    talk.chunk(2, 0, array.tobytes()) if array.nbytes else None
    for id in (1, 2):
        np.testing.assert_array_equal(talk.read(id), array)


@pytest.mark.parametrize(
    ("owner", "offset", "size"),
    [(1, 4, 4), (2, 0, 4), (1, 0, 44), (1, 2**63, 4), (2**64 - 1, 0, 4)],
    ids=["out of order", "of another tensor", "too long", "far behind", "of nobody"],
)
def test_a_chunk_in_the_wrong_place_ends_the_upload(talk: Talk, owner: int, offset: int, size: int) -> None:
    begin_upload(talk, 1, (10,))
    (failure,) = talk.chunk(owner, offset, b"\1" * size)
    assert failure.code == "ProtocolError"
    talk.resume()
    assert talk.read(1).code == "NotComputedError"
    talk.resume()
    assert talk.held() == 0
    assert [f.code for f in talk.chunk(1, 0, b"\0" * 40)] == ["ProtocolError"]


def test_an_upload_in_the_middle_of_another_fails_both(talk: Talk) -> None:
    begin_upload(talk, 1, (10,))
    (failure,) = begin_upload(talk, 2, (10,))
    assert failure.code == "ProtocolError"
    talk.resume()
    assert {type(v) for v in talk.session.state.values.values()} == {Absent}
    assert talk.held() == 0


@pytest.mark.parametrize("size", [0, 4, 39, 41])
def test_inline_data_of_another_size_is_refused(talk: Talk, size: int) -> None:
    (failure,) = begin_upload(talk, 1, (10,), data=b"\0" * size)
    assert failure.code == "ProtocolError"
    assert talk.held() == 0


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"shape": (2**62, 2**62)}, "ShapeError"), ({"shape": (2**44,)}, "OutOfMemoryError"),
        ({"shape": (-1,)}, "ArgumentError"), ({"shape": (1,) * 65}, "ShapeError"),
        ({"shape": (0, 2**63 - 1)}, "ShapeError"), ({"shape": (2**31, 2**31, 0)}, "ShapeError"),
        ({"dtype": 99}, "ProtocolError"), ({"dtype": -1}, "ProtocolError"), ({"device": "cuda:7"}, "DeviceError"),
        ({"device": "tpu"}, "ArgumentError"), ({"device": "meta"}, "DeviceError"),
    ],
)  # fmt: skip
def test_an_upload_of_what_cannot_be_is_refused(talk: Talk, changed: dict[str, Any], code: str) -> None:
    shape = changed.pop("shape", (2,))
    (failure,) = begin_upload(talk, 1, shape, **changed)
    assert failure.code == code
    assert talk.held() == 0


def test_bools_are_made_of_whatever_bytes_came(talk: Talk) -> None:
    begin_upload(talk, 1, (4,), dtype=dtypes.bool_.code, data=b"\0\1\2\xff")
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
