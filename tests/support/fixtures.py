"""A session with two GPUs: simulated ones in this process, and real ones where a machine has two."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest


@functools.cache
def _real_gpus() -> int:
    if find_spec("cupy") is None:
        return 0
    import cupy  # it takes a second

    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


@functools.cache
def _host(kind: str) -> Any:
    """The process's one host of a kind; what is worked out for a device is kept for the process."""
    from server.worker.host import Host

    from .node import SimulatedHost

    if kind == "simulated":
        if _real_gpus():
            pytest.skip("a process does not have simulated and real GPUs; the real ones are tested")
        return SimulatedHost()
    if _real_gpus() < 2:
        pytest.skip(f"needs two GPUs, and this machine has {_real_gpus()}")
    return Host(["cuda:0", "cuda:1"])


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
