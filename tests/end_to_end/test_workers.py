"""Two workers in processes of their own: sessions are spread, and the end of one worker is no matter of the other's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from server.gateway.hardware import visible_gpus
from telegrad.__main__ import main
from telegrad.errors import ArgumentError, DeviceError, WorkerCrashedError
from tests.transport.waiting import wait_until

from .server_process import ServerProcess
from .test_training import Training

DEVICES = ["cpu;cpu", pytest.param("cuda:0;cuda:1", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES, scope="module")
def two_workers(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server with two workers, each with a device of its own; one that a test kills is replaced before its end."""
    if request.param != "cpu;cpu" and len(visible_gpus()) < 2:
        pytest.skip("needs two GPUs")
    with ServerProcess(TELEGRAD_DEVICES=request.param) as process:
        yield process


@pytest.fixture
def server(two_workers: ServerProcess) -> Iterator[ServerProcess]:
    """That server; a test leaves no session on it."""
    yield two_workers
    wait_until(lambda: not two_workers.sessions, "the sessions ended")


def states(server: ServerProcess) -> dict[int, tuple[str, int]]:
    """By worker, what it does and how often it was started again."""
    return {worker["worker"]: (worker["state"], worker["restarts"]) for worker in server.get("/readyz")["workers"]}


def test_sessions_are_spread_over_the_workers(server: ServerProcess) -> None:
    connections = [tg.connect(server.url) for _ in range(4)]
    assert Counter(connection.worker for connection in connections) == {0: 2, 1: 2}
    for connection in connections:
        connection.use()
        tensor = tg.full((3,), float(connection.worker))
        assert tensor.device.index in (None, 0)
        assert tensor.tolist() == [float(connection.worker)] * 3
    listed = {(device["worker"], device["sessions"]) for device in server.get("/v1/devices")}
    assert listed == {(0, 2), (1, 2)}
    connections.pop().disconnect()
    left = tg.connect(server.url)
    assert Counter(connection.worker for connection in [*connections, left]) == {0: 2, 1: 2}
    for connection in [*connections, left]:
        connection.disconnect()


def test_a_killed_worker_touches_no_session_of_another(server: ServerProcess) -> None:
    survivor, victim = tg.connect(server.url), tg.connect(server.url)
    assert {survivor.worker, victim.worker} == {0, 1}
    victim.use()
    lost = tg.ones(3)
    assert lost.tolist() == [1.0] * 3
    survivor.use()
    training = Training()
    losses = [training.step().item() for _ in range(5)]

    server.worker_process(victim.worker).kill()
    seen: list[str] = []
    while seen[-1:] != ["serving"] or "restarting" not in seen:
        losses.append(training.step().item())
        state = states(server)
        assert state[survivor.worker] == ("serving", 0)
        seen.append(state[victim.worker][0])
        answers = server.get("/metrics").splitlines()
        assert f'telegrad_worker_up{{worker="{survivor.worker}"}} 1.0' in answers
        assert any(f'worker="{survivor.worker}"' in line and "memory_bytes" in line for line in answers)
        assert server.get("/memory_stats", params={"device": "cpu"})
    assert states(server)[victim.worker] == ("serving", 1)
    assert survivor.session.transport.stats.reconnects == 0

    weights = [weight.detach().numpy() for weight in training.weights]
    again = Training()
    assert [again.step().item() for _ in losses] == losses
    assert all(np.array_equal(weight.detach().numpy(), known) for weight, known in zip(again.weights, weights))

    victim.use()
    with pytest.raises(WorkerCrashedError, match="SIGKILL"):
        wait_until(lambda: lost.tolist() is None, "the session is told")
    successor = tg.connect(server.url)
    assert successor.worker == victim.worker
    assert tg.ones(3).tolist() == [1.0] * 3
    for connection in (survivor, victim, successor):
        connection.disconnect()


def test_a_worker_that_hangs_keeps_no_other_back() -> None:
    with ServerProcess(TELEGRAD_DEVICES="cpu;cpu") as server, tg.connect(server.url) as survivor:
        hanging = 1 - survivor.worker
        process = server.worker_process(hanging)
        process.suspend()
        try:
            with ThreadPoolExecutor() as threads:
                metrics, devices = threads.map(server.get, ["/metrics", "/v1/devices"])
            assert f'telegrad_worker_up{{worker="{hanging}"}} 0.0' in metrics
            assert f'telegrad_worker_up{{worker="{survivor.worker}"}} 1.0' in metrics
            listed = {device["worker"]: (device["state"], device["pid"]) for device in devices}
            assert listed[hanging] == ("unresponsive", None)
            assert listed[survivor.worker][0] == "serving"
            with tg.connect(server.url) as connection:
                assert connection.worker == survivor.worker
        finally:
            process.resume()
        wait_until(lambda: states(server)[hanging] == ("serving", 0), "the worker answers again")
        with tg.connect(server.url) as connection:
            assert connection.worker == hanging


def test_a_private_server_may_have_several_workers(capsys: pytest.CaptureFixture[str]) -> None:
    with tg.connect(devices="cpu;cpu") as connection:
        assert connection._server is not None
        assert main(["devices", connection._server.url]) == 0
        lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [["worker", "0", "cpu"], ["worker", "1", "cpu"]]
    assert sorted(line.split("sessions")[0].split()[-1] for line in lines) == ["0", "1"]


def test_memory_is_each_workers_own(server: ServerProcess) -> None:
    first, second = tg.connect(server.url), tg.connect(server.url)
    names = {device["worker"]: device for device in server.get("/v1/devices") if device["session_device"] != "cpu"}
    first.use()
    held = tg.zeros(1 << 20)
    held.sum().item()
    stats: dict[str, Any] = server.get("/memory_stats")
    own, other = (
        names[connection.worker]["device"] if names else f"worker{connection.worker}/cpu"
        for connection in (first, second)
    )
    assert stats[own]["allocated_bytes.all.current"] >= 4 << 20
    assert stats[other]["allocated_bytes.all.current"] < 4 << 20
    assert f"device {own}" in server.get("/memory_summary", params={"device": own})
    of_session = server.get("/memory_stats", params={"session": first.id})
    assert own in of_session and other not in of_session
    for connection in (first, second):
        connection.disconnect()


def test_what_no_worker_has_is_refused_at_the_call() -> None:
    with ServerProcess(TELEGRAD_DEVICES="cpu") as server:
        with pytest.raises(DeviceError, match="no worker of this server has 2 GPUs; it has worker 0: cpu"):
            tg.connect(server.url, gpus=2)
        for wrong in (-1, 1.5, True):
            with pytest.raises(ArgumentError, match="gpus: expected a number of GPUs"):
                tg.connect(server.url, gpus=wrong)  # type: ignore[arg-type]
        with tg.connect(server.url, gpus=0) as connection:
            assert connection.worker == 0
