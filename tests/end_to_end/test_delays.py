"""A program that reads nothing is not held up by a slow network, however little work may be ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import telegrad

from ..transport.fault_proxy import FaultProxy
from .server_process import ServerProcess

ROUND_TRIP = 0.3
OPERATIONS = 500


@pytest.fixture
def far_tg(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The client library behind a delay, and with less work ahead than is done in one round trip."""
    monkeypatch.setenv("TELEGRAD_MAX_AHEAD_SECONDS", str(ROUND_TRIP / 2))
    with FaultProxy(server.port, delay=ROUND_TRIP / 2) as proxy, telegrad.connect(f"http://127.0.0.1:{proxy.port}"):
        yield telegrad


def test_what_is_on_its_way_is_not_taken_for_work(far_tg: Any) -> None:
    """If it were, two operations would be ahead at a time, each couple in a frame of its own."""
    x = far_tg.zeros(4)
    for _ in range(100):
        x = x + 1
    x.tolist()
    before = far_tg.wire_stats().frames
    for _ in range(OPERATIONS):
        x = x + 1
    assert far_tg.wire_stats().frames - before < OPERATIONS / 6
    assert x.tolist() == [600.0] * 4
    assert far_tg.wire_stats().max_ahead > 32


def test_the_round_trip_is_known_from_the_handshake_and_then_from_answers(far_tg: Any) -> None:
    session = far_tg.tensor(1.0)._session
    session.flush()
    at_first = session.ahead.pace.delay
    assert at_first == session.transport.handshake_seconds >= ROUND_TRIP
    for _ in range(3):
        far_tg.cuda.synchronize()
    assert ROUND_TRIP <= session.ahead.pace.delay <= at_first
