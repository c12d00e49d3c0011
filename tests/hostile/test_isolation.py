"""Workers of one session or one tenant: started when they are needed, bounded, ended with their last session."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest

import telegrad as tg
from telegrad.errors import WorkerCrashedError
from tests.end_to_end.server_process import ServerProcess
from tests.support import plain_http
from tests.transport.waiting import wait_until


def workers(server: ServerProcess) -> dict[int, tuple[str, str]]:
    """By worker, whose it is and what it does."""
    return {worker["worker"]: (worker["use"], worker["state"]) for worker in server.get("/readyz")["workers"]}


def pid_of(server: ServerProcess, connection: tg.Connection) -> int:
    return server.worker_process(connection.worker).pid


def uses(server: ServerProcess) -> list[str]:
    return sorted(use for use, state in workers(server).values() if state == "serving")


def open_session(server: ServerProcess, **body: Any) -> httpx.Response:
    return plain_http.post(server.url + "/v1/sessions", json=body, timeout=60)


def test_each_session_has_a_process_that_ends_with_it() -> None:
    with ServerProcess(TELEGRAD_ISOLATION="session", TELEGRAD_MAX_WORKERS="3") as server:
        assert workers(server) == {0: ("spare", "serving")}
        first, second = tg.connect(server.url), tg.connect(server.url)
        assert first.isolation == second.isolation == "session"
        pids = [pid_of(server, connection) for connection in (first, second)]
        assert len(set(pids)) == 2
        wait_until(lambda: uses(server) == ["session", "session", "spare"], "a spare worker was started again")
        first.use()
        kept = tg.arange(5)
        assert kept.sum().item() == 10
        for variable in ("TELEGRAD_TOKEN", "TELEGRAD_OWNER"):
            assert variable not in psutil.Process(pids[0]).environ()

        psutil.Process(pids[1]).kill()
        second.use()
        with pytest.raises(WorkerCrashedError, match="SIGKILL"):
            wait_until(lambda: tg.ones(3).tolist() is None, "the session is told")
        first.use()
        assert kept.sum().item() == 10
        wait_until(lambda: uses(server) == ["session", "spare"], "the dead session's worker is gone")
        assert server.metric("telegrad_worker_up") == 2

        first.disconnect()
        wait_until(lambda: not psutil.pid_exists(pids[0]), "the worker ended with its session")
        wait_until(lambda: uses(server) == ["spare"], "one spare worker is left")
        second.disconnect()
        assert server.get("/memory_stats") and server.get("/v1/devices")


def test_no_more_processes_than_allowed_are_started_and_the_limit_is_told() -> None:
    with ServerProcess(TELEGRAD_ISOLATION="session", TELEGRAD_MAX_WORKERS="1", TELEGRAD_SPARE_WORKERS="0") as server:
        assert server.get("/readyz")["workers"] == []
        assert server.get("/memory_stats") == {} and server.get("/v1/devices") == []
        assert server.get("/memory_summary") == ""
        with tg.connect(server.url):
            refused = open_session(server)
            assert refused.status_code == 503 and refused.headers["retry-after"]
            assert "1 worker processes of tenants and sessions run" in refused.json()["detail"]
            assert "TELEGRAD_MAX_WORKERS" in refused.json()["detail"]
        with tg.connect(server.url):  # waits until the process of the first has ended
            assert tg.ones(2).sum().item() == 2


def test_the_sessions_of_a_tenant_share_a_process() -> None:
    with ServerProcess(TELEGRAD_ISOLATION="tenant") as server:
        first, second = tg.connect(server.url), tg.connect(server.url)
        assert first.isolation == "tenant"
        assert pid_of(server, first) == pid_of(server, second)
        with tg.connect(server.url, own_worker=True) as alone:
            assert alone.isolation == "session"
            assert pid_of(server, alone) != pid_of(server, first)
        pid = pid_of(server, first)
        first.disconnect()
        second.use()
        assert tg.ones(3).sum().item() == 3
        second.disconnect()
        wait_until(lambda: not psutil.pid_exists(pid), "the worker ended with its last session")


def test_a_session_of_a_shared_server_may_have_a_worker_of_its_own() -> None:
    with ServerProcess() as server, tg.connect(server.url) as shared:
        assert shared.isolation == "shared"
        with tg.connect(server.url, own_worker=True) as own:
            assert own.isolation == "session" and own.worker != shared.worker
            assert uses(server) == ["session", "shared"]
            own.use()
            held = tg.ones(1 << 10)
            server.worker_process(own.worker).kill()
            with pytest.raises(WorkerCrashedError, match="SIGKILL"):
                wait_until(lambda: held.tolist() is None, "the session is told")
        shared.use()
        assert tg.ones(3).sum().item() == 3
        wait_until(lambda: uses(server) == ["shared"], "nothing of it is left")
        assert open_session(server, own_worker="yes").status_code == 422


def test_a_worker_that_comes_while_others_are_asked_disturbs_no_answer() -> None:
    with ServerProcess() as server, ThreadPoolExecutor() as threads:
        hanging = server.worker
        hanging.suspend()  # so that the answers take a while
        answers = [threads.submit(server.get, path) for path in ("/v1/devices", "/metrics", "/readyz")]
        assert open_session(server, own_worker=True).status_code == 201
        hanging.resume()
        assert all(answer.result() for answer in answers)


def test_workers_end_with_their_gateway_however_it_ends() -> None:
    with ServerProcess(TELEGRAD_DEVICES="cpu;cpu") as server:
        children = psutil.Process(server.process.pid).children()
        hanging = children[0]
        hanging.suspend()  # it would not notice that the gateway is gone
        server.signal(signal.SIGKILL)
        wait_until(lambda: not any(map(psutil.Process.is_running, children)), "the workers ended")
