"""Captured graphs on the wire: what is no graph is refused, and interrupts and failures leave none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from server.session.failures import begin_interrupt
from server.worker.host import Host
from telegrad_protocol import messages
from telegrad_protocol.errors import ArgumentError, CaptureError, NotSupportedError, ProtocolError, TelegradError

from .driver import F32, Talk, call, fails
from .queued import GPU, QueuedBackend, queued_host

BEGIN, END = messages.BeginCapture(50, 7, GPU.name, (1, 1)), messages.EndCapture(50, 7, True)


@pytest.fixture
def talk() -> Iterator[Talk]:
    """A session with tensor number 1 on a simulated GPU, which leaves no memory and no pool behind."""
    host, backend = queued_host()
    made = Talk(host)
    made.send(messages.Upload(1, 7, F32, (2,), GPU.name, np.float32([1, 2]).tobytes()))
    yield made
    _close(made, backend)


def _close(talk: Talk, backend: QueuedBackend) -> None:
    talk.session.close()
    assert backend.allocator.allocated_bytes(talk.number) == 0
    assert not [pool for pool in backend.allocator.heap.private.values() if pool.owner == talk.number and pool.uses]


def _add() -> messages.Call:
    return call("add_", 1, 1, [10])


def _refused(talk: Talk, error: type[TelegradError], *instructions: Any) -> None:
    assert fails(talk, *instructions).code == error.__name__
    talk.resume()


def _now(talk: Talk) -> list[float]:
    return talk.read(1).tolist()


def test_a_graph_is_captured_replayed_and_freed(talk: Talk) -> None:
    talk.send(BEGIN, _add(), END)
    assert _now(talk) == [1, 2]
    talk.send(messages.ReplayGraph(50, 7), messages.ReplayGraph(50, 7))
    assert _now(talk) == [21, 22]
    _refused(talk, ProtocolError, BEGIN)
    talk.send(messages.Free([50]))
    _refused(talk, CaptureError, messages.ReplayGraph(50, 7))


def test_what_makes_no_sense_is_refused(talk: Talk) -> None:
    _refused(talk, CaptureError, END)
    _refused(talk, CaptureError, messages.ReplayGraph(50, 7))
    _refused(talk, NotSupportedError, messages.BeginCapture(50, 7, "cpu", (1, 1)))
    _refused(talk, ArgumentError, messages.BeginCapture(50, 7, GPU.name, (0, 1 << 40)))
    talk.send(messages.EndCapture(50, 7, False))
    talk.send(BEGIN)
    _refused(talk, CaptureError, messages.BeginCapture(51, 7, GPU.name, (1, 1)))
    _refused(talk, CaptureError, messages.EndCapture(51, 7, True))
    _refused(talk, CaptureError, END)
    assert _now(talk) == [1, 2]


def test_an_interrupt_leaves_no_graph(talk: Talk) -> None:
    talk.send(BEGIN, _add())
    begin_interrupt(talk.session.state, 1)
    talk.send(_add(), messages.Interrupt(1))
    _refused(talk, CaptureError, END)
    _refused(talk, CaptureError, messages.ReplayGraph(50, 7))
    assert _now(talk) == [1, 2]


def test_a_client_that_leaves_in_a_capture_leaves_nothing(talk: Talk) -> None:
    talk.send(BEGIN, _add(), END, messages.BeginCapture(51, 7, GPU.name, (1, 1)), _add(), messages.Detach())
    assert talk.session.state.capture is None and not talk.session.state.graphs
    talk.send(messages.Upload(1, 7, F32, (2,), GPU.name, np.float32([3, 4]).tobytes()))
    assert _now(talk) == [3, 4]


def test_a_session_that_is_closed_in_a_capture_gives_its_memory_back() -> None:
    host, backend = queued_host()
    talk = Talk(host)
    talk.send(messages.Upload(1, 7, F32, (2,), GPU.name, bytes(8)), BEGIN, _add())
    other = Talk(Host(["cpu"]))  # whose turn it was last
    other.send(messages.Upload(1, 7, F32, (2,), "cpu", bytes(8)))
    _close(talk, backend)
    other.session.close()
