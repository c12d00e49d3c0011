"""Devices, memory, metrics and health."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .conftest import Client, Http
from .registry import FakeRegistry


def metrics_of(http: Http) -> dict[tuple[str, ...], float]:
    answer = http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {(s.name, *sorted(s.labels.values())): s.value for family in families for s in family.samples}


def test_devices_are_listed_with_their_memory(http: Http) -> None:
    (device,) = http.get("/v1/devices").json()
    assert (device["device"], device["name"], device["type"], device["index"]) == ("cpu", "NumPy", "cpu", None)
    assert device["total_memory"] == device["free_memory"] == 1 << 34
    assert device["capability"] is None


def test_memory_is_shown_for_all_and_for_one_session(client: Client) -> None:
    http = client.http
    answer = http.get("/memory_summary")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == "| summary of all on cpu |"
    assert http.get("/memory_summary", params={"session": client.session.id}).text == "| summary of 1 on cpu |"
    client.ops({"op": "zeros", "args": [[256]], "out": 1})
    assert http.get("/memory_stats").json()["cpu"]["allocated_bytes.all.current"] == 1024
    snapshot = http.get("/memory_snapshot").json()
    assert (snapshot["segments"], snapshot["device_traces"]) == ([], [])
    assert snapshot["sessions"] == {str(client.session.number): client.session.id}


@pytest.mark.parametrize("path", ["/memory_summary", "/memory_stats", "/memory_snapshot"])
def test_memory_of_an_unknown_session_is_not_found(http: Http, path: str) -> None:
    answer = http.get(path, params={"session": "nope"})
    assert (answer.status_code, answer.json()["code"]) == (404, "UnknownIdError")


def test_metrics_tell_of_sessions_traffic_errors_memory_and_workers(client: Client) -> None:
    client.ops({"op": "zeros", "args": [[256]], "out": 1})
    client.call("GET", "/tensors/1")
    client.ops({"op": "zeros", "args": [{"tensor": 99}]})
    client.registry.workers[0].restarts = 2
    found = metrics_of(client.http)
    assert found["telegrad_sessions",] == 1
    assert found["telegrad_sessions_opened_total",] == 1
    assert found["telegrad_frames_total", "in", "local"] == 11
    assert found["telegrad_bytes_total", "local", "out"] == 11
    assert found["telegrad_operations_total", "0", "local"] == 7
    assert found["telegrad_worker_restarts_total", "0"] == 2
    assert found["telegrad_failures_total", "UnknownIdError", "http", "local"] == 1
    assert found["telegrad_memory_bytes", "0", "allocated", "cpu"] == 1024
    assert found["telegrad_out_of_memory_total", "0", "cpu"] == 3
    assert found["telegrad_http_tensor_bytes_total", "out"] == 1024


def test_metrics_are_there_while_the_worker_is_not(client: Client) -> None:
    client.registry.workers[0].alive = False
    assert metrics_of(client.http)["telegrad_sessions",] == 1


def test_health_is_open_and_readiness_follows_worker_and_drain(client: Client, registry: FakeRegistry) -> None:
    http = client.http
    assert http.get("/readyz").json() == {
        "status": "ready",
        "workers": [{"worker": 0, "devices": ["cpu"], "state": "serving", "restarts": 0, "use": "shared"}],
    }  # fmt: skip
    registry.workers[0].alive = False
    assert http.get("/readyz").status_code == 503
    registry.workers[0].alive = True
    client.app.state.gateway.draining = True
    assert http.get("/readyz").status_code == 503
    assert http.get("/healthz").json() == {"status": "ok"}
    refused = http.post("/v1/sessions", json={})
    assert (refused.status_code, refused.json()["code"]) == (503, "CommunicationError")
    assert client.ops({"op": "zeros", "args": [1]}).status_code == 200


def test_the_registry_runs_as_long_as_the_application(http: Http, registry: FakeRegistry) -> None:
    assert registry.running


def test_every_endpoint_is_described(http: Http) -> None:
    document = http.get("/openapi.json").json()
    operations = [op for path in document["paths"].values() for op in path.values()]
    assert all(op["summary"] for op in operations)
    assert {"HTTPBearer", "APIKeyHeader"} <= document["components"]["securitySchemes"].keys()
    assert "swagger" in http.get("/docs").text
