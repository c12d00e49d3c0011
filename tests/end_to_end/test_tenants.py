"""Two tenants on one real server: what one fills is its own, and its sessions do not exist for the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import telegrad
from server.gateway.tenancy.tenants import digest
from telegrad_protocol.errors import OutOfMemoryError, TelegradError

from .server_process import ServerProcess

TOKENS = {"alice": "alice-and-a-secret", "bob": "bob-and-a-secret"}
MIB = 1 << 20


def test_a_tenant_that_is_full_is_full_in_all_its_sessions_and_nobody_else_is(tmp_path: Path) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text(
        "".join(f'[{name}]\ntoken_sha256 = "{digest(token)}"\n' for name, token in TOKENS.items() if name != "alice")
        + f'[alice]\ntoken_sha256 = "{digest(TOKENS["alice"])}"\nmemory = "8MiB"\n'
    )
    with ServerProcess(TELEGRAD_TENANTS=str(file)) as server:

        def connect(name: str) -> Any:
            return telegrad.connect(server.url, token=TOKENS[name])

        with connect("alice") as first, connect("alice") as second, connect("bob") as third:
            first.use()
            held = telegrad.zeros(6 * MIB, dtype=telegrad.uint8)
            held[0].item()
            second.use()
            with pytest.raises(OutOfMemoryError, match=r"quota 8\.00 MiB"):
                telegrad.zeros(6 * MIB, dtype=telegrad.uint8)[0].item()
            third.use()
            assert telegrad.zeros(20 * MIB, dtype=telegrad.uint8)[0].item() == 0
            first.use()
            del held
            telegrad.zeros(1)[0].item()
            with pytest.raises(TelegradError, match="there is no session"):
                telegrad.connect(server.url, token=TOKENS["bob"], session=first.id, key=first.key, takeover=True)
        with connect("alice"):
            assert telegrad.zeros(6 * MIB, dtype=telegrad.uint8)[0].item() == 0
