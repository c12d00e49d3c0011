"""Addresses that lead to no server: one short error names the fix, and nothing else takes the server's place."""

from __future__ import annotations

import http.server
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import telegrad as tg
from telegrad._transport.address import parse_address
from telegrad.errors import ArgumentTypeError, AuthenticationError, ConnectError

from .conftest import TOKEN
from .server_process import ServerProcess

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("http://gpu-node:8000", "http://gpu-node:8000"),
        (" http://gpu-node:8000/ \n", "http://gpu-node:8000"),
        ("gpu-node:9000", "http://gpu-node:9000"),
        ("gpu-node", "http://gpu-node:8000"),
        ("localhost:8000/", "http://localhost:8000"),
        ("https://host/behind/a/proxy/", "https://host/behind/a/proxy"),
        ("http://gpu-node", "http://gpu-node"),
        ("::1", "http://[::1]:8000"),
        ("[::1]", "http://[::1]:8000"),
        ("[::1]:9000", "http://[::1]:9000"),
        ("http://[fe80::1]:9000", "http://[fe80::1]:9000"),
        ("unix:/run/telegrad.sock", "unix:/run/telegrad.sock"),
        ("unix:///run/telegrad.sock", "unix:/run/telegrad.sock"),
        (" unix:/run/a socket/../b \n", "unix:/run/b"),
    ],
)
def test_what_an_address_means(written: str, meant: str) -> None:
    assert parse_address(written) == meant


@pytest.mark.parametrize(
    ("written", "fix"),
    [
        ("", "http://gpu-node:8000"),
        ("http://", "it names no host"),
        ("ftp://host:1", "http://host:1"),
        ("ws://host:1", "http://host:1"),
        ("wss://host:1", "https://host:1"),
        ("http:/host:1", "http://host:1"),
        ("https:host:1", "one colon"),
        ("http//host:1", "http://host:1"),
        ("8000", "http://localhost:8000"),
        ("unix:", "unix:/run/telegrad.sock"),
        ("unix:/" + "x" * 107, "longer than 107 bytes"),
        ("http://::1:9000", r"http://\[::1\]:9000"),
        ("http://host:99999", "up to 65535"),
        ("http://host:port", "up to 65535"),
        ("http://host:1:2", "one colon"),
        ("http://me:secret@host:1", r"connect\(token=...\)"),
        ("http://host:1/?token=x", "leave out"),
        ("http://host one", "http://gpu-node:8000"),
    ],
)
def test_a_mistyped_address_names_the_fix(written: str, fix: str) -> None:
    with pytest.raises(ConnectError, match=fix) as raised:
        tg.connect(written)
    assert_short(raised.value)
    with pytest.raises(ArgumentTypeError, match="expected an address"):
        tg.connect(8000)  # type: ignore[arg-type]


def assert_short(error: BaseException) -> None:
    """One error, of at most three lines, that no other one is chained to."""
    assert error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)
    assert 1 <= len(str(error).splitlines()) <= 3


def refused(address: str, **options: Any) -> str:
    """What ``connect`` says of an address where it cannot succeed."""
    with pytest.raises((ConnectError, AuthenticationError)) as raised:
        tg.connect(address, **options)
    assert_short(raised.value)
    return str(raised.value)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_nobody_listens() -> None:
    port = free_port()
    said = refused(f"localhost:{port}")
    assert f"nothing listens on port {port} of localhost" in said and "telegrad-server runs" in said


def test_an_unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    said = refused("http://no.such.host.invalid:8000")
    assert "'no.such.host.invalid' is not known here" in said and "does not heed HTTPS_PROXY" in said


def test_a_page_of_the_server_is_not_its_address(server: ServerProcess) -> None:
    for path in ("/docs", "/v1/sessions"):
        assert f"its address is {server.url}" in refused(server.url + path)


def test_https_where_the_server_speaks_http(server: ServerProcess) -> None:
    assert f"connect to {server.url} instead" in refused(server.url.replace("http", "https"))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_http_where_the_server_speaks_tls_and_a_certificate_that_nobody_trusts(tmp_path: Path) -> None:
    certificate, key = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with stranger(200, {}, b"", context) as address:
        said = refused(address)
        assert "does not answer as HTTP" in said and address.replace("http", "https") in said
        said = refused(address.replace("http", "https"))
        assert "certificate is not trusted" in said and "cafile" in said


@contextmanager
def stranger(status: int, headers: dict[str, str], body: bytes, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of something that answers every request the same way."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass  # a client that speaks the wrong protocol hangs up

    with Server(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "headers", "body", "said"),
    [
        (404, {"Content-Type": "text/html"}, b"<html>not here</html>", "is not a telegrad server (404"),
        (200, {"Content-Type": "text/html"}, b"<html>welcome</html>", "is not a telegrad server (200"),
        (500, {}, b"", "is not a telegrad server (500"),
        (502, {"Content-Type": "text/html"}, b"<html>bad gateway</html>", "a proxy answers at"),
        (308, {"Location": "https://elsewhere:1/"}, b"", "sends its visitors to https://elsewhere:1/"),
        (400, {}, b"The plain HTTP request was sent to HTTPS port", "wants TLS; connect to https://127.0.0.1"),
    ],
)
def test_something_else_at_the_address(status: int, headers: dict[str, str], body: bytes, said: str) -> None:
    with stranger(status, headers, body) as address:
        assert said in refused(address)


def test_a_token_that_is_missing_wrong_or_cannot_be_sent(guarded_server: ServerProcess) -> None:
    assert "wants a token\n  give connect(token=...)" in refused(guarded_server.url)
    assert "was given the wrong token" in refused(guarded_server.url, token="another-horse")
    assert "cannot be sent" in refused(guarded_server.url, token="höhe")
    with tg.connect(guarded_server.url, token=f"{TOKEN}\n"):
        assert tg.ones(1).item() == 1.0


def test_a_server_that_starts_its_worker_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    problem = {"code": "WorkerCrashedError", "detail": "the engine process is being started; try again in a moment"}
    headers = {"Content-Type": "application/problem+json", "Retry-After": "1"}
    monkeypatch.setattr("telegrad._session.handshake.WAIT_SECONDS", 1.5)
    with stranger(503, headers, json.dumps(problem).encode()) as address:
        assert "being started" in refused(address)
        assert [record.getMessage() for record in caplog.records] == [f"waiting for {address}: {problem['detail']}"]


def test_connect_succeeds_while_the_worker_is_restarted() -> None:
    with ServerProcess() as server:
        worker = server.worker
        worker.kill()
        worker.wait()
        with tg.connect(server.url):
            assert tg.ones(2).tolist() == [1.0, 1.0]


FAILED = """
import sys
import telegrad as tg
for _ in range(2):
    try:
        tg.connect(sys.argv[1]) if len(sys.argv) > 1 else tg.ones(2)
    except tg.errors.ConnectError as error:
        print("connect:", error)
try:
    print("a tensor:", tg.ones(2))
except tg.errors.ConnectError as error:
    print("ones:", error)
with tg.connect(sys.stdin.readline().strip()):
    print(tg.ones(2).tolist())
try:
    tg.ones(2)
except tg.errors.SessionLostError as error:
    print("after:", error)
"""


def test_no_private_server_takes_the_place_of_another(server: ServerProcess, start_program: Start) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    output, errors = start_program(FAILED, address).communicate(server.url + "\n")
    lines = [line for line in output.splitlines() if not line.startswith("  ")]
    assert lines[0] == lines[1] and lines[0].startswith(f"connect: cannot reach a telegrad server at {address}"), errors
    assert lines[2].startswith("ones: no session is open, since connect() failed: cannot reach")
    assert lines[3] == "[1.0, 1.0]"
    assert lines[4].startswith("after: no session is open") and "connect() opens another" in lines[4]


def test_the_address_of_the_environment_is_named(server: ServerProcess, start_program: Start) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    output, errors = start_program(FAILED, TELEGRAD_URL=address).communicate(server.url + "\n")
    said = [line for line in output.splitlines() if "cannot reach" in line]
    assert len(said) == 3 and all("(the address is that of TELEGRAD_URL)" in line for line in said), errors


def test_an_uncaught_error_is_one_short_traceback(start_program: Start) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    program = start_program(f"import telegrad as tg\ntg.connect({address!r})")
    _, errors = program.communicate()
    assert program.returncode == 1
    assert errors.count("Traceback") == 1 and errors.count('  File "') == 1, errors
    assert "httpx" not in errors and "During handling" not in errors


def test_operands_of_a_session_that_ended_say_so(server: ServerProcess) -> None:
    with tg.connect(server.url):
        old = tg.ones(2)
    with tg.connect(server.url):
        for use in (lambda: old + tg.ones(2), lambda: tg.cat([tg.ones(2), old]), lambda: tg.ones(2).add_(old)):
            with pytest.raises(tg.errors.SessionLostError, match="its tensors are gone"):
                use()
