"""What one instruction may ask for: results and temporaries far beyond the session's quota are refused unmade."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from telegrad_protocol.messages import Failure
from telegrad_protocol.ops.splitting import MOST_RESULTS

from .driver import Talk, call

QUOTA = 1 << 22
MUCH = 16 * QUOTA
NUMBER, MANY, LARGE, LARGE_MANY, CROWD, COLUMN, ROW, MASK, WIDE = range(1, 10)


@pytest.fixture
def held(open_talk: Callable[..., Talk]) -> Talk:
    """A session with small tensors that show or name a lot."""
    talk = open_talk(quota_bytes=QUOTA)
    talk.upload(NUMBER, np.float32(2.0))
    talk.upload(LARGE, np.array([2**40]))
    talk.send(call("expand", MANY, NUMBER, [2**30]), call("expand", LARGE_MANY, LARGE, [2**30]))
    talk.upload(CROWD, np.ones((1,) * 40 + (1 << 16,), np.bool_))
    talk.upload(COLUMN, np.zeros((1 << 15, 1), np.int64))
    talk.upload(ROW, np.zeros((1, 1 << 15), np.int64))
    talk.upload(MASK, np.ones(1 << 15, np.bool_))
    talk.upload(WIDE, np.ones((1, 1 << 15), np.float32))
    return talk


@contextmanager
def _little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MUCH
    finally:
        tracemalloc.stop()


def _refusal(talk: Talk, name: str, *args: Any) -> str:
    """The kind of error that a call ends with, without much memory having been touched."""
    with _little_memory():
        replies = talk.send(call(name, 50, *args))
    assert replies and isinstance(replies[0], Failure), f"{name} was not refused"
    talk.resume()
    return replies[0].code


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("zeros", ([2**30],)), ("eye", (2**16,)), ("arange", (2**30,)), ("repeat", (NUMBER, [2**30])),
        ("tile", (NUMBER, [2**30])), ("repeat_interleave", (NUMBER, 2**30)), ("one_hot", (COLUMN, 2**20)),
        ("diag_embed", (WIDE, 2**20)), ("constant_pad_nd", (WIDE, [2**20, 2**20, 2**10, 2**10])),
        ("randperm", (2**30,)),
        ("multinomial", (WIDE, 2**20, True)), ("add", (COLUMN, ROW)), ("kron", (COLUMN, ROW)),
    ],
)  # fmt: skip
def test_results_beyond_the_quota_are_refused_before_they_are_made(
    held: Talk, name: str, args: tuple[Any, ...]
) -> None:
    assert _refusal(held, name, *args) == "OutOfMemoryError"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("bincount", (LARGE,)), ("bincount", (LARGE, None, 2**50)), ("one_hot", (LARGE, -1)), ("nonzero", (CROWD,)),
        ("repeat_interleave.Tensor", (LARGE, LARGE)), ("masked_select", (COLUMN, MASK)),
        ("index", (COLUMN, [MASK, COLUMN])), ("index_put", (WIDE, [COLUMN, ROW], [1.0], True)),
    ],
)  # fmt: skip
def test_what_data_makes_large_is_refused_before_it_is_made(held: Talk, name: str, args: tuple[Any, ...]) -> None:
    assert _refusal(held, name, *args) == "OutOfMemoryError"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("sum", (MANY,)), ("mean", (MANY,)), ("var", (MANY,)), ("max", (MANY,)), ("sort", (MANY,)), ("median", (MANY,)),
        ("nonzero", (MANY,)), ("dot", (MANY, MANY)), ("take", (NUMBER, LARGE_MANY)), ("bincount", (LARGE_MANY,)),
        ("norm", (MANY,)), ("_total_norm", ([MANY], 2.0)),
    ],
)  # fmt: skip
def test_work_on_an_element_shown_too_often_is_refused(held: Talk, name: str, args: tuple[Any, ...]) -> None:
    assert _refusal(held, name, *args) == "OutOfMemoryError"


def test_an_element_may_be_shown_as_often_as_there_is_room_for(held: Talk) -> None:
    held.send(call("expand", 50, NUMBER, [QUOTA // 4]))
    assert held.send(call("sum", 51, 50)) == []
    assert held.read(51) == QUOTA // 2


@pytest.mark.parametrize(
    ("name", "args"),
    [("unbind", (MANY,)), ("split", (MANY, 1)), ("chunk", (MANY, 2**30)), ("tensor_split", (MANY, 2**30))],
)
def test_more_views_than_can_be_described_are_refused(held: Talk, name: str, args: tuple[Any, ...]) -> None:
    assert _refusal(held, name, *args) == "ArgumentError"


def test_many_views_are_possible(held: Talk) -> None:
    held.send(call("expand", 50, NUMBER, [1 << 12]))
    assert MOST_RESULTS > 1 << 12
    assert held.send(call("unbind", tuple(range(100, 100 + (1 << 12))), 50)) == []
    assert held.read(100) == 2.0


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("diff", (2**62,)),
        ("tril", (2**62,)),
        (
            "round",
            (),
        ),
    ],
)
def test_huge_counts_take_no_time(held: Talk, name: str, more: tuple[int, ...]) -> None:
    arguments = {"decimals": 2**62} if name == "round" else {}
    with _little_memory():
        assert held.send(call(name, 50, WIDE, *more, **arguments)) == []
