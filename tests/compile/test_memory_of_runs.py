"""The memory that calls of a compiled training step take: no call takes more than one without ``compile``."""

from __future__ import annotations

from typing import Any

import telegrad as tg
from server.worker.host import Host

_CALLS = 8


def _step(model: Any, optimizer: Any, x: Any) -> Any:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def _peaks(is_compiled: bool) -> list[int]:
    """The most bytes that are allocated in each call, besides what is when the first one begins."""
    host = Host(["cpu"])
    with tg.connect(in_process=host):
        nn = tg.nn
        model = nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 256))
        optimizer = tg.optim.AdamW(model.parameters(), lr=1e-3)
        x = tg.rand(4, 256)
        step = tg.compile(_step) if is_compiled else _step
        x.sum().item()
        (allocator,) = {id(backend): backend.allocator for backend in host.backends.values()}.values()
        before, peaks = allocator.memory_stats()["allocated_bytes.all.current"], []
        for _ in range(_CALLS):
            allocator.reset_peak()
            step(model, optimizer, x).item()
            peaks.append(allocator.memory_stats()["allocated_bytes.all.peak"] - before)
    return peaks


def test_a_recorded_run_holds_no_gradients_that_it_drops() -> None:
    """All parameters' gradients would be held besides, while a run is written down."""
    eager, compiled = _peaks(False), _peaks(True)
    assert max(compiled) <= max(eager) + (64 << 10), f"{compiled}, without compile {eager}"
