"""Servers and clients over Unix sockets: who may connect, what is told where nobody listens, and the same sessions."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import telegrad
from telegrad.__main__ import main
from telegrad.errors import AuthenticationError, ConfigurationError, ConnectError, NotSupportedError
from telegrad_protocol.bulk import LARGE_BYTES
from telegrad_protocol.channels.shared_memory import SLOTS
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.link import ACK_BYTES

from ..transport.waiting import wait_until
from .conftest import TOKEN
from .server_process import ROOT, ServerProcess, clean_environment


def test_a_session_over_a_unix_socket_is_a_session(
    server: ServerProcess, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays of all sizes, errors, detaching and attaching, and the commands, by argument and by variable."""
    monkeypatch.setenv("TELEGRAD_URL", server.unix)
    with telegrad.connect() as connection:
        assert telegrad.ones(3).add(1).tolist() == [2, 2, 2]
        for size in (1, 1 << 13, (1 << 17) + 1, 1_500_001):
            array = rng.standard_normal(size)
            tensor = telegrad.from_numpy(array)
            np.testing.assert_array_equal(tensor.numpy(), array)
        with pytest.raises(TelegradError):
            telegrad.ones(2).add(1)[telegrad.tensor([5])].tolist()
        assert connection.session.transport.address.url == server.unix
        with pytest.raises(NotSupportedError, match="browsers do not reach unix:"):
            telegrad.profiler.page()
        telegrad.kept["kept"] = tensor
        left = telegrad.detach()
    with telegrad.connect(server.unix, session=left.session, key=left.key):
        np.testing.assert_array_equal(telegrad.kept["kept"].numpy(), array)
    assert main(["devices"]) == main(["sessions", server.unix]) == main(["health", server.unix]) == 0


def test_chunks_far_smaller_than_their_slots_never_run_out_of_slots(
    server: ServerProcess, rng: np.random.Generator
) -> None:
    """More of them than there are slots, in either direction, are together less than what is acknowledged at once."""
    count = SLOTS + 4
    arrays = [rng.standard_normal(LARGE_BYTES // 8 + 1) for _ in range(count)]
    assert count * arrays[0].nbytes < ACK_BYTES
    with telegrad.connect(server.unix):
        tensors = [telegrad.from_numpy(array) for array in arrays]
        for tensor, array in zip(tensors, arrays, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), array)


def test_only_the_user_of_the_server_may_connect_unless_it_is_set(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    mode, owner = "660", f":{os.getgid()}"
    variables = {"TELEGRAD_UNIX_SOCKET_MODE": mode, "TELEGRAD_UNIX_SOCKET_OWNER": owner}
    with ServerProcess() as private, ServerProcess(TELEGRAD_UNIX_SOCKET=str(path), **variables) as shared:
        assert shared.unix == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660 and path.stat().st_gid == os.getgid()
        hidden = Path(private.unix.removeprefix("unix:"))
        assert stat.S_IMODE(hidden.stat().st_mode) == 0o600
        assert stat.S_IMODE(hidden.parent.stat().st_mode) == 0o700
    assert not path.exists() and not hidden.parent.exists()


def test_tokens_are_asked_for_over_unix_sockets_too(guarded_server: ServerProcess) -> None:
    with pytest.raises(AuthenticationError, match="wants a token"):
        telegrad.connect(guarded_server.unix)
    with telegrad.connect(guarded_server.unix, token=TOKEN):
        assert telegrad.ones(2).sum().item() == 2


def test_the_log_says_which_process_opened_a_session(tmp_path: Path) -> None:
    with ServerProcess(TELEGRAD_LOG_LEVEL="INFO", stderr=str(tmp_path / "log")) as server:
        with telegrad.connect(server.unix) as connection:
            session = connection.id
        wait_until(lambda: not server.sessions, "the session ended")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    opened = next(line for line in lines if line.get("session") == session and "client" in line)
    assert opened["client"] == f"unix pid={os.getpid()} uid={os.getuid()} gid={os.getgid()}"


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        (lambda path: None, "there is no such socket"),
        (lambda path: path.write_text("a file"), "no server listens on this socket any more|not a socket"),
        (lambda path: _left_behind(path), "no server listens on this socket any more"),
    ],
)
def test_an_address_where_nobody_listens_is_told(tmp_path: Path, prepare: Any, told: str) -> None:
    path = tmp_path / "socket"
    prepare(path)
    with pytest.raises(ConnectError, match=f"unix:{re.escape(str(path))}: ({told})"):
        telegrad.connect(f"unix:{path}")


def test_a_socket_that_was_left_behind_is_taken_over_and_nothing_else(tmp_path: Path) -> None:
    path, file = tmp_path / "socket", tmp_path / "file"
    _left_behind(path)
    file.write_text("not to be lost")
    with ServerProcess(TELEGRAD_UNIX_SOCKET=str(path)) as server:
        with telegrad.connect(server.unix):
            assert telegrad.ones(2).sum().item() == 2
        assert "another server listens" in _refusal(TELEGRAD_UNIX_SOCKET=str(path))
        with telegrad.connect(server.unix):  # the other server has not taken the socket away
            pass
    assert "is no socket" in _refusal(TELEGRAD_UNIX_SOCKET=str(file))
    assert file.read_text() == "not to be lost"
    assert "TELEGRAD_UNIX_SOCKET_OWNER" in _refusal(
        TELEGRAD_UNIX_SOCKET=str(path), TELEGRAD_UNIX_SOCKET_OWNER="nobody?"
    )
    assert "AF_UNIX path too long" in _refusal(TELEGRAD_UNIX_SOCKET=str(tmp_path / ("x" * 120)))
    assert not path.exists()


@pytest.mark.parametrize(("name", "value"), [("MODE", "rw"), ("MODE", "1777"), ("OWNER", "a:b:c"), ("OWNER", "a:")])
def test_wrong_settings_of_the_socket_are_named(name: str, value: str) -> None:
    from server.gateway.settings import load_settings

    with pytest.raises(ConfigurationError, match=f"TELEGRAD_UNIX_SOCKET_{name}: expected"):
        load_settings(**{f"unix_socket_{name.lower()}": value})


def test_a_private_server_is_reached_by_its_unix_socket_and_leaves_nothing() -> None:
    with telegrad.connect(devices="cpu") as connection:
        address = connection.session.transport.address
        path = Path(address.url.removeprefix("unix:"))
        assert path.is_socket()
        assert telegrad.profiler.page().startswith("http://127.0.0.1:")
        assert telegrad.ones(2).sum().item() == 2
    assert not path.parent.exists()


def _left_behind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _refusal(**variables: str) -> str:
    """What a server says that does not start."""
    command = [sys.executable, "-m", "server", "--port", "0", "--devices", "cpu"]
    ended = subprocess.run(
        command, env=clean_environment(**variables), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2, ended.stderr
    return ended.stderr
