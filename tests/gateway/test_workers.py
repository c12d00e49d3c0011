"""Devices, memory, metrics and readiness of several workers, of which some do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from server.gateway.app import create_app
from server.gateway.device_groups import DeviceGroup

from .conftest import Http, settings_of
from .registry import FakeRegistry
from .test_memory import metrics_of

HEADER = "telegrad-missing-workers"


@pytest.fixture
def registry() -> FakeRegistry:
    """Three workers: two GPUs, one GPU, none."""
    return FakeRegistry(
        DeviceGroup(("cuda:0", "cuda:1", "cpu"), ("a", "b")), DeviceGroup(("cuda:2", "cpu"), ("c",)),
        DeviceGroup(("cpu",)),
    )  # fmt: skip


@pytest.fixture
def http(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Http]:
    """A server that is impatient with workers that hang."""
    for name in (
        "every_worker.ANSWER",
        "routes.memory.SNAPSHOT",
        "routes.devices.DEVICES",
        "scrape.SCRAPE",
        "routes.sessions.LIST",
    ):
        monkeypatch.setattr(f"server.gateway.http.{name}_SECONDS", 0.01)
    with Http(create_app(settings_of(), registry)) as client:
        yield client


def opened(http: Http, **request: Any) -> tuple[str, dict[str, str]]:
    hello = http.post("/v1/sessions", json=request).json()
    return hello["session"], {"Telegrad-Session-Key": hello["key"]}


def hold(http: Http, nbytes: int, **request: Any) -> str:
    """Open a session that holds so many bytes; its id."""
    session, headers = opened(http, **request)
    step = {"op": "zeros", "args": [[nbytes // 4]], "out": 1}
    assert http.post(f"/v1/sessions/{session}/ops", json=step, headers=headers).status_code == 200
    return session


ALLOCATED = "allocated_bytes.all.current"
EVERY_DEVICE = ["cuda:0", "cuda:1", "worker0/cpu", "cuda:2", "worker1/cpu", "worker2/cpu"]


def test_memory_is_told_by_the_devices_of_all_workers(http: Http) -> None:
    hold(http, 1024, gpus=2)
    hold(http, 4096, gpus=0)
    stats = http.get("/memory_stats")
    assert list(stats.json()) == EVERY_DEVICE and HEADER not in stats.headers
    assert stats.json()["cuda:1"][ALLOCATED] == 1024
    assert http.get("/memory_snapshot").json()["devices"] == EVERY_DEVICE
    assert http.get("/memory_summary").text == "\n".join(f"| summary of all on {name} |" for name in EVERY_DEVICE)


@pytest.mark.parametrize(
    ("device", "names"),
    [
        ("cuda:2", ["cuda:2"]), ("worker1/cpu", ["worker1/cpu"]), ("cuda", ["cuda:0", "cuda:1", "cuda:2"]),
        ("cpu", ["worker0/cpu", "worker1/cpu", "worker2/cpu"]), ("", EVERY_DEVICE),
    ],
)  # fmt: skip
def test_a_device_is_chosen_by_the_name_that_the_node_has_for_it(http: Http, device: str, names: list[str]) -> None:
    assert list(http.get("/memory_stats", params={"device": device}).json()) == names
    assert http.post("/memory_history", json={"enabled": None, "max_entries": 5, "device": device}).status_code == 204


@pytest.mark.parametrize("path", ["/memory_stats", "/memory_summary", "/memory_snapshot"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(http: Http, path: str) -> None:
    answer = http.get(path, params={"device": "cuda:7"})
    assert (answer.status_code, answer.json()["code"]) == (422, "DeviceError")
    assert ", ".join(EVERY_DEVICE) in answer.json()["detail"]


def test_memory_of_a_session_is_asked_of_its_own_worker(http: Http, registry: FakeRegistry) -> None:
    session = hold(http, 1024, gpus=1)
    for worker in registry.workers:
        worker.asked.clear()
    assert list(http.get("/memory_stats", params={"session": session}).json()) == ["cuda:2", "worker1/cpu"]
    number = registry.sessions[session].number
    summary = http.get("/memory_summary", params={"session": session, "device": "cuda:2"}).text
    assert summary == f"| summary of {number} on cuda:2 |"
    path, headers = f"/v1/sessions/{session}", {"Telegrad-Session-Key": registry.sessions[session].key}
    own = http.get(f"{path}/memory_summary", params={"device": "cuda:0"}, headers=headers)
    assert own.text == f"| summary of {number} on cuda:0 |"
    assert [bool(worker.asked) for worker in registry.workers] == [False, True, False]


@pytest.mark.parametrize("how", ["is restarted", "hangs"])
def test_a_worker_that_does_not_answer_keeps_no_other_back(http: Http, registry: FakeRegistry, how: str) -> None:
    hold(http, 1024, gpus=2)
    hold(http, 4096, gpus=1)
    worker = registry.workers[1]
    worker.alive, worker.hangs = how == "hangs", how == "hangs"
    rest = [name for name in EVERY_DEVICE if name not in ("cuda:2", "worker1/cpu")]
    stats, snapshot = http.get("/memory_stats"), http.get("/memory_snapshot")
    assert list(stats.json()) == snapshot.json()["devices"] == rest
    assert stats.headers[HEADER] == snapshot.headers[HEADER] == "1"
    *texts, said = http.get("/memory_summary").text.splitlines()
    assert texts == [f"| summary of all on {name} |" for name in rest]
    assert "cuda:2" in said
    metrics = metrics_of(http)
    assert [metrics["telegrad_worker_up", number] for number in "012"] == [1, 0, 1]
    assert [metrics["telegrad_worker_sessions", number] for number in "012"] == [1, 1, 0]
    assert metrics["telegrad_memory_bytes", "0", "allocated", "cuda:1"] == 1024
    assert not any("cuda:2" in labels for labels in metrics)
    assert http.get("/readyz").status_code == 200


def test_metrics_name_worker_and_device(http: Http, registry: FakeRegistry) -> None:
    hold(http, 4096, gpus=1)
    registry.workers[2].restarts = 3
    metrics = metrics_of(http)
    assert metrics["telegrad_memory_bytes", "1", "allocated", "cuda:2"] == 4096
    assert metrics["telegrad_memory_bytes", "2", "allocated", "cpu"] == 0
    assert [metrics["telegrad_worker_restarts_total", number] for number in "012"] == [0, 0, 3]
    assert [metrics["telegrad_operations_total", number, "local"] for number in "012"] == [7, 7, 7]
    assert metrics["telegrad_sessions",] == 1


def test_one_worker_that_is_chosen_and_not_there_is_an_error(http: Http, registry: FakeRegistry) -> None:
    registry.workers[1].alive = False
    answer = http.get("/memory_stats", params={"device": "cuda:2"})
    assert (answer.status_code, answer.json()["code"]) == (503, "WorkerCrashedError")


@pytest.mark.parametrize(("how", "state"), [("is restarted", "restarting"), ("hangs", "unresponsive")])
def test_devices_are_listed_while_their_worker_does_not_answer(
    http: Http, registry: FakeRegistry, how: str, state: str
) -> None:
    before = http.get("/v1/devices").json()
    assert [(device["device"], device["worker"]) for device in before] == [
        ("cuda:0", 0), ("cuda:1", 0), ("cpu", 0), ("cuda:2", 1), ("cpu", 1), ("cpu", 2),
    ]  # fmt: skip
    assert all(device["state"] == "serving" and device["free_memory"] for device in before)
    hold(http, 1024, gpus=1)
    worker = registry.workers[1]
    worker.alive, worker.hangs = how == "hangs", how == "hangs"
    gpu = http.get("/v1/devices").json()[3]
    assert gpu == before[3] | {
        "state": state, "sessions": 1, "free_memory": None, "allocated_memory": None, "reserved_memory": None,
        "pid": None,
    }  # fmt: skip


def test_readiness_lists_the_workers_and_ends_with_the_last(http: Http, registry: FakeRegistry) -> None:
    registry.workers[0].alive, registry.workers[0].restarts = False, 2
    answer = http.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["workers"] == [
        {"worker": 0, "devices": ["cuda:0", "cuda:1", "cpu"], "state": "restarting", "restarts": 2, "use": "shared"},
        {"worker": 1, "devices": ["cuda:2", "cpu"], "state": "serving", "restarts": 0, "use": "shared"},
        {"worker": 2, "devices": ["cpu"], "state": "serving", "restarts": 0, "use": "shared"},
    ]
    for worker in registry.workers:
        worker.alive = False
    refused = http.get("/readyz")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert "worker 1 (cuda:2, cpu) restarting" in refused.json()["detail"]


def test_ones_sessions_are_listed_though_a_worker_hangs(http: Http, registry: FakeRegistry) -> None:
    owner = {"Telegrad-Owner": "a-secret-of-one-user"}
    for gpus in (1, 2):
        assert http.post("/v1/sessions", json={"gpus": gpus}, headers=owner).status_code == 201
    registry.workers[1].hangs = True
    single, pair = http.get("/v1/sessions", headers=owner).json()
    assert (single["worker"], single["node_devices"], single["allocated_bytes"]) == (1, ["cuda:2", "cpu"], {})
    assert (pair["worker"], pair["allocated_bytes"]) == (0, {"cuda:0": 0, "cuda:1": 0, "cpu": 0})
