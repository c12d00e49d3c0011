"""What a real server shows and logs of a workload: operations, failures, slow turns, a lost connection, a limit."""

from __future__ import annotations

import psutil
import pytest

import telegrad as tg
from tests.support import plain_http

from ..end_to_end.server_process import ServerProcess
from .conftest import Observed, scrape


def test_failures_are_counted_by_class_and_tenant(observed: Observed) -> None:
    value = observed.scraped.value
    for code in ("IndexOutOfRangeError", "OutOfMemoryError", "LimitExceededError"):
        assert value("telegrad_failures_total", code=code, tenant="local", source="stream") == 1, code
    assert value("telegrad_failures_total", code="UnknownIdError", source="http") == 1
    assert value("telegrad_rejections_total", reason="memory", tenant="local") == 1
    assert value("telegrad_rejections_total", reason="limit", tenant="local") == 1
    assert value("telegrad_out_of_memory_total", device="cpu") == 0  # a quota was full, not the device
    assert value("telegrad_watchdog_endings_total", action="cancelled") == 1
    assert value("telegrad_session_reconnects_total", tenant="local") == 1


def test_a_failure_is_a_line_with_session_and_site(observed: Observed) -> None:
    (line,) = observed.lines("instruction failed", code="IndexOutOfRangeError")
    assert line["level"] == "INFO" and line["logger"] == "server.failures" and line["tenant"] == "local"
    assert "conftest.py" in line["site"] and line["operation"] and "7" in line["reason"]
    (full,) = observed.lines("instruction failed", code="OutOfMemoryError")
    assert full["level"] == "WARNING" and full["session"] == line["session"] != observed.session
    (ended,) = observed.lines("session ended by a failure", code="LimitExceededError")
    assert ended["session"] == line["session"] and "avg_pool1d" in ended["operation"]
    assert observed.lines("client reconnected", session=line["session"])
    opened = observed.lines("session opened", logger="server.audit", session=line["session"])
    assert len(opened) == 1 and opened[0]["request_id"]
    (missing,) = observed.lines("request", path="/v1/sessions/none/tensors/1")
    assert missing["code"] == "UnknownIdError" and missing["session"] == "none" and missing["status"] == 404


def test_slow_turns_are_lines_with_operation_and_site(observed: Observed) -> None:
    slow = [line for line in observed.lines("turn was slow") if "conftest" in line["site"]]
    assert slow and all(line["seconds"] >= 0.01 for line in slow)
    assert "matmul" in {line["operation"] for line in slow if "slow_turn" in line["site"]}


def test_histograms_count_turns_frames_and_answers(observed: Observed) -> None:
    value = observed.scraped.value
    for name in ("turn", "queue", "round_trip"):
        count, total = (value(f"telegrad_{name}_seconds_{part}", worker="0") for part in ("count", "sum"))
        assert count >= 5 and 0 <= total / count < 5, name
        assert value(f"telegrad_{name}_seconds_bucket", worker="0", le="+Inf") == count
        assert value(f"telegrad_{name}_seconds_bucket", worker="0", le="60.0") == count
    frames = value("telegrad_frames_total", direction="in", tenant="local")
    assert value("telegrad_queue_seconds_count") <= frames
    assert value("telegrad_operations_total", worker="0", tenant="local") > 20
    assert value("telegrad_tenant_sessions", tenant="local", worker="0", state="connected") == 1
    sessions = 2  # the tenant's, and the one that the program is in
    assert value("telegrad_worker_sessions", worker="0") == value("telegrad_sessions") == sessions
    assert value("telegrad_queued_instructions") == value("telegrad_unsent_bytes") == 0
    worker = psutil.Process(observed.server.worker.pid).memory_info().rss
    assert 0.5 < value("telegrad_worker_resident_bytes", worker="0") / worker < 2
    assert value("telegrad_worker_cpu_seconds_total", worker="0") > 0.1
    assert 0 < value("telegrad_kernel_cache_free_bytes") < value("telegrad_kernel_cache_size_bytes")


def test_a_read_is_one_round_trip_and_one_frame_in_the_queue(observed: Observed) -> None:
    tg.ones(2).sum().item()
    before = scrape(observed.server)
    for _ in range(5):
        tg.ones(2).sum().item()
    after = scrape(observed.server)
    for name, most in (("round_trip", 5), ("queue", 15)):
        series = f"telegrad_{name}_seconds_count"
        assert 5 <= after.value(series) - before.value(series) <= most, name
    assert after.value("telegrad_failures_total") == before.value("telegrad_failures_total")


def test_requests_are_counted_by_route(observed: Observed) -> None:
    scraped = scrape(observed.server)
    assert scraped.value("telegrad_http_request_seconds_count", route="/v1/sessions", method="POST", status="201") >= 2
    assert scraped.value("telegrad_http_request_seconds_count", route="/metrics", status="200") >= 1
    answer = plain_http.get(f"{observed.server.url}/healthz", headers={"X-Request-Id": "probe-7"})
    assert answer.headers["x-request-id"] == "probe-7"


def test_heads_that_are_too_long_are_counted_at_the_door(observed: Observed) -> None:
    before = scrape(observed.server).value("telegrad_connections_refused_total", status="431")
    answer = plain_http.get(observed.server.url, headers={"X-Long": "x" * 70_000})
    assert answer.status_code == 431
    after = scrape(observed.server)
    assert after.value("telegrad_connections_refused_total", status="431") == before + 1
    assert after.value("telegrad_connections") >= 1


def test_a_server_without_a_gpu_shows_none(observed: Observed) -> None:
    assert not [name for name, *_ in observed.scraped.samples if name.startswith("telegrad_gpu_")]
    assert not observed.lines("no figures of GPUs")


@pytest.mark.gpu
def test_real_gpus_tell_their_figures() -> None:
    pytest.importorskip("pynvml")
    with ServerProcess(TELEGRAD_DEVICES="cuda:0") as server:
        scraped = scrape(server)
    assert scraped.value("telegrad_gpu_info", device="cuda:0") == 1
    assert 0 <= scraped.value("telegrad_gpu_utilization_ratio", device="cuda:0") <= 1
    used, total = (scraped.value(f"telegrad_gpu_memory_{kind}_bytes", device="cuda:0") for kind in ("used", "total"))
    assert 1 << 28 < used <= total
    assert 10 < scraped.value("telegrad_gpu_temperature_celsius", device="cuda:0") < 120
    assert 10 < scraped.value("telegrad_gpu_power_watts", device="cuda:0") < 2000
    assert scraped.value("telegrad_gpu_clock_hertz", device="cuda:0") > 1e8
