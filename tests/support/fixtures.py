"""A session with two GPUs: simulated ones in this process, and real ones where a machine has two."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from server.engine.device.current_device import device_count

from ..gpus import NAMES


@functools.cache
def _host(kind: str) -> Any:
    """The process's one host of a kind; what is worked out for a device is kept for the process."""
    from server.worker.host import Host

    from .node import SimulatedHost

    if kind == "simulated":
        if device_count():
            pytest.skip("a process does not have simulated and real GPUs; the real ones are tested")
        return SimulatedHost()
    if device_count() < 2:
        pytest.skip(f"needs two GPUs, and this machine has {device_count()}")
    return Host(NAMES)


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.gpu)])
def node_host(request: pytest.FixtureRequest) -> Any:
    """A host with two GPUs."""
    return _host(request.param)


@pytest.fixture
def node(node_host: Any) -> Iterator[Any]:
    """The client library on a session of its own on that host; the first GPU is current before and after."""
    import telegrad

    with telegrad.connect(in_process=node_host) as connection:
        yield telegrad
        telegrad.cuda.set_device(0)
        number = next(n for n, s in node_host.sessions.items() if s is connection.session.transport._session)
    leftover = {str(d): b.allocator.allocated_bytes(number) for d, b in node_host.backends.items()}
    assert not any(leftover.values()), f"the session left {leftover} bytes behind"
