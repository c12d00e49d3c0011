"""The gateway's buffers of a connection are given up with it: its reference cycles wait for garbage collections."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from server.gateway.door.receiver import READ_BYTES, BulkProtocol, Receiver
from server.gateway.observability.metrics import Metrics
from server.gateway.observability.observer import Observer
from server.gateway.observability.tracing import Tracing
from server.ipc import channel
from server.ipc.channel import AsyncChannel
from telegrad_protocol.bulk import BUFFER_BYTES
from telegrad_protocol.channels.frames import FrameReader


@pytest.fixture(autouse=True)
def _without_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def freed_by(release: Callable[[], object]) -> int:
    """How many bytes are freed by a call."""
    before = tracemalloc.get_traced_memory()[0]
    release()
    return before - tracemalloc.get_traced_memory()[0]


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_a_lost_connection_gives_its_buffers_up_in_the_middle_of_a_message(traced: None) -> None:
    protocol: Any = BulkProtocol(max_size=None)
    protocol.parser = protocol.bulk.read_exact(200_000)
    next(protocol.parser)
    stream: Any = SimpleNamespace(eof_received=None, pause_writing=None, resume_writing=None)
    stream.connection_lost = lambda error: protocol.release()
    receiver = Receiver(stream, protocol.bulk)
    assert receiver.get_buffer(0).nbytes == 200_000
    assert freed_by(lambda: receiver.connection_lost(None)) >= BUFFER_BYTES + READ_BYTES


def test_a_closed_channel_gives_its_buffer_up(traced: None) -> None:
    ours, theirs = channel.channel_pair()
    with theirs:
        loop = asyncio.new_event_loop()
        opened = AsyncChannel(ours, loop, lambda frame: None, lambda: None)
        assert freed_by(opened.close) >= 1 << 18
        loop.close()
    reader = FrameReader(theirs)
    assert freed_by(reader.close) >= 1 << 18


class Session:
    """What is shown of a session."""

    number, id, tenant = 1, "a session", "alice"


def test_no_session_is_kept_for_what_is_told_of_it_later() -> None:
    observer = Observer(Metrics(), Tracing())
    session = Session()
    observer.opened(session)
    observer.ended(session, "it was closed")
    kept = weakref.ref(session)
    del session
    assert kept() is None
