"""What the gateway counts and logs of requests, refusals, workers' notices and GPUs."""

from __future__ import annotations

import asyncio
import logging
import threading
import types
from typing import Any

import pytest
from fastapi import FastAPI

from server.gateway.app import create_app
from server.gateway.device_groups import DeviceGroup
from server.gateway.observability.gpus import Figure, Gpus
from server.gateway.observability.metrics import GPU_METRICS, Metrics
from server.gateway.observability.observer import LINES_AT_ONCE, Observer
from server.gateway.observability.tracing import Tracing
from server.ipc.measures import BOUNDS, InstructionFailed, SlowTurn
from server.worker.measures import Histogram, Measures
from telegrad_protocol.messages import Failure

from .conftest import TOKEN, Client, Http, settings_of
from .registry import FakeRegistry
from .test_memory import metrics_of


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.getMessage() == event]


def test_requests_are_counted_by_route_and_have_ids(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "server.access")
    answer = client.call("GET", "/tensors/7", headers={"X-Request-Id": "mine-1"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (404, "mine-1")
    (line,) = [line for line in logged(caplog, "request") if line["status"] == 404]
    assert line["request_id"] == "mine-1" and line["session"] == client.session.id and line["tenant"] == "local"
    assert line["code"] == "UnknownIdError" and "tensor 7" in line["reason"] and line["levelno"] == logging.INFO
    made = [client.http.get("/nowhere", headers={"X-Request-Id": text}) for text in ("", "a b", "x" * 65)]
    assert all(len(answer.headers["x-request-id"]) == 16 for answer in made)
    client.http.request("BREW", "/coffee")
    assert client.call("HEAD", "/tensors/7").status_code == 404
    found = metrics_of(client.http)
    route = "/v1/sessions/{session_id}/tensors/{tensor_id}"
    assert found["telegrad_http_request_seconds_count", route, "404", "GET"] == 1
    assert found["telegrad_http_request_seconds_count", route, "404", "HEAD"] == 1
    assert found["telegrad_failures_total", "UnknownIdError", "http", "local"] == 2
    assert found["telegrad_http_request_seconds_count", "404", "GET", "unmatched"] == 3
    assert found["telegrad_http_request_seconds_count", "404", "OTHER", "unmatched"] == 1
    assert not any(client.session.id in labels for labels in found)


def test_defects_are_logged_as_errors_and_probes_are_quiet(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "server.access")
    defect = client.ops({"op": "boom"})
    assert defect.status_code == 500 and len(defect.headers["x-request-id"]) == 16
    client.registry.workers[0].alive = False
    assert client.http.get("/readyz").status_code == 503
    levels = {line["status"]: line["levelno"] for line in logged(caplog, "request")}
    assert (levels[500], levels[503]) == (logging.ERROR, logging.DEBUG)


def test_refusals_are_counted_by_reason() -> None:
    registry = FakeRegistry()
    token = {"Authorization": f"Bearer {TOKEN}"}
    with Http(create_app(settings_of(max_sessions=1, token=TOKEN), registry)) as http:
        http.get("/metrics")
        http.get("/metrics", headers={"Origin": "http://evil.example"})
        registry.workers[0].alive = False
        http.post("/v1/sessions", json={}, headers=token)
        registry.workers[0].alive = True
        session = http.post("/v1/sessions", json={}, headers=token).json()
        http.post("/v1/sessions", json={}, headers=token)
        http.post("/v1/sessions", content=b"[" * 1000, headers=token | {"Content-Type": "application/json"})
        mine = token | {"Telegrad-Session-Key": session["key"]}
        shape = {"shape": "1000000,1000000", "dtype": "float64"}
        path = f"/v1/sessions/{session['session']}/tensors/1"
        raw = mine | {"Content-Type": "application/octet-stream"}
        assert http.request("PUT", path, params=shape, content=b"", headers=raw).status_code == 507
        text = http.get("/metrics", headers=token).text
    for labels in (
        'reason="authentication",tenant=""} 2.0', 'reason="placement",tenant="default"} 1.0',
        'reason="sessions",tenant="default"} 1.0', 'reason="body",tenant="default"} 1.0',
        'reason="memory",tenant="default"} 1.0',
    ):  # fmt: skip
        assert f"telegrad_rejections_total{{{labels}" in text, (labels, text)


def test_workers_show_their_histograms_and_queues_while_they_answer(client: Client) -> None:
    found = metrics_of(client.http)
    assert found["telegrad_turn_seconds_count", "0"] == 1
    assert found["telegrad_turn_seconds_sum", "0"] == found["telegrad_device_seconds_sum", "0"] == 0.003
    below = [str(bound) for bound in BOUNDS if bound < 0.003]
    assert [found["telegrad_turn_seconds_bucket", *sorted(("0", bound))] for bound in below] == [0] * len(below)
    assert [found["telegrad_turn_seconds_bucket", *sorted(("0", bound))] for bound in ("0.005", "60.0", "+Inf")] == [
        1
    ] * 3
    names = ("queued_instructions", "queued_bytes", "unsent_bytes", "operations_ahead")
    assert [found[f"telegrad_{name}", "0", "local"] for name in names] == [2, 3, 4, 5]
    assert found["telegrad_tenant_sessions", "0", "local", "waiting"] == 1
    assert found["telegrad_worker_resident_bytes", "0"] == 1 << 20
    places = ("session", "beside", "failed")
    assert [found["telegrad_kernel_compilations_total", *sorted(("0", place))] for place in places] == [1, 2, 3]
    ways = ("asked", "borrowed")
    assert [found["telegrad_library_choices_total", *sorted(("0", way))] for way in ways] == [4, 5]
    client.registry.workers[0].alive = False
    found = metrics_of(client.http)
    assert found["telegrad_turn_seconds_count", "0"] == 1
    assert ("telegrad_queued_bytes", "0", "local") not in found


def test_a_histogram_counts_each_time_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram()
    times = histogram.times
    for seconds in (-1e-9, BOUNDS[0], BOUNDS[3] * 1.001, BOUNDS[-1], 1e9):
        times.append(seconds)
        histogram.count()
    state = histogram.state
    assert [state.counts[place] for place in (0, 4, len(BOUNDS) - 1, len(BOUNDS))] == [2, 1, 1, 1]
    assert sum(state.counts) == 5 and times == [] and times is histogram.times
    assert state.sum == pytest.approx(BOUNDS[0] + BOUNDS[3] * 1.001 + BOUNDS[-1] + 1e9)


class Shown:
    """What an observer is shown of a session."""

    def __init__(self, number: int, tenant: str) -> None:
        self.number, self.id, self.tenant = number, f"s{number}", tenant
        self.hello = types.SimpleNamespace(attachment=1)


@pytest.fixture
def observer() -> Observer:
    observer = Observer(Metrics(), Tracing())
    observer.opened(Shown(3, "alice"))
    return observer


def failed(code: str, count: int = 1, ends: bool = False) -> InstructionFailed:
    return InstructionFailed(3, count, code, "what is wrong", "add", "float32[2]", "train.py:7", ends)


def test_failures_are_counted_by_class_and_told_with_session_and_line(
    observer: Observer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "server.failures")
    observer.noticed(0, [failed("ShapeError", 4), failed("OutOfMemoryError"), failed("InternalError", ends=True)])
    observer.noticed(0, [SlowTurn(3, 1e9, 2.5, "conv2d", "train.py:9"), SlowTurn(99, 1e9, 2.5, "", "")])
    shape, memory, defect = caplog.records[:3]
    assert vars(shape) | {
        "tenant": "alice", "session": "s3", "worker": 0, "operation": "add", "site": "train.py:7", "code": "ShapeError",
        "reason": "what is wrong", "operands": "float32[2]", "count": 4,
    } == vars(shape)  # fmt: skip
    levels = [shape.levelno, memory.levelno, defect.levelno]
    assert levels == [logging.INFO, logging.WARNING, logging.ERROR]
    assert [record.getMessage() for record in caplog.records] == [
        "instruction failed", "instruction failed", "session ended by a failure", "turn was slow",
    ]  # fmt: skip
    text = observer.metrics.render().decode()
    assert 'telegrad_failures_total{code="ShapeError",source="stream",tenant="alice"} 4.0' in text
    assert 'telegrad_rejections_total{reason="memory",tenant="alice"} 1.0' in text


def test_a_session_cannot_flood_the_log(observer: Observer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "server.failures")
    for _ in range(10 * LINES_AT_ONCE):
        observer.noticed(0, [failed("ShapeError", 2)])
    lines = len(caplog.records)
    assert LINES_AT_ONCE <= lines < 5 * LINES_AT_ONCE
    left_out = 2 * (10 * LINES_AT_ONCE - lines)
    record = observer._records[3]
    assert record.allowance.left_out + sum(vars(line).get("left_out", 0) for line in caplog.records) == left_out
    assert "tenant" in vars(caplog.records[0])


def test_a_worker_describes_one_failure_of_a_kind_and_bounds_what_clients_write() -> None:
    measures = Measures(1.0)
    assert not measures.has_notices
    for text in ("first", "x" * 10_000):
        measures.note_failure(5, Failure(1, None, "ShapeError", text, "add", "", "s" * 10_000, ""))
    measures.note_failure(6, Failure(1, None, "ShapeError", "y" * 10_000, "", "", "", ""))
    mine, others = measures.take_notices()
    assert isinstance(mine, InstructionFailed) and isinstance(others, InstructionFailed)
    assert (mine.session, mine.count, mine.message, len(mine.site)) == (5, 2, "first", 500)
    assert (others.session, others.count, len(others.message)) == (6, 1, 500)
    assert not measures.has_notices and measures.take_notices() == []


def test_connections_again_are_reconnects_but_for_a_new_attachment(observer: Observer) -> None:
    session = Shown(3, "alice")
    for attachment in (1, 1, 1, 2):
        session.hello.attachment = attachment
        observer.connected(session)
    assert 'telegrad_session_reconnects_total{tenant="alice"} 2.0' in observer.metrics.render().decode()


class FakeNvml:
    """The binding of NVML for two GPUs, of which the second is a MIG device that tells little."""

    NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = 0

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.hangs: threading.Event | None = None

    def nvmlInit(self) -> None:
        if self.hangs is not None:
            self.hangs.wait()

    def _of_whole_gpus(self, gpu: str, value: Any) -> Any:
        if gpu == "MIG-2":
            raise self.NVMLError("Not Supported")
        return value

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.1"

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:
        if name == "GPU-gone":
            raise self.NVMLError("GPU is lost")
        return name

    def nvmlDeviceGetUUID(self, gpu: str) -> str:
        return gpu

    def nvmlDeviceGetName(self, gpu: str) -> str:
        return "H200"

    def nvmlDeviceGetUtilizationRates(self, gpu: str) -> Any:
        return self._of_whole_gpus(gpu, types.SimpleNamespace(gpu=75, memory=20))

    def nvmlDeviceGetMemoryInfo(self, gpu: str) -> Any:
        return types.SimpleNamespace(used=5 << 30, total=140 << 30)

    def nvmlDeviceGetTemperature(self, gpu: str, kind: int) -> int:
        return self._of_whole_gpus(gpu, 41)

    def nvmlDeviceGetPowerUsage(self, gpu: str) -> int:
        return self._of_whole_gpus(gpu, 120_500)

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: str) -> int:
        return self._of_whole_gpus(gpu, 700_000)

    def nvmlDeviceGetClockInfo(self, gpu: str, kind: int) -> int:
        return self._of_whole_gpus(gpu, 1980)

    def nvmlDeviceGetTotalEccErrors(self, gpu: str, kind: int, counter: int) -> int:
        return self._of_whole_gpus(gpu, 3 - kind)


GROUPS = [
    DeviceGroup(("cuda:0", "cuda:1", "cpu"), ("GPU-1", "MIG-2")), DeviceGroup(("cpu",)),
    DeviceGroup(("cuda:2", "cpu"), ("GPU-gone",)),
]  # fmt: skip


def test_gpus_show_what_they_tell_in_the_units_of_the_metrics(app: FastAPI, http: Http) -> None:
    app.state.gateway.gpus = Gpus(GROUPS, FakeNvml())
    found = metrics_of(http)
    told = {labels[0].removeprefix("telegrad_gpu_"): value for labels, value in found.items() if "cuda:0" in labels}
    assert told == {
        "info": 1, "utilization_ratio": 0.75, "memory_utilization_ratio": 0.2, "memory_used_bytes": 5 << 30,
        "memory_total_bytes": 140 << 30, "temperature_celsius": 41, "power_watts": 120.5, "power_limit_watts": 700,
        "clock_hertz": 1.98e9, "ecc_errors_total": 2,
    }  # fmt: skip
    assert found["telegrad_gpu_ecc_errors_total", "corrected", "cuda:0"] == 3
    mig = {labels[0].removeprefix("telegrad_gpu_") for labels in found if "cuda:1" in labels}
    assert mig == {"info", "memory_used_bytes", "memory_total_bytes"}
    assert not any("cuda:2" in labels for labels in found)
    app.state.gateway.gpus = Gpus(GROUPS[1:2], None)
    assert not any("gpu" in name for name, *_ in metrics_of(http))


def test_a_driver_that_hangs_keeps_no_scrape_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.gateway.observability.gpus.ASK_SECONDS", 0.02)
    library = FakeNvml()
    library.hangs = threading.Event()
    gpus = Gpus(GROUPS, library)

    async def ask() -> None:
        assert await gpus.figures() == {} and await gpus.figures() == {}
        assert library.hangs is not None
        library.hangs.set()
        assert gpus._asking is not None
        await gpus._asking  # one thread alone was asking
        assert Figure("temperature_celsius", (), 41) in (await gpus.figures())["cuda:0"]

    asyncio.run(ask())


def test_every_figure_of_a_gpu_has_a_metric() -> None:
    figures = Gpus(GROUPS, FakeNvml())._ask()
    names = {name: len(labels) for name, _, *labels in GPU_METRICS}
    assert {figure.name: len(figure.labels) for figure in figures["cuda:0"]} == names
