"""A device that is lost for good: its worker ends, every session is told why, and a new worker serves."""

from __future__ import annotations

from typing import Any

import pytest

import telegrad as tg
from telegrad.errors import CommunicationError, WorkerCrashedError
from tests.support import plain_http
from tests.transport.conftest import GatewayProcess
from tests.transport.waiting import wait_until

from .breaking import FATAL_BYTES

HOSTS = [
    pytest.param("tests.end_to_end.breaking:BreakingHost", id="simulated"),
    pytest.param("tests.end_to_end.breaking:BreakingCudaHost", id="gpu", marks=pytest.mark.gpu),
]
REASON = r"gave up: device (cpu|cuda:0) failed for good \(.*illegal memory access.*\); the session's tensors are lost"


@pytest.mark.parametrize("host", HOSTS)
def test_every_session_is_told_why_and_a_new_worker_serves(host: str) -> None:
    gpu = {"STUB_GPU": "1"} if "Cuda" in host else {}
    with GatewayProcess(STUB_HOST=host, STUB_LEASE="20", **gpu) as gateway:
        first, second = tg.connect(gateway.url), tg.connect(gateway.url)
        second.use()
        bystander = tg.ones(3)
        assert bystander.sum().item() == 3
        first.use()
        with pytest.raises(WorkerCrashedError, match=REASON):
            tg.empty(FATAL_BYTES, dtype=tg.uint8).sum().item()
        second.use()
        with pytest.raises(WorkerCrashedError, match=REASON):
            wait_until(lambda: bystander.sum().item() is None, "the second session is told")
        for connection in (first, second):
            connection.disconnect()
        opened: list[Any] = []
        wait_until(lambda: opened.append(_connect(gateway.url)) or opened[-1] is not None, "a new worker is there")
        assert tg.ones(3).tolist() == [1.0] * 3
        opened[-1].disconnect()
        metrics = plain_http.get(f"{gateway.url}/metrics").text
        assert 'telegrad_worker_restarts_total{worker="0"} 1.0' in metrics


def _connect(url: str) -> Any:
    try:
        return tg.connect(url)
    except CommunicationError:
        return None
