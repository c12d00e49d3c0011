"""A server of real processes after a small workload: what it shows, and what it has logged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

import telegrad as tg
from telegrad.errors import LimitExceededError, OutOfMemoryError
from telegrad.export import export, save
from tests.support import plain_http

from ..end_to_end.server_process import ServerProcess
from ..transport.fault_proxy import FaultProxy
from ..transport.waiting import wait_until


class Scraped(NamedTuple):
    """What one scrape shows: kinds of metrics by name, and values by name and labels."""

    kinds: dict[str, str]
    samples: list[tuple[str, dict[str, str], float]]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the values with these labels."""
        return sum(value for one, given, value in self.samples if one == name and given.items() >= labels.items())


class Observed(NamedTuple):
    """A server after its workload."""

    server: ServerProcess
    session: str
    scraped: Scraped
    log: Path

    def lines(self, event: str, **having: Any) -> list[dict[str, Any]]:
        """The lines of the log of an event, with these members."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event and line.items() >= having.items()]


def scrape(server: ServerProcess) -> Scraped:
    """Read and parse ``/metrics``, as Prometheus does."""
    families = list(text_string_to_metric_families(server.get("/metrics")))
    samples = [(sample.name, dict(sample.labels), sample.value) for family in families for sample in family.samples]
    return Scraped({family.name: family.type for family in families}, samples)


def train(steps: int = 5) -> None:
    model = tg.nn.Linear(8, 4)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        loss = model(tg.ones(2, 8)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    loss.item()


def slow_turn() -> None:
    a = tg.ones(1200, 1200, dtype=tg.float64)
    a.sum().item()
    for _ in range(3):
        (a @ a).sum().item()


@pytest.fixture(scope="package")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    folder = tmp_path_factory.mktemp("observed")
    log = folder / "server.log"
    settings = {"SESSION_QUOTA_BYTES": "64MiB", "SLOW_SECONDS": "0.01", "INSTRUCTION_SECONDS": "2", "LOG_LEVEL": "INFO"}
    variables = {f"TELEGRAD_{name}": value for name, value in settings.items()} | {"TELEGRAD_PROGRAMS": str(folder)}
    with (
        ServerProcess(stderr=str(log), TELEGRAD_OPERATION_WORK="inf", **variables) as server,
        FaultProxy(server.port) as proxy,
    ):
        with tg.connect(f"http://127.0.0.1:{proxy.port}") as session:
            train()
            with pytest.raises(tg.errors.IndexOutOfRangeError):
                tg.ones(3)[tg.tensor([7])].sum().item()
            with pytest.raises(OutOfMemoryError):
                tg.ones(64 << 20).sum().item()
            slow_turn()
            proxy.cut_now()
            train(1)
            with pytest.raises(LimitExceededError):
                tg.nn.functional.avg_pool1d(tg.ones(1, 1, 2_000_000), 1_000_000, stride=1).sum().item()
            session.end()
            plain_http.get(f"{server.url}/v1/sessions/none/tensors/1")
        with tg.connect(server.url) as session:
            save(export(tg.nn.Linear(2, 1), (tg.ones(1, 2),)), folder / "line.safetensors")
            called = plain_http.post(f"{server.url}/v1/programs/line", json={"inputs": {"input": [[1, 2]]}})
            assert called.status_code == 200, called.text
            train()
            wait_until(lambda: scrape(server).value("telegrad_failures_total", source="stream") >= 3, "all was noticed")
            yield Observed(server, session.id, scrape(server), log)
