"""A server that all tests of a run share, sessions on it, and programs in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import telegrad
from telegrad._session.catching import prompt_errors
from tests.support.pytorch_process import PyTorchProcess, pytorch_process

from ..transport.waiting import wait_until
from .server_process import ROOT, ServerProcess, clean_environment

LEASE_SECONDS = 4.0
TOKEN = "correct-horse-battery"


@pytest.fixture(autouse=True)
def _errors_stay_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no call wait for its error within ``pytest.raises``: these tests are about errors that come later."""
    monkeypatch.setattr(prompt_errors, "_clause_that_waits", lambda how: None)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[ServerProcess]:
    """One that is never killed, with a short lease, which tells its tracebacks."""
    with ServerProcess(TELEGRAD_LEASE_SECONDS=str(LEASE_SECONDS), TELEGRAD_DEBUG="1") as process:
        yield process


@pytest.fixture
def server(shared_server: ServerProcess) -> Iterator[ServerProcess]:
    """The shared server; a test leaves no session and no byte on it."""
    yield shared_server
    wait_until(lambda: not shared_server.sessions, "the sessions ended")
    assert shared_server.allocated_bytes == 0


@pytest.fixture(scope="session")
def guarded_server() -> Iterator[ServerProcess]:
    """One that wants ``TOKEN``, and is never killed."""
    with ServerProcess(TELEGRAD_TOKEN=TOKEN) as process:
        yield process


@pytest.fixture
def tg(server: ServerProcess) -> Iterator[Any]:
    """The client library on a session of its own, over a Unix socket with a direct channel; others use TCP."""
    with telegrad.connect(server.unix):
        yield telegrad


@pytest.fixture
def unbounded_tg(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The same, with no bound on what may be queued ahead."""
    monkeypatch.setenv("TELEGRAD_MAX_AHEAD_SECONDS", "inf")
    with telegrad.connect(server.unix):
        yield telegrad


@pytest.fixture(scope="session")
def pytorch() -> Iterator[PyTorchProcess]:
    """Runs programs under PyTorch, each in a process of its own."""
    with pytorch_process() as process:
        yield process


@pytest.fixture
def start_program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python programs; those that still run at the end of the test are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str, *args: str, **variables: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", text, *args]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        program = subprocess.Popen(command, env=clean_environment(**variables), cwd=ROOT, text=True, **pipes)  # type: ignore[call-overload]
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()
        program.communicate()
