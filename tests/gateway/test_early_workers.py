"""Workers whose processes are started before it is known what for."""

from __future__ import annotations

import asyncio
import signal
import subprocess

import pytest

from server.__main__ import main
from server.gateway.device_groups import DeviceGroup
from server.gateway.workers import early
from server.gateway.workers.limits import Limits
from server.gateway.workers.process import ENGINE, WorkerProcess
from telegrad_protocol.errors import ConfigurationError


async def _pids_of_two_workers() -> list[int]:
    """Start two workers one after the other and return their processes, which have said that they serve."""
    pids = []
    for number in range(2):
        worker = WorkerProcess(number, DeviceGroup(("cpu",)), ENGINE, "ERROR", Limits())
        assert (await worker.hello)["devices"]
        pids.append(worker.pid)
        await worker.stop()
    return pids


def test_a_process_that_waits_becomes_the_next_worker_and_no_other() -> None:
    early.begin()
    [(_, waiting)] = early._waiting
    first, second = asyncio.run(_pids_of_two_workers())
    assert first == waiting.pid != second
    assert waiting.returncode == 0


def test_a_process_that_died_while_it_waited_is_not_missed() -> None:
    early.begin()
    [(_, waiting)] = early._waiting
    waiting.kill()
    assert waiting.wait() == -signal.SIGKILL
    assert waiting.pid not in asyncio.run(_pids_of_two_workers())


def test_a_server_that_cannot_start_ends_the_process_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    def refuse(*_: object) -> None:
        begun.extend(process for _, process in early._waiting)
        raise ConfigurationError("TELEGRAD_PORT: in use")

    monkeypatch.setattr("server.__main__._serve", refuse)
    monkeypatch.setattr("server.__main__.configure_logs", lambda level: None)
    assert main(["--devices", "cpu"]) == 2
    assert [process.returncode for process in begun] == [-signal.SIGKILL] and not early._waiting


def test_a_process_that_waits_ends_with_its_gateway() -> None:
    early.begin()
    gateway, waiting = early._waiting.pop()
    gateway.close()
    assert waiting.wait() == 0
