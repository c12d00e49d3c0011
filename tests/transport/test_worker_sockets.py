"""The sockets that a worker's loop waits for: each with its owner, for as long as it is watched."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from selectors import EVENT_READ, EVENT_WRITE

import pytest

from server.worker.sockets import Sockets


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    made = Sockets()
    yield made
    made.close()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    yield here, there
    here.close()
    there.close()


Ends = tuple[socket.socket, socket.socket]


def test_what_happens_is_told_with_the_owner(sockets: Sockets, ends: Ends) -> None:
    here, there = ends
    sockets.watch(here, EVENT_READ, "owner")
    assert sockets.wait(0) == []
    there.send(b"x")
    assert sockets.wait(None) == [("owner", here.fileno(), EVENT_READ)]
    sockets.watch(here, EVENT_READ | EVENT_WRITE, "owner")
    assert sockets.wait(None) == [("owner", here.fileno(), EVENT_READ | EVENT_WRITE)]
    sockets.watch(here, EVENT_WRITE, "owner")
    assert sockets.wait(None) == [("owner", here.fileno(), EVENT_WRITE)]


def test_the_end_of_a_connection_is_for_readers_and_writers(sockets: Sockets, ends: Ends) -> None:
    here, there = ends
    sockets.watch(here, EVENT_READ, None)
    there.close()
    ((_, _, mask),) = sockets.wait(None)
    assert mask & EVENT_READ


def test_what_is_watched_no_more_is_told_of_no_more(sockets: Sockets, ends: Ends) -> None:
    here, there = ends
    there.send(b"x")
    sockets.watch(here, EVENT_READ, 1)
    sockets.watch(here, 0, 1)
    sockets.watch(here, 0, 1)
    assert sockets.wait(0) == []
    sockets.watch(here, EVENT_READ, 2)
    assert sockets.wait(0) == [(2, here.fileno(), EVENT_READ)]


def test_a_short_wait_ends_with_what_happens(sockets: Sockets, ends: Ends) -> None:
    here, there = ends
    sockets.watch(here, EVENT_READ, here)
    sockets.wait_shortly(1e-6)
    there.send(b"x")
    sockets.wait_shortly(1e9)
    assert len(sockets.wait(0)) == 1
