"""``set_num_threads``: each session's bound of the threads that its operations on the CPU use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from server.engine import blas_threads
from server.engine.device import threads
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.messages import Mode

from .driver import ONES, Talk, call, fails


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many threads operations were allowed, on a machine with four."""
    seen: list[int] = []
    count = threads.count

    def counted() -> int:
        seen.append(count())
        return seen[-1]

    monkeypatch.setattr(threads, "available", lambda: 4)
    monkeypatch.setattr(threads, "count", counted)
    yield seen
    threads.bound(float("inf"))
    threads.stop()


def test_each_session_has_its_own_bound(open_talk: Callable[..., Talk], counts: list[int]) -> None:
    talks = [open_talk(), open_talk()]
    for talk in talks:
        talk.upload(1, ONES)
        talk.send(call("expand", 2, 1, [1000, 700, 2, 3]), call("contiguous", 3, 2))
    talks[0].send(Mode("num_threads", 2))
    for talk, expected in ((talks[0], 2), (talks[1], 4), (talks[0], 2)):
        counts.clear()
        talk.send(call("add", 4, 3, 3))
        assert set(counts) == {expected}
        assert blas_threads.most == (2 if expected == 2 else float("inf"))
    talks[0].send(Mode("num_threads", 64))
    counts.clear()
    talks[0].send(call("add", 5, 3, 3))
    assert set(counts) == {4}, "no session gets more than the operator allows"


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "2", None])
def test_what_is_no_number_of_threads_is_refused(talk: Talk, number: Any) -> None:
    failure = fails(talk, Mode("num_threads", number))
    assert failure.code == "ProtocolError"
    assert "num_threads" in failure.message


def test_what_a_program_chooses_reaches_its_session(tg: Any, counts: list[int]) -> None:
    from telegrad._session import settings

    before = settings.snapshot()
    try:
        x = tg.ones(1 << 21, device="cpu")
        tg.set_num_threads(3)
        counts.clear()
        (x + x).sum().item()
        assert (tg.get_num_threads(), set(counts)) == (3, {3})
        with pytest.raises(ArgumentError, match="positive"):
            tg.set_num_threads(0)
    finally:
        settings.restore(before)
