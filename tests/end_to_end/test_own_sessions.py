"""``telegrad sessions``: a user's own sessions on a server, listed and ended from a shell."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import telegrad
from telegrad.__main__ import main
from telegrad_protocol.errors import AuthenticationError, ConfigurationError
from tests.support import plain_http

from ..transport.waiting import wait_until
from .conftest import TOKEN
from .server_process import ServerProcess, clean_environment

Start = Callable[..., subprocess.Popen[str]]
MINE, OTHER = "mine-mine-mine-mine", "other-other-other-other"
HOLD = """
import sys
import telegrad as tg
connection = tg.connect(sys.argv[1], lease=60)
x = tg.zeros(1 << 20)
tg.kept["x"] = x
print(connection.id, flush=True)
sys.stdin.readline()
try:
    x.sum().item()
except tg.TelegradError as error:
    print(type(error).__name__, error.message, flush=True)
"""


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TELEGRAD_OWNER", MINE)
    return MINE


def _shell(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "telegrad", *arguments]
    return subprocess.run(command, env=clean_environment(**variables), capture_output=True, text=True)


def test_ones_own_sessions_are_listed_and_ended(
    guarded_server: ServerProcess,
    start_program: Start,
    owner: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def shell(*arguments: str) -> tuple[int, str, str]:
        status = main(["sessions", *arguments])
        return (status, *capsys.readouterr())

    variables = {"TELEGRAD_TOKEN": TOKEN, "TELEGRAD_URL": guarded_server.url}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    program = start_program(HOLD, guarded_server.url, **(variables | {"TELEGRAD_OWNER": owner}))
    other = start_program(HOLD, guarded_server.url, **(variables | {"TELEGRAD_OWNER": OTHER}))
    assert program.stdout is not None and other.stdout is not None
    session, foreign = program.stdout.readline().strip(), other.stdout.readline().strip()
    listed = _shell("sessions", **(variables | {"TELEGRAD_OWNER": owner}))
    assert (listed.returncode, listed.stderr) == (0, "") and session in shell()[1]
    title, row = listed.stdout.splitlines()
    assert title.split()[:3] == ["SESSION", "OPENED", "IDLE"]
    assert session in row and foreign not in listed.stdout
    assert "in use" in row and "cpu 4.0 MiB" in row and f"process {program.pid}" in row
    refused = shell("end", foreign)
    assert refused[:2] == (1, "") and "belongs to another owner" in refused[2]
    assert shell("end", session, guarded_server.url) == (0, f"ended session {session}\n", "")
    assert shell() == (0, f"you have no session at {guarded_server.url}\n", "")
    assert "ended" in shell("end", session)[2]
    assert program.communicate("go\n")[0].startswith("SessionLostError its owner has ended the session")
    assert other.communicate("go\n")[0] == ""
    monkeypatch.setenv("TELEGRAD_TOKEN", "")
    status, _, errors = shell()
    assert status == 1 and "token" in errors


def test_a_session_whose_program_died_is_found_and_taken_over_without_a_key(
    server: ServerProcess, start_program: Start, owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = start_program(HOLD, server.url, TELEGRAD_OWNER=owner)
    assert program.stdout is not None
    session = program.stdout.readline().strip()
    program.kill()
    program.wait()

    def listed() -> str:
        assert main(["sessions", server.url]) == 0
        return capsys.readouterr().out

    wait_until(lambda: "detached" in listed(), "the server noticed that the client is gone")
    assert session in listed()
    connection = telegrad.connect(server.url, session=session)
    assert telegrad.kept["x"].shape == (1 << 20,)
    assert connection.key
    connection.disconnect()


def test_nobody_else_takes_a_session_over_without_its_key(
    server: ServerProcess, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    telegrad.connect(server.url)
    left = telegrad.detach()
    monkeypatch.setenv("TELEGRAD_OWNER", OTHER)
    with pytest.raises(AuthenticationError, match="another owner; its key is needed"):
        telegrad.connect(server.url, session=left.session)
    for headers in ({}, {"Telegrad-Owner": OTHER}, {"Telegrad-Owner": ""}, {"Telegrad-Session-Key": ""}):
        url = f"{server.url}/v1/sessions"
        assert plain_http.post(f"{url}/{left.session}/attach", json={}, headers=headers).status_code == 403
        assert plain_http.delete(f"{url}/{left.session}", headers=headers).status_code == 403
        assert plain_http.get(url, headers=headers).json() == []
    monkeypatch.setenv("TELEGRAD_OWNER", MINE)
    described: dict[str, Any] = plain_http.get(f"{server.url}/v1/sessions", headers={"Telegrad-Owner": MINE}).json()[0]
    assert left.key not in str(described) and MINE not in str(described)
    assert described["session"] == left.session and not described["in_use"]
    telegrad.connect(left.url, session=left.session, key=left.key).disconnect()


def test_sessions_that_were_opened_without_an_owner_are_nobodys(server: ServerProcess) -> None:
    opened = plain_http.post(f"{server.url}/v1/sessions", json={}).json()
    for headers in ({}, {"Telegrad-Owner": ""}, {"Telegrad-Owner": OTHER}):
        assert plain_http.get(f"{server.url}/v1/sessions", headers=headers).json() == []
    short = plain_http.post(f"{server.url}/v1/sessions", json={}, headers={"Telegrad-Owner": "short"})
    assert (short.status_code, short.json()["code"]) == (422, "ArgumentError")
    key = {"Telegrad-Session-Key": opened["key"]}
    assert plain_http.delete(f"{server.url}/v1/sessions/{opened['session']}", headers=key).status_code == 204


def test_the_owners_secret_is_made_once_and_readable_by_the_user_alone(
    server: ServerProcess, tmp_path: Path, start_program: Start
) -> None:
    programs = [start_program(HOLD, server.url, XDG_CONFIG_HOME=str(tmp_path)) for _ in range(3)]
    sessions = {program.stdout.readline().strip() for program in programs if program.stdout is not None}
    path = tmp_path / "telegrad" / "owner"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(path.parent) == ["owner"]
    secret = path.read_text().strip()
    listed = plain_http.get(f"{server.url}/v1/sessions", headers={"Telegrad-Owner": secret}).json()
    assert {session["session"] for session in listed} == sessions
    for program in programs:
        program.communicate("go\n")


def test_a_bad_owner_is_refused_before_a_session_is_opened(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TELEGRAD_OWNER", "short")
    with pytest.raises(ConfigurationError, match="TELEGRAD_OWNER: expected at least 16"):
        telegrad.connect(server.url)


def test_a_wrong_command_says_what_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["end"], ["end", "a", "b", "c"], ["http://x", "y"]):
        with pytest.raises(SystemExit):
            main(["sessions", *words])
        assert "expected [URL], or: end SESSION [URL]" in capsys.readouterr().err
    assert main(["sessions", "end", "../x", "http://127.0.0.1:1"]) == 1
    assert "is not the id of a session" in capsys.readouterr().err
