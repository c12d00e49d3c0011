"""What is read from the environment, and how a mistake in it is told."""

from __future__ import annotations

import pytest

from server.__main__ import main
from server.gateway.settings import CLIENT_VARIABLES, is_loopback, load_settings, unknown_variables
from telegrad_protocol.errors import ConfigurationError

BAD = [
    ("PORT", "abc", "PORT: input should be a valid integer"),
    ("PORT", "70000", "less than or equal to 65535, got '70000'"),
    ("PORT", "-1", "greater than or equal to 0"),
    ("TOKEN", "short", "TOKEN: expected at least 8 ASCII characters"),
    ("TOKEN", "schlüsselwort", "TOKEN: expected at least 8 ASCII characters"),
    ("DEVICES", "gpu", "DEVICES: expected 'cpu' or 'cuda:N', separated by commas, got 'gpu'"),
    ("DEVICES", "cuda:0;gpu", "got 'gpu'; ';' separates workers"),
    ("DEVICES", "cuda:0,all", "got 'all'; ';' separates workers, and 'all' stands alone"),
    ("DEVICES", "cuda:0,cuda", "DEVICES: a device is listed twice: cuda:0"),
    ("DEVICES", "cpu;cpu,cpu", "DEVICES: a device is listed twice: cpu"),
    ("DEVICES", "cuda:0,cuda:1;cuda:1", "DEVICES: a device is listed twice: cuda:1 cannot belong to two workers"),
    ("LEASE_SECONDS", "0", "LEASE_SECONDS: input should be greater than 0"),
    ("LEASE_SECONDS", "nan", "LEASE_SECONDS"),
    ("MAX_LEASE_SECONDS", "30", "MAX_LEASE_SECONDS: 30 s is less than the usual lease of 60 s"),
    ("DRAIN_SECONDS", "soon", "DRAIN_SECONDS: input should be a valid number"),
    ("MAX_SESSIONS", "0", "MAX_SESSIONS: input should be greater than or equal to 1"),
    ("SESSION_QUOTA_BYTES", "much", "SESSION_QUOTA_BYTES: could not parse value"),
    ("MAX_FRAME_BYTES", "1KiB", "MAX_FRAME_BYTES: input should be greater than or equal to 2097152"),
    ("ALLOC_CONF", "expandable", "ALLOC_CONF: expected 'option:value,option:value', got 'expandable'"),
    ("CUDA_ALLOCATOR", "pool.so:alloc", "CUDA_ALLOCATOR: expected 'library:alloc:free', got 'pool.so:alloc'"),
    ("LOG_LEVEL", "loud", "LOG_LEVEL: input should be 'DEBUG', 'INFO', 'WARNING' or 'ERROR', got 'LOUD'"),
    ("READY_FD", "99", "READY_FD: 99 is not an open file descriptor"),
    ("PARENT_FD", "/dev/null", "PARENT_FD: input should be a valid integer"),
    ("HOST", "0.0.0.0", "TOKEN: is required to listen on 0.0.0.0"),
    ("HOST", "256.0.0.1", "TOKEN: is required"),
    ("CPU", "0", "CPU: is 0, but a worker has no other device"),
]


@pytest.mark.parametrize(("name", "value", "text"), BAD)
def test_a_bad_value_is_refused_in_one_line_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, text: str
) -> None:
    monkeypatch.setenv(f"TELEGRAD_{name}", value)
    assert main(["--devices", "cpu"] if name != "DEVICES" else []) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("telegrad-server: TELEGRAD_")
    assert text in error
    if name == "TOKEN":
        assert value not in error


def test_several_mistakes_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAD_PORT", "x")
    monkeypatch.setenv("TELEGRAD_LOG_LEVEL", "y")
    with pytest.raises(ConfigurationError, match=r"TELEGRAD_PORT.*; TELEGRAD_LOG_LEVEL"):
        load_settings()


def test_values_are_read_and_options_outrank_them(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "PORT": "1234", "DEVICES": "cuda, cpu", "SESSION_QUOTA_BYTES": "8GiB", "LOG_LEVEL": "debug", "TOKEN": "",
        "ALLOC_CONF": "backend:native,roundup_power2_divisions:[256:1,512:2]",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(f"TELEGRAD_{name}", value)
    settings = load_settings(port="99")
    assert (settings.port, settings.devices, settings.log_level) == (99, (("cuda:0", "cpu"),), "DEBUG")
    assert (settings.session_quota_bytes, settings.token) == (8 << 30, None)


def test_the_token_does_not_show_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAD_TOKEN", "swordfish-and-more")
    assert "swordfish" not in repr(load_settings()) + str(load_settings())


def test_variables_that_nothing_reads_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"TELEGRAD_PROT": "1", "TELEGRAD_PORT": "1", "PATH": "", **dict.fromkeys(CLIENT_VARIABLES, "")}
    assert unknown_variables(environ) == ["TELEGRAD_PROT"]


def test_loopback_is_what_only_this_machine_reaches() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.3.2.1", "::1", "[::1]"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.org", ""]))
