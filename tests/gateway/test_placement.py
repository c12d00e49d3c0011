"""Which worker a session gets: of those that have what it asks for, the least loaded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import httpx
import psutil
import pytest

from server.gateway.device_groups import DeviceGroup
from server.gateway.node import Node
from server.gateway.placement import SESSION_LOAD, Demand
from server.gateway.warmup import Warming
from telegrad_protocol.errors import DeviceError, WorkerCrashedError

from .engine import CAPACITY
from .registry import FakeRegistry, FakeWorker
from .test_serving import Running, server, until

PAIR = DeviceGroup(("cuda:0", "cuda:1", "cpu"), ("GPU-0", "GPU-1"))
FIRST = DeviceGroup(("cuda:2", "cpu"), ("GPU-2",))
SECOND = DeviceGroup(("cuda:3", "cpu"), ("GPU-3",))
HOST = DeviceGroup(("cpu",))


def node_of(*groups: DeviceGroup) -> tuple[Any, list[FakeWorker]]:
    """A node whose workers are no processes."""
    node: Any = Node(groups)
    node.pool.running = FakeRegistry(*groups).workers
    return node, node.pool.running


def place(node: Any, gpus: int | None = None, loads: Mapping[int, float] | None = None, wait: float = 0.0) -> int:
    chosen = asyncio.run(node.place(Demand(gpus), lambda: loads or {}, wait))
    return int(chosen.number)


@pytest.mark.parametrize(("gpus", "number"), [(None, 1), (1, 1), (2, 0), (0, 2)])
def test_a_session_gets_the_smallest_worker_that_has_what_it_asks_for(gpus: int | None, number: int) -> None:
    node, _ = node_of(PAIR, FIRST, HOST)
    assert place(node, gpus, {number: 100.0}) == number


@pytest.mark.parametrize(
    ("groups", "gpus", "text"),
    [
        ((PAIR, FIRST), 3, "no worker of this server has 3 GPUs; it has worker 0: cuda:0, cuda:1, cpu; worker 1: cuda"),
        ((HOST,), 1, "no worker of this server has 1 GPU; it has worker 0: cpu"),
    ],
)
def test_what_no_worker_ever_has_is_refused(groups: tuple[DeviceGroup, ...], gpus: int, text: str) -> None:
    node, workers = node_of(*groups)
    workers[0].alive = False
    with pytest.raises(DeviceError, match=text):
        place(node, gpus, wait=1000.0)


def test_a_server_without_gpus_places_who_asks_for_none_on_its_cpu() -> None:
    assert place(node_of(HOST)[0]) == place(node_of(HOST)[0], gpus=0) == 0


def test_work_counts_for_more_than_sessions_that_do_nothing() -> None:
    node, _ = node_of(FIRST, SECOND)
    assert place(node, loads={0: 3 * SESSION_LOAD, 1: SESSION_LOAD + 1}) == 0
    assert place(node, loads={0: 6 * SESSION_LOAD, 1: SESSION_LOAD + 1}) == 1


def test_of_equally_loaded_workers_the_one_with_more_memory_is_chosen() -> None:
    node, (first, second) = node_of(FIRST, SECOND)
    loads = {0: 1.25, 1: 1.25}
    assert place(node, loads=loads) == 0
    first.host.free_memory = CAPACITY // 2
    assert place(node, loads=loads) == 1
    second.host.free_memory = CAPACITY // 4
    assert place(node, loads=loads) == 0


def test_a_worker_without_memory_comes_last() -> None:
    node, (first, _) = node_of(FIRST, SECOND)
    first.host.free_memory = CAPACITY // 20
    assert place(node, loads={1: 9.0}) == 1


def test_a_worker_that_does_not_answer_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.gateway.node.ANSWER_SECONDS", 0.01)
    node, (first, second) = node_of(FIRST, SECOND)
    first.hangs = True
    assert place(node, loads={1: 9.0}) == 1
    second.hangs = True
    assert place(node, loads={1: 9.0}) == 0


def test_while_one_worker_is_restarted_another_is_chosen_that_fits() -> None:
    node, (pair, first, _) = node_of(PAIR, FIRST, HOST)
    first.alive = False
    assert place(node, gpus=1) == place(node) == 0
    assert place(node, gpus=0) == 2
    pair.alive = False
    with pytest.raises(WorkerCrashedError, match="cuda:0, cuda:1, cpu; cuda:2, cpu is being started"):
        place(node)


def test_a_session_waits_for_the_worker_that_fits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    node, (pair, _) = node_of(PAIR, FIRST)
    pair.alive = False

    async def place_and_restart() -> Any:
        placing = asyncio.create_task(node.place(Demand(2), dict, 1000.0))
        await asyncio.sleep(0)
        assert not placing.done()
        pair.alive = True
        return await placing

    assert asyncio.run(place_and_restart()) is pair


class Compiled(Warming):
    """Notes for which architectures kernels were to be compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[str]] = []

    def start(self, architectures: Iterable[str]) -> None:
        self.asked.append(sorted(set(architectures)))


def test_kernels_are_compiled_once_for_all_workers_of_an_architecture() -> None:
    compiled = Compiled()
    node: Any = Node([PAIR, FIRST, SECOND, HOST], warming=compiled)
    node.pool.running = FakeRegistry(PAIR, FIRST, SECOND, HOST).workers
    for worker, capability in zip(node.workers, ((9, 0), (9, 0), (8, 0)), strict=False):
        worker.host.capability = capability
    asyncio.run(node.start())
    assert compiled.asked == [["sm_80", "sm_90"]]


def test_a_server_starts_with_the_workers_that_can_be_started() -> None:
    node, (first, second) = node_of(FIRST, SECOND)
    first.alive = False
    asyncio.run(node.start())
    assert place(node) == 1
    second.alive = False
    with pytest.raises(WorkerCrashedError, match="before it was ready"):
        asyncio.run(node.start())


@pytest.fixture
def running() -> Iterator[tuple[Running, httpx.Client]]:
    """A server with three workers in processes, of which one has two GPUs and one has none."""
    with server("--devices", "cuda:3,cuda:1;cuda:2;cpu", FAKE_GPUS="4") as started, started.http() as http:
        yield started, http


def opened(http: httpx.Client, **request: Any) -> dict[str, Any]:
    answer = http.post("/v1/sessions", json=request)
    assert answer.status_code == 201, answer.text
    described: dict[str, Any] = answer.json()
    return described


def test_sessions_are_placed_on_processes_that_see_their_own_gpus(running: tuple[Running, httpx.Client]) -> None:
    _, http = running
    pair, single, host = opened(http, gpus=2), opened(http), opened(http, gpus=0)
    assert [session["worker"] for session in (pair, single, host)] == [0, 1, 2]
    assert (pair["devices"], pair["node_devices"]) == (["cuda:0", "cuda:1", "cpu"], ["cuda:3", "cuda:1", "cpu"])
    assert (single["devices"], single["default_device"]) == (["cuda:0", "cpu"], "cuda:0")
    assert single["node_devices"] == ["cuda:2", "cpu"]
    devices = http.get("/v1/devices").json()
    shown = {device["worker"]: psutil.Process(device["pid"]).environ()["CUDA_VISIBLE_DEVICES"] for device in devices}
    assert shown == {0: "GPU-3,GPU-1", 1: "GPU-2", 2: ""}
    listed = [(device["worker"], device["device"], device["session_device"], device["sessions"]) for device in devices]
    assert listed == [
        (0, "cuda:3", "cuda:0", 1), (0, "cuda:1", "cuda:1", 1), (0, "cpu", "cpu", 1),
        (1, "cuda:2", "cuda:0", 1), (1, "cpu", "cpu", 1), (2, "cpu", "cpu", 1),
    ]  # fmt: skip


def test_what_a_server_cannot_give_is_told_and_a_number_is_expected(running: tuple[Running, httpx.Client]) -> None:
    _, http = running
    refused = http.post("/v1/sessions", json={"gpus": 3})
    assert (refused.status_code, refused.json()["code"]) == (422, "DeviceError")
    assert "worker 0: cuda:3, cuda:1, cpu; worker 1: cuda:2, cpu; worker 2: cpu" in refused.json()["detail"]
    for value in (-1, "2", True, 1.5):
        assert http.post("/v1/sessions", json={"gpus": value}).status_code == 422


def test_a_session_that_needs_a_killed_worker_gets_its_successor(running: tuple[Running, httpx.Client]) -> None:
    _, http = running
    before = http.get("/v1/devices").json()[0]["pid"]
    psutil.Process(before).kill()
    until(lambda: http.get("/readyz").json()["workers"][0]["state"] == "restarting")
    assert opened(http, gpus=2)["worker"] == 0
    devices = http.get("/v1/devices").json()
    assert devices[0]["pid"] != before
    assert Counter(device["state"] for device in devices) == {"serving": 6}


def test_who_asks_while_no_worker_serves_is_told_to_come_again(registry: FakeRegistry, http: Any) -> None:
    registry.workers[0].alive = False
    answer = http.post("/v1/sessions", json={})
    assert (answer.status_code, answer.json()["code"]) == (503, "WorkerCrashedError")
    assert answer.headers["retry-after"] == "1"
