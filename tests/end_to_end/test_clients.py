"""Several clients of one server: whatever one of them does, the others do not notice."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

import telegrad as tg
from telegrad.errors import IndexOutOfRangeError
from tests.transport.waiting import wait_until

from .server_process import ServerProcess

Start = Callable[..., "subprocess.Popen[str]"]

HOLDER = """
import sys
import telegrad as tg
tg.connect(sys.argv[1])
kept = [tg.full((1000,), float(sys.argv[2])) for _ in range(100)]
tg.cuda.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "raise":
        raise SystemExit(repr(tg.zeros(3)[tg.tensor([7])].tolist()))
    print(kept[int(line)].tolist()[0], len(kept), flush=True)
"""


def _ask(client: subprocess.Popen[str], number: int) -> str:
    assert client.stdin is not None and client.stdout is not None
    client.stdin.write(f"{number}\n")
    client.stdin.flush()
    return client.stdout.readline().strip()


def _start_two(server: ServerProcess, start_program: Start) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    first, second = (start_program(HOLDER, server.url, value) for value in ("1", "2"))
    for client in (first, second):
        assert client.stdout is not None and client.stdout.readline() == "ready\n"
    return first, second


def test_equal_ids_are_different_tensors(server: ServerProcess) -> None:
    with tg.connect(server.url) as first, tg.connect(server.url) as second:
        first.use()
        a = tg.full((3,), 1.0)
        second.use()
        b = tg.full((3,), 2.0)
        assert a._id == b._id
        assert (a.tolist(), b.tolist()) == ([1.0] * 3, [2.0] * 3)
        with pytest.raises(RuntimeError, match="different sessions"):
            a + b


@pytest.mark.parametrize("end", ["leave", "die", "err"])
def test_a_client_that_ends_changes_nothing_for_another(server: ServerProcess, start_program: Start, end: str) -> None:
    wait_until(lambda: not server.allocated_bytes, "the server was idle")
    first, second = _start_two(server, start_program)
    assert server.allocated_bytes >= 2 * 400_000
    assert (_ask(first, 5), _ask(second, 5)) == ("1.0 100", "2.0 100")
    if end == "die":
        first.send_signal(signal.SIGKILL)
        first.wait()
    else:
        _, problem = first.communicate("raise" if end == "err" else None)
        assert ("IndexOutOfRangeError" in problem) == (end == "err")
    wait_until(lambda: server.sessions == 1, "the session of the first client ended")
    assert 400_000 <= server.allocated_bytes < 2 * 400_000
    assert _ask(second, 99) == "2.0 100"
    second.communicate()
    wait_until(lambda: server.sessions == 0, "the session of the second client ended")
    assert server.allocated_bytes == 0


def test_the_failure_of_one_session_is_not_seen_by_another(server: ServerProcess) -> None:
    with tg.connect(server.url) as first, tg.connect(server.url) as second:
        first.use()
        bad = tg.zeros(3).index_select(0, tg.tensor([5]))
        second.use()
        good = tg.ones(2)
        assert (good + good).tolist() == [2.0, 2.0]
        with pytest.raises(IndexOutOfRangeError):
            bad.tolist()
        assert (good * 3).tolist() == [3.0, 3.0]


def test_seeds_modes_and_types_belong_to_a_session(server: ServerProcess) -> None:
    with tg.connect(server.url) as first, tg.connect(server.url) as second:
        drawn: list[Any] = []
        for connection in (first, second, first, second):
            connection.use()
            if len(drawn) < 2:
                tg.manual_seed(3)
            drawn.append(tg.rand(4).tolist())
        assert drawn[0] == drawn[1] and drawn[2] == drawn[3] != drawn[0]
