"""Instructions that take too long, in a worker that others share: the session that sent them ends, and they go on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import pytest

import telegrad as tg
from server.gateway.workers.watchdog import Watchdog
from server.ipc.heartbeat import BEGIN, SESSION, Heartbeat
from telegrad.errors import LimitExceededError, WorkerCrashedError
from tests.end_to_end.server_process import ServerProcess
from tests.support import plain_http
from tests.transport.waiting import wait_until

F = tg.nn.functional


@pytest.fixture(scope="module")
def limited() -> Iterator[ServerProcess]:
    """A server whose instructions may take half a second; it has loaded compiled loops, which may take longer."""
    with ServerProcess(TELEGRAD_INSTRUCTION_SECONDS="0.5", TELEGRAD_OPERATION_WORK="inf") as server:
        with tg.connect(server.url), contextlib.suppress(LimitExceededError):
            F.conv2d(tg.ones(1, 1, 1 << 10, 1 << 10), tg.ones(1, 1, 3, 3)).sum().item()
        yield server


def nested_gradients() -> None:
    x = tg.ones(1, requires_grad=True)
    y = x.tanh() * x.exp() * x.sigmoid()
    for _ in range(14):
        (y,) = tg.autograd.grad(y.sum(), x, create_graph=True)
    y.item()


def pooling_of_huge_windows() -> None:
    F.avg_pool1d(tg.ones(1, 1, 2_000_000), 1_000_000, stride=1).sum().item()


def many_columns() -> None:
    F.conv2d(tg.ones(32, 256, 32, 32), tg.ones(256, 256, 9, 9)).sum().item()


def long_attention() -> None:
    q = tg.ones(1, 8, 16_384, 64)
    F.scaled_dot_product_attention(q, q, q).sum().item()


def long_sequence() -> None:
    tg.nn.LSTM(8, 8)(tg.ones(200_000, 1, 8))[0].sum().item()


@pytest.mark.parametrize(
    "attack", [nested_gradients, pooling_of_huge_windows, many_columns, long_attention, long_sequence]
)
def test_work_that_is_done_step_by_step_is_cancelled(limited: ServerProcess, attack: Callable[[], None]) -> None:
    restarts = limited.metric("telegrad_worker_restarts_total")
    with tg.connect(limited.url) as victim:
        held = tg.arange(1000)
        attacker = tg.connect(limited.url)
        limit = r"took longer than 0.5 s, which is the limit \(TELEGRAD_INSTRUCTION_SECONDS\)"
        with pytest.raises(LimitExceededError, match=limit) as told:
            attack()
        assert __file__ in told.value.site
        assert not attacker.session.is_open
        attacker.end()
        victim.use()
        assert held.sum().item() == 499_500
        wait_until(lambda: limited.sessions == 1, "the attacker's session is gone")
    assert limited.metric("telegrad_worker_restarts_total") == restarts
    wait_until(lambda: limited.allocated_bytes == 0, "nothing of it is held")


def test_over_http_the_caller_gets_the_error(limited: ServerProcess) -> None:
    def send(method: str, path: str, **rest: Any) -> httpx.Response:
        return plain_http.request(method, limited.url + path, timeout=60, **rest)

    opened = send("POST", "/v1/sessions", json={}).json()
    session, headers = f"/v1/sessions/{opened['session']}", {"Telegrad-Session-Key": opened["key"]}
    steps: list[dict[str, Any]] = [
        {"op": "ones", "args": [[1, 1, 2_000_000]], "out": 1},
        {"op": "avg_pool1d", "args": [{"tensor": 1}, [1_000_000], [1]], "out": 2},
    ]
    answer = send("POST", f"{session}/ops", json=steps, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "LimitExceededError"), answer.text
    wait_until(lambda: not limited.sessions, "the session has ended")
    assert send("POST", f"{session}/ops", json=steps[:1], headers=headers).status_code == 410


def test_what_cannot_be_cancelled_ends_the_worker_and_everybody_is_told_why(limited: ServerProcess) -> None:
    victim = tg.connect(limited.url)
    held = tg.arange(1000)
    assert held.sum().item() == 499_500
    restarts = limited.metric("telegrad_worker_restarts_total")
    attacker = tg.connect(limited.url)
    with pytest.raises(LimitExceededError, match=r"an instruction of this session took longer than 0.5 s"):
        tg.linalg.svd(tg.eye(1500, dtype=tg.complex128) + 1)[1].sum().item()
    attacker.end()
    victim.use()
    with pytest.raises(WorkerCrashedError, match="was ended, since an instruction of one of its sessions took longer"):
        wait_until(lambda: held.tolist() is None, "the other session is told")
    victim.end()
    with tg.connect(limited.url):
        assert tg.ones(3).sum().item() == 3
    assert limited.metric("telegrad_worker_restarts_total") == restarts + 1


def test_in_a_worker_of_its_own_it_ends_no_other_session(limited: ServerProcess) -> None:
    with tg.connect(limited.url) as victim:
        held = tg.arange(1000)
        attacker = tg.connect(limited.url, own_worker=True)
        with pytest.raises(LimitExceededError, match=r"took longer than 0.5 s"):
            tg.linalg.svd(tg.eye(1500, dtype=tg.complex128) + 1)[1].sum().item()
        attacker.end()
        victim.use()
        assert held.sum().item() == 499_500


def test_a_hanging_worker_is_told_of_and_keeps_no_end_back() -> None:
    def open_session() -> tuple[str, dict[str, str]]:
        opened = plain_http.post(server.url + "/v1/sessions", json={}).json()
        return f"{server.url}/v1/sessions/{opened['session']}", {"Telegrad-Session-Key": opened["key"]}

    with ServerProcess() as server:
        (path, headers), _ = open_session(), open_session()
        worker = server.worker
        worker.suspend()
        with ThreadPoolExecutor() as threads:
            metrics = threads.submit(server.get, "/metrics")
            assert plain_http.delete(path, headers=headers, timeout=60).status_code == 204
            metrics.result()
        wait_until(lambda: "worker 0 (cpu) unresponsive" in readiness(server), "it is told that the worker hangs")
        server.signal(signal.SIGTERM)
        wait_until(lambda: "shutting down" in readiness(server), "the server drains")
        server.signal(signal.SIGTERM)
        assert server.process.wait() == 0
        assert not worker.is_running()


def readiness(server: ServerProcess) -> str:
    answer = plain_http.get(server.url + "/readyz")
    return str(answer.json()["detail"]) if answer.status_code == 503 else ""


@pytest.mark.gpu
def test_a_kernel_that_does_not_end_ends_the_worker() -> None:
    with ServerProcess(TELEGRAD_DEVICES="cuda:0", TELEGRAD_INSTRUCTION_SECONDS="5") as server:
        victim = tg.connect(server.url)
        held = tg.arange(1000, device="cuda")
        assert held.sum().item() == 499_500
        attacker = tg.connect(server.url)
        with pytest.raises(LimitExceededError, match="a kernel on the device of this session took longer than 5 s"):
            F.max_pool1d(tg.ones(1, 1, 16_000_000, device="cuda"), 4_000_000, stride=1).sum().item()
        attacker.end()
        victim.use()
        with pytest.raises(WorkerCrashedError, match="was ended, since a kernel on the device of one of its sessions"):
            wait_until(lambda: held.tolist() is None, "the other session is told")
        victim.end()
        with tg.connect(server.url):
            assert tg.ones(3, device="cuda").sum().item() == 3


class _Ended(NamedTuple):
    reason: str
    session: int
    error: Exception


class _Process:
    """A worker process that says what it is ended for."""

    number, oldest_request = 0, 0.0
    pid = 1 << 22
    """No process has a number as large."""

    def __init__(self) -> None:
        self.heartbeat = Heartbeat()
        self.events: Any = SimpleNamespace(watchdog_acted=lambda *told: None)
        self.ended: list[_Ended] = []
        self.goes_on = False

    @property
    def alive(self) -> bool:
        return not (self.ended or self.goes_on)

    def kill(self, reason: str, session: int, error: Exception) -> None:
        self.ended.append(_Ended(reason, session, error))
        self.on_end()

    def on_end(self) -> None:
        """Let others go on that this one has held up."""

    async def request(self, *_: object) -> None:
        """Answer a ping."""


@pytest.mark.parametrize(
    ("waits", "ended", "limit"),
    [
        ([(5, False), (6, True)], 6, "KERNEL_SECONDS"), ([(7, True), (5, False)], 7, "KERNEL_SECONDS"),
        ([(5, False)], 5, "INSTRUCTION_SECONDS"),
    ],
)  # fmt: skip
def test_who_has_kernels_of_its_own_has_a_limit_of_its_own(
    waits: list[tuple[int, bool]], ended: int, limit: str
) -> None:
    process: Any = _Process()
    try:
        for session, has_kernels in waits:
            process.heartbeat.note_wait(session, False, has_kernels)
        began = time.perf_counter()
        asyncio.run(Watchdog(process, 0.5, 0.1).run())
        passed = time.perf_counter() - began
        (told,) = process.ended
        assert told.session == ended and isinstance(told.error, LimitExceededError) and limit in str(told.error)
        assert passed >= (0.1 if limit.startswith("KERNEL") else 0.5)
    finally:
        process.heartbeat.close()


def test_a_worker_that_hangs_ends_before_those_whose_device_it_holds_up() -> None:
    """One hangs in a call of the driver, and the other waits for the same GPU since the same time."""
    hanging, waiting = _Process(), _Process()

    def go_on() -> None:
        waiting.heartbeat.end_wait(5)
        waiting.goes_on = True

    hanging.on_end = go_on  # type: ignore[method-assign]

    async def watch() -> None:
        processes: list[Any] = [hanging, waiting]
        await asyncio.gather(*[Watchdog(process, 0.2, 0.1).run() for process in processes])

    try:
        waiting.heartbeat.note_wait(5, False)
        hanging.heartbeat.numbers[BEGIN] = time.perf_counter()
        hanging.heartbeat.numbers[SESSION] = 9
        asyncio.run(watch())
        (told,) = hanging.ended
        assert told.session == 9 and isinstance(told.error, LimitExceededError)
        assert not waiting.ended, "who only waits goes on"
    finally:
        hanging.heartbeat.close()
        waiting.heartbeat.close()
