"""Devices that capture CUDA graphs in tests, simulated and real, and a small model to train on them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from server.engine.device.current_device import device_count
from server.worker.host import Host

from ..support.captures import simulate_captures
from ..support.node import SimulatedGpu, SimulatedHost


class NoState:
    """Generators have no memory on a simulated GPU: what draws from them cannot be captured there."""

    pointer = 0


@functools.cache
def _host(kind: str) -> Any:
    if kind == "real":
        return Host(["cuda:0"])
    if device_count():
        pytest.skip("a process does not have simulated and real GPUs; the real ones are tested")
    return SimulatedHost()


@pytest.fixture(params=["simulated", "capturing", pytest.param("real", marks=pytest.mark.gpu)])
def tg(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, seed: int) -> Iterator[Any]:
    """The client on a session with a GPU, which leaves no memory behind."""
    import telegrad

    if request.param == "capturing":
        simulate_captures(monkeypatch)
        monkeypatch.setattr(SimulatedGpu, "random_state", lambda self: NoState())
    host = _host("real" if request.param == "real" else "simulated")
    for backend in host.backends.values():
        backend.allocator.empty_cache()  # what a simulated capture copies
    with telegrad.connect(in_process=host) as connection:
        telegrad.manual_seed(seed)
        number = next(n for n, s in host.sessions.items() if s is connection.session.transport._session)
        yield telegrad
    for device, backend in host.backends.items():
        assert backend.allocator.allocated_bytes(number) == 0, f"the session left memory behind on {device}"
        left = [pool.id for pool in backend.allocator.heap.private.values() if pool.owner == number and pool.uses]
        assert not left, f"the session left pools behind on {device}"


def model_of(tg: Any, seed: int) -> tuple[Any, Any]:
    tg.manual_seed(seed)
    nn = tg.nn
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.GELU(), nn.Linear(16, 4)).cuda()
    return model, tg.optim.AdamW(model.parameters(), lr=1e-2, capturable=True)


def step_of(tg: Any, model: Any, optimizer: Any, x: Any, t: Any) -> Any:
    optimizer.zero_grad(set_to_none=True)
    loss = tg.nn.functional.cross_entropy(model(x), t)
    loss.backward()
    optimizer.step()
    return loss


def are_same(model: Any, other: Any) -> bool:
    mine, theirs = model.state_dict(), other.state_dict()
    pairs = [(mine[name].numpy(force=True), theirs[name].numpy(force=True)) for name in mine]
    return all([np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs])
