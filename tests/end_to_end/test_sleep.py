"""Clients that are stopped, as on a computer that sleeps, while their connection is lost."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable

import pytest

import telegrad
from telegrad_protocol.errors import ArgumentError

from ..transport.fault_proxy import FaultProxy
from ..transport.waiting import wait_until
from .conftest import LEASE_SECONDS
from .server_process import ServerProcess

LONG_LEASE_SECONDS = 5 * LEASE_SECONDS
COUNTER = """
import sys
import telegrad as tg

connection = tg.connect(sys.argv[1], lease=float(sys.argv[2]) if len(sys.argv) > 2 else None)
total = tg.zeros(1000, dtype=tg.float64)
big = tg.tensor(list(range(50000)), dtype=tg.float64)
print("ready", connection.lease, flush=True)
for line in sys.stdin:
    try:
        for _ in range(int(line)):
            total += 1
        print(total[0].item(), total[999].item(), big.sum().item() == sum(range(50000)), flush=True)
    except tg.TelegradError as error:
        print(type(error).__name__, error.message, flush=True)
"""
BUSY = """
import sys
import telegrad as tg

tg.connect(sys.argv[1], lease=float(sys.argv[2]))
total = tg.zeros(1, dtype=tg.float64)
count = 0
print("ready", flush=True)
import threading
stopped = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stopped.set()), daemon=True).start()
while not stopped.is_set():
    total += 1
    count += 1
    if count % 1000 == 0:
        total.add_(tg.ones(50000, dtype=tg.float64).cpu().sum() * 0)
        assert total.item() == count
print(total.item(), count, flush=True)
"""

Start = Callable[..., subprocess.Popen[str]]


def _say(program: subprocess.Popen[str], line: str) -> None:
    assert program.stdin is not None
    program.stdin.write(line + "\n")
    program.stdin.flush()


def _hear(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


@pytest.fixture
def proxy(server: ServerProcess) -> FaultProxy:
    """A proxy before the shared server, which a test enters."""
    return FaultProxy(server.port)


@pytest.mark.parametrize("loss", ["none", "reset", "silent"])
def test_a_client_that_slept_goes_on(server: ServerProcess, proxy: FaultProxy, start_program: Start, loss: str) -> None:
    """A second client, which asked for no lease and sleeps as long, is what tells that the usual lease is over."""
    with proxy:
        sleeper = start_program(COUNTER, f"http://127.0.0.1:{proxy.port}", str(LONG_LEASE_SECONDS))
        usual = start_program(COUNTER, server.url)
        assert _hear(sleeper) == f"ready {LONG_LEASE_SECONDS}"
        assert _hear(usual) == f"ready {LEASE_SECONDS}"
        for program in (sleeper, usual):
            _say(program, "100")
            assert _hear(program) == "100.0 100.0 True"
            program.send_signal(signal.SIGSTOP)
        _say(sleeper, "150")
        if loss == "reset":
            proxy.cut_now()
        elif loss == "silent":
            proxy.silence_now()
        wait_until(lambda: server.sessions == 1, "the lease of the client with the usual lease ended")
        for program in (sleeper, usual):
            program.send_signal(signal.SIGCONT)
        assert _hear(sleeper) == "250.0 250.0 True"
        _say(usual, "1")
        assert _hear(usual).startswith("SessionLostError nothing was heard")
        assert (proxy.connections > 2) is (loss != "none")  # one to open the session, one for its stream
        sleeper.communicate()


@pytest.mark.parametrize("loss", ["reset", "silent"])
def test_nothing_is_lost_or_repeated_in_the_middle_of_work(proxy: FaultProxy, start_program: Start, loss: str) -> None:
    with proxy:
        program = start_program(BUSY, f"http://127.0.0.1:{proxy.port}", str(LONG_LEASE_SECONDS))
        assert _hear(program) == "ready"
        for _ in range(3 if loss == "reset" else 1):
            connections = proxy.connections
            program.send_signal(signal.SIGSTOP)
            proxy.cut_now() if loss == "reset" else proxy.silence_now()
            program.send_signal(signal.SIGCONT)
            wait_until(lambda: proxy.connections > connections, "the client connected again")  # noqa: B023
        _say(program, "stop")
        total, count = _hear(program).split()
        assert float(total) == int(count) > 0
        program.communicate()


def test_a_lease_that_is_too_long_is_an_error_of_its_own_kind(server: ServerProcess) -> None:
    with pytest.raises(ArgumentError, match=r"lease: 1e\+06 s is longer than this server grants, 86400 s"):
        telegrad.connect(server.url, lease=1e6)
    for wrong in (0, -1, float("nan"), "60", True):
        with pytest.raises(ArgumentError, match="lease: expected a number of seconds"):
            telegrad.connect(server.url, lease=wrong)  # type: ignore[arg-type]
