"""A certificate that is renewed while the server runs."""

from __future__ import annotations

import logging
import os
import re
import shutil
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from server.gateway.door.certificate import Certificate
from telegrad_protocol.errors import ConfigurationError

from ..end_to_end.server_process import ServerProcess
from ..support.certificates import self_signed

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    """Two certificates with their keys."""
    folder = tmp_path_factory.mktemp("certificates")
    return self_signed(folder, "first"), self_signed(folder, "second", days=20_000)  # whose year has four digits


def put(source: Path, target: Path) -> None:
    """Replace a file at once, as whoever renews certificates does."""
    fresh = target.with_name("fresh")
    shutil.copy(source, fresh)
    os.replace(fresh, target)


def end_of(certificate: Path) -> float:
    """When a certificate expires, as openssl says."""
    command = ["openssl", "x509", "-noout", "-enddate", "-in", str(certificate)]
    return ssl.cert_time_to_seconds(subprocess.check_output(command, text=True).strip().partition("=")[2])


def put_pair(pair: Pair, folder: Path) -> Pair:
    """Put a certificate and its key where the server reads them."""
    target = folder / "tls.crt", folder / "tls.key"
    for source, place in zip(pair, target, strict=True):
        put(source, place)
    return target


def test_a_renewed_certificate_is_served_and_half_of_one_is_not(pairs: tuple[Pair, Pair], tmp_path: Path) -> None:
    (first, _), (second, second_key) = pairs
    certificate, key = put_pair(pairs[0], tmp_path)
    variables = {"TELEGRAD_TLS_CERT": str(certificate), "TELEGRAD_TLS_KEY": str(key), "TELEGRAD_LOG_LEVEL": "ERROR"}
    with ServerProcess(**variables) as server:

        def served() -> str:
            return ssl.get_server_certificate(("127.0.0.1", server.port)).strip()

        def told() -> float:
            text = kept.get("/metrics").text
            return float(re.search(r"^telegrad_certificate_expires_timestamp_seconds (\S+)$", text, re.M)[1])  # type: ignore[index]

        trusted = ssl.create_default_context(cafile=str(first))
        with httpx.Client(base_url=server.url, verify=trusted, trust_env=False) as kept:
            assert told() == end_of(first)
            assert served() == first.read_text().strip()
            put(second_key, key)
            assert served() == first.read_text().strip(), "the key of another certificate is not used"
            put(second, certificate)
            assert served() == second.read_text().strip()
            certificate.unlink()
            assert served() == second.read_text().strip()
            assert told() == end_of(second), "a connection that is open keeps what it began with"


def test_files_that_cannot_be_used_are_logged_once_for_each_change(
    pairs: tuple[Pair, Pair], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "server.gateway.door.certificate")
    certificate, key = put_pair(pairs[0], tmp_path)
    watched = Certificate(str(certificate), str(key))
    first = watched.context()
    assert watched.context() is first and not caplog.records

    certificate.write_text("no certificate")
    assert [watched.context() for _ in range(3)] == [first] * 3
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", "certificate not read again")
    ]
    put_pair(pairs[1], tmp_path)
    assert watched.context() is not first
    assert caplog.records[-1].message == "certificate read again"


def test_a_server_does_not_start_without_a_certificate_that_can_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="TELEGRAD_TLS_CERT"):
        Certificate(str(tmp_path / "none.crt"), str(tmp_path / "none.key"))
