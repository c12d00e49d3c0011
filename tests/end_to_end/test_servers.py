"""Servers that die, drain, refuse or are not there: what their clients are told, and what is left."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

import telegrad as tg
from telegrad.errors import (
    AuthenticationError,
    CommunicationError,
    ConnectError,
    HandshakeError,
    SessionLostError,
    WorkerCrashedError,
)  # fmt: skip
from telegrad_protocol.messages import PROTOCOL_VERSION
from tests.transport.waiting import wait_until

from .conftest import TOKEN
from .server_process import ServerProcess

Start = Callable[..., "subprocess.Popen[str]"]


def test_a_killed_worker_is_told_to_its_sessions_and_replaced() -> None:
    with ServerProcess() as server:
        first, second = tg.connect(server.url), tg.connect(server.url)
        first.use()
        tensor = tg.ones(3)
        assert tensor.tolist() == [1.0] * 3
        server.worker.kill()
        with pytest.raises(WorkerCrashedError, match="SIGKILL"):
            (tensor + 1).tolist()
        with pytest.raises(WorkerCrashedError):
            tensor.tolist()
        second.use()
        with pytest.raises(WorkerCrashedError):
            wait_until(lambda: tg.zeros(1).item() is None, "the second session is told")
        for connection in (first, second):
            assert "closed" in repr(connection)
            connection.disconnect()
        opened: list[Any] = []
        wait_until(lambda: opened.append(_connect(server.url)) or opened[-1] is not None, "a new worker is there")
        assert tg.ones(3).tolist() == [1.0] * 3
        opened[-1].disconnect()
        assert server.metric("telegrad_worker_restarts_total") == 1


def _connect(url: str) -> Any:
    try:
        return tg.connect(url)
    except CommunicationError:
        return None


def test_a_session_that_waits_is_told_of_the_crash() -> None:
    with ServerProcess() as server, tg.connect(server.url):
        matrix = tg.randn(1500, 1500)
        matrix.sum().item()
        worker = server.worker
        threading.Timer(0.3, worker.kill).start()
        with pytest.raises(WorkerCrashedError):
            for _ in range(1000):
                matrix = (matrix @ matrix).clamp(-1, 1)
                matrix.sum().item()


def test_sigterm_lets_sessions_finish_and_takes_no_new_ones() -> None:
    with ServerProcess(TELEGRAD_DRAIN_SECONDS="30") as server:
        with tg.connect(server.url):
            tensor = tg.ones(3)
            tensor.tolist()
            server.signal(signal.SIGTERM)
            wait_until(lambda: _refused(server.url), "new sessions are refused")
            assert (tensor * 2).tolist() == [2.0] * 3
        server.process.wait(20)


def _refused(url: str) -> bool:
    try:
        tg.connect(url).disconnect()
    except CommunicationError as error:
        assert str(error)
        return True
    return False


def test_a_session_beyond_the_drain_is_told() -> None:
    with ServerProcess(TELEGRAD_DRAIN_SECONDS="0.2") as server, tg.connect(server.url):
        tensor = tg.ones(3)
        tensor.tolist()
        server.signal(signal.SIGTERM)
        server.process.wait(20)
        with pytest.raises(SessionLostError):
            tensor.tolist()


@pytest.mark.parametrize("token", [None, "wrong-horse-battery"])
def test_a_wrong_token_is_refused(guarded_server: ServerProcess, token: str | None) -> None:
    with pytest.raises(AuthenticationError, match="token"):
        tg.connect(guarded_server.url, token=token)
    with tg.connect(guarded_server.url, token=TOKEN):
        assert tg.ones(1).item() == 1.0


def test_an_address_where_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectError, match=f"http://127.0.0.1:{port}"):
        tg.connect(f"http://127.0.0.1:{port}")
    for address in ("127.0.0.1:8000", "http://", "http://no.such.host.invalid", "ftp://x"):
        with pytest.raises(ConnectError):
            tg.connect(address)


class _Other(BaseHTTPRequestHandler):
    """Answers as a server of another version would."""

    answer: dict[str, Any]

    def do_POST(self) -> None:
        body = json.dumps(self.answer).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def other_server() -> Iterator[str]:
    """The address of something that is no server of ours."""
    with HTTPServer(("127.0.0.1", 0), _Other) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()
        thread.join()


HELLO: dict[str, Any] = {
    "session": "x", "key": "x", "protocol": PROTOCOL_VERSION, "server_version": "9.9.9", "table_hash": "x",
    "dtypes": [], "devices": ["cpu"], "default_device": "cpu", "limits": {}, "lease_seconds": 60.0,
}  # fmt: skip


@pytest.mark.parametrize("answer", [HELLO, HELLO | {"protocol": 99}])
def test_another_version_is_refused_by_name(other_server: str, answer: dict[str, Any]) -> None:
    _Other.answer = answer
    with pytest.raises(HandshakeError, match=r"9\.9\.9.*install the same version"):
        tg.connect(other_server)


@pytest.mark.parametrize("answer", [{}, {"session": 5}, []])
def test_something_else_at_the_address_is_refused(other_server: str, answer: Any) -> None:
    _Other.answer = answer
    with pytest.raises(HandshakeError, match="does not answer as this version"):
        tg.connect(other_server)


PRIVATE = """
import os, sys, time
import telegrad as tg
connection = tg.connect(devices="cpu")
print(connection._server._process.pid, tg.ones(2).tolist(), flush=True)
if sys.argv[1] == "raise":
    raise RuntimeError("an error of the program")
if sys.argv[1] == "wait":
    sys.stdin.read()
if sys.argv[1] == "_exit":
    os._exit(3)
"""


@pytest.mark.parametrize("end", ["return", "raise", "_exit", "kill", "interrupt"])
def test_a_private_server_is_gone_with_its_client(start_program: Start, end: str) -> None:
    program = start_program(PRIVATE, "wait" if end in ("kill", "interrupt") else end)
    assert program.stdout is not None
    pid, values = program.stdout.readline().split(" ", 1)
    assert values == "[1.0, 1.0]\n"
    try:
        server = psutil.Process(int(pid))
        processes = [server, *server.children(recursive=True)]
    except psutil.NoSuchProcess:
        processes = []
    if end == "kill":
        program.kill()
    elif end == "interrupt":
        program.send_signal(signal.SIGINT)
    program.wait(30)
    wait_until(lambda: not any(_is_alive(process) for process in processes), "the private server ended")


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


FORKED = """
import os, sys
import telegrad as tg
connection = tg.connect(devices="cpu")
x = tg.ones(2)
child = os.fork()
if not child:
    try:
        x.tolist()
    except tg.errors.CommunicationError as error:
        print(error, flush=True)
    sys.exit()
os.waitpid(child, 0)
print(x.tolist(), flush=True)
"""


def test_a_forked_child_leaves_the_session_to_its_parent(start_program: Start) -> None:
    output, errors = start_program(FORKED).communicate()
    told, values = output.splitlines()
    assert "belongs to the process that was forked" in told, errors
    assert values == "[1.0, 1.0]", errors


def test_a_private_server_ends_with_its_connection() -> None:
    with tg.connect(devices="cpu") as connection:
        assert connection._server is not None
        process = psutil.Process(connection._server._process.pid)
        processes = [process, *process.children()]
        assert len(processes) == 2
        assert tg.ones(2).tolist() == [1.0, 1.0]
    assert not any(each.is_running() for each in processes)


def test_a_private_server_that_was_killed_leaves_no_socket() -> None:
    with tg.connect(devices="cpu") as connection:
        server = connection._server
        assert server is not None
        folder = Path(server.url.removeprefix("unix:")).parent
        assert folder.is_dir()
        assert tg.ones(2).sum().item() == 2  # so that all that was queued, by earlier tests' settings too, is confirmed
        server._process.kill()
    assert not folder.exists()


UNCONNECTED = """
import telegrad as tg
print(tg.ones(2).tolist(), tg.zeros(2)._session is tg.ones(2)._session)
tg.disconnect()
try:
    tg.ones(2)
except tg.errors.SessionLostError as error:
    print(error)
"""


def test_without_an_address_the_first_tensor_starts_a_private_server(start_program: Start) -> None:
    output, errors = start_program(UNCONNECTED, TELEGRAD_DEVICES="cpu").communicate()
    first, second = output.splitlines()
    assert first == "[1.0, 1.0] True", errors
    assert "no session is open" in second


def test_the_address_may_come_from_the_environment(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAD_URL", server.url)
    with tg.connect() as connection:
        assert connection._server is None
        assert tg.ones(2).tolist() == [1.0, 1.0]


def test_a_closed_session_says_so(server: ServerProcess) -> None:
    with tg.connect(server.url) as connection:
        tensor = tg.ones(2)
    assert repr(connection) == f"<telegrad session {connection.id}, closed, devices cpu>"
    for use in (lambda: tensor + 1, tensor.tolist, lambda: repr(tensor)):
        with pytest.raises(SessionLostError, match=r"connect\(\)"):
            use()
    connection.disconnect()
