"""The server as a process: announcing itself, streaming, draining, and ending with its parent."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psutil
import pytest

from tests.support import plain_http

from .conftest import TOKEN

DEADLINE = 60.0
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@dataclass
class Running:
    """A server process, and the pipe that it may die with."""

    process: subprocess.Popen[str]
    url: str
    pid: int
    parent: int

    def http(self) -> httpx.Client:
        return plain_http.Client(base_url=self.url, headers=AUTHORIZED, timeout=DEADLINE)

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)

    def ends(self) -> int:
        return self.process.wait(DEADLINE)


@contextmanager
def server(*options: str, **variables: str) -> Iterator[Running]:
    read, write = os.pipe()
    environ = os.environ | {"TELEGRAD_TOKEN": TOKEN} | {f"TELEGRAD_{k}": v for k, v in variables.items()}
    command = [sys.executable, "-m", "tests.gateway.serve", "--port", "0", "--devices", "cpu", "--announce"]
    process = subprocess.Popen(
        [*command, "--parent-fd", str(read), *options], env=environ, pass_fds=[read], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(read)
    assert process.stdout is not None and process.stderr is not None
    workers: list[psutil.Process] = []
    try:
        announced = json.loads(process.stdout.readline() or "{}")
        running = Running(process, announced["url"], announced["pid"], write)
        workers = running.workers()
        assert running.pid == process.pid and len(workers) == " ".join(options).count(";") + 1
        yield running
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        os.close(write)
        assert psutil.wait_procs(workers, timeout=DEADLINE)[1] == [], "a worker survived its gateway"


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.01)


def open_session(http: httpx.Client) -> tuple[str, dict[str, str]]:
    hello = http.post("/v1/sessions", json={}).json()
    return f"/v1/sessions/{hello['session']}", {"Telegrad-Session-Key": hello["key"]}


def test_a_server_announces_itself_serves_and_ends_with_0_on_sigterm() -> None:
    with server() as running, running.http() as http:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", running.url)
        assert http.get("/readyz").json()["status"] == "ready"
        assert plain_http.get(f"{running.url}/memory_summary").status_code == 401
        path, headers = open_session(http)
        step = {"op": "tensor", "data": [1, 2], "values": True}
        answer = http.post(f"{path}/ops", json=step, headers=headers)
        assert answer.json()["results"][0]["tensors"][0]["values"] == [1, 2]
        assert http.delete(path, headers=headers).status_code == 204
        running.process.send_signal(signal.SIGTERM)
        assert running.ends() == 0
        assert running.process.stderr is not None
        events = [json.loads(line) for line in running.process.stderr]
    assert {"ready", "request", "draining", "stopped"} <= {entry["event"] for entry in events}
    assert TOKEN not in str(events) and headers["Telegrad-Session-Key"] not in str(events)


def test_draining_lets_open_sessions_work_and_ends_when_they_are_gone() -> None:
    with server(DRAIN_SECONDS="600") as running, running.http() as http:
        path, headers = open_session(http)
        for process in (*running.workers(), running.process):
            process.send_signal(signal.SIGTERM)
        until(lambda: http.get("/readyz").status_code == 503)
        assert http.get("/healthz").status_code == 200
        assert http.post("/v1/sessions", json={}).status_code == 503
        assert http.post(f"{path}/ops", json={"op": "zeros", "args": [2]}, headers=headers).status_code == 200
        assert running.process.poll() is None
        assert http.delete(path, headers=headers).status_code == 204
        assert running.ends() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT, None])
def test_draining_ends_at_a_second_signal_or_when_its_time_is_over(second: signal.Signals | None) -> None:
    with server(DRAIN_SECONDS="600" if second else "0.2") as running, running.http() as http:
        open_session(http)
        running.process.send_signal(signal.SIGTERM)
        if second:
            until(lambda: http.get("/readyz").status_code == 503)
            running.process.send_signal(second)
        assert running.ends() == 0


def test_sigint_ends_at_once() -> None:
    with server(DRAIN_SECONDS="600") as running, running.http() as http:
        open_session(http)
        running.process.send_signal(signal.SIGINT)
        assert running.ends() == 0


def test_a_server_ends_with_the_process_that_started_it() -> None:
    with server(DRAIN_SECONDS="600") as running, running.http() as http:
        open_session(http)
        spare = os.dup(running.parent)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, running.parent)
        os.close(null)
        assert http.get("/healthz").status_code == 200
        os.close(spare)
        assert running.ends() == 0


def test_the_worker_does_not_survive_a_killed_gateway() -> None:
    with server() as running:
        running.process.kill()
        running.ends()


@pytest.mark.parametrize(("token", "key", "status"), [(False, True, 401), (True, False, 403), (True, True, 101)])
def test_the_stream_of_a_session_needs_token_and_key(token: bool, key: bool, status: int) -> None:
    with server() as running, running.http() as http:
        path, secret = open_session(http)
        upgrade = {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }  # fmt: skip
        headers = upgrade | (AUTHORIZED if token else {}) | (secret if key else {})
        with plain_http.stream("GET", f"{running.url}{path}/stream", headers=headers) as answer:
            assert answer.status_code == status
            if status != 101:
                answer.read()
                assert answer.json()["code"] == "AuthenticationError"


def test_the_ready_descriptor_gets_the_address() -> None:
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.gateway.serve", "--port", "0", "--devices", "cpu", "--ready-fd", str(write)],
        pass_fds=[write], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    os.close(write)
    try:
        with os.fdopen(read) as ready:
            announced = json.loads(ready.read())
        assert announced["pid"] == process.pid
        assert plain_http.get(f"{announced['url']}/healthz").status_code == 200
        process.terminate()
        output, _ = process.communicate(timeout=DEADLINE)
        assert output == f"telegrad serves at {announced['url']}\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_a_port_that_is_taken_is_told_in_one_line() -> None:
    with server() as running:
        port = running.url.rpartition(":")[2]
        second = subprocess.run(
            [sys.executable, "-m", "server", "--port", port, "--devices", "cpu"], capture_output=True, text=True
        )
    assert second.returncode == 2
    assert second.stderr.splitlines()[-1] == f"telegrad-server: TELEGRAD_PORT: 127.0.0.1:{port}: Address already in use"


def test_tensors_stream_through_the_gateway_in_bounded_memory() -> None:
    size, piece = 192 << 20, os.urandom(1 << 20)
    with server() as running, running.http() as http:
        path, headers = open_session(http)
        target = f"{path}/tensors/1"
        gateway = psutil.Process(running.pid)
        before, peak = gateway.memory_info().rss, 0

        def pieces() -> Iterator[bytes]:
            nonlocal peak
            for _ in range(size >> 20):
                yield piece
                peak = max(peak, gateway.memory_info().rss)

        raw: dict[str, Any] = {"headers": headers | {"Content-Type": "application/octet-stream"}}
        params = {"dtype": "uint8", "shape": str(size)}
        answer = http.put(target, content=pieces(), params=params, **raw)
        assert answer.status_code == 201, answer.text
        received, seen = hashlib.sha256(), 0
        with http.stream("GET", target, headers=headers | {"Accept": "application/octet-stream"}) as response:
            for part in response.iter_bytes():
                received.update(part)
                seen += len(part)
                peak = max(peak, gateway.memory_info().rss)
        assert seen == size
        assert received.digest() == hashlib.sha256(piece * (size >> 20)).digest()
    assert peak - before < 64 << 20


def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind() -> None:
    with server() as running, running.http() as http:
        path, headers = open_session(http)

        def endless() -> Iterator[bytes]:
            yield bytes(4 << 20)
            raise KeyboardInterrupt

        params = {"dtype": "uint8", "shape": str(64 << 20)}
        binary = headers | {"Content-Type": "application/octet-stream"}
        with pytest.raises(KeyboardInterrupt), running.http() as leaving:
            leaving.put(f"{path}/tensors/1", content=endless(), params=params, headers=binary)
        http.put(f"{path}/tensors/2", content=bytes(64 << 20), params=params, headers=binary)
        with running.http() as leaving, leaving.stream("GET", f"{path}/tensors/2", headers=headers) as response:
            next(response.iter_bytes())
        until(lambda: http.post(f"{path}/ops", json={"op": "open"}, headers=headers).json()["detail"] == "[0, 0]")
        assert http.get(f"{path}/tensors/1", headers=headers).status_code == 404
        running.process.send_signal(signal.SIGINT)
        assert running.process.stderr is not None
        levels = {json.loads(line)["level"] for line in running.process.stderr}
    assert levels == {"INFO"}
