"""Tenants: whose token opens what, limits, what others see of them, and a file that is read again."""

from __future__ import annotations

import logging
from pathlib import Path

import httpx
import pytest

from server.__main__ import main
from server.gateway import app as application
from server.gateway.app import create_app
from server.gateway.tenancy.tenants import Tenants, digest
from telegrad_protocol.errors import ConfigurationError

from .conftest import Http, settings_of
from .registry import FakeRegistry

TOKENS = {name: f"{name}-and-a-secret" for name in ("alice", "bob", "root")}
TABLES = f"""
[alice]
token_sha256 = "{digest(TOKENS["alice"])}"
memory = "2MiB"
session_memory = "1MiB"
sessions = 2
gpus = 1
operations_ahead = 5
[bob]
token_sha256 = ["{digest(TOKENS["bob"])}", "{digest("an older token of bob")}"]
[root]
token_sha256 = "{digest(TOKENS["root"])}"
admin = true
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tenants.toml"
    path.write_text(TABLES)
    return path


def _as(name: str, **rest: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}", **rest}


def _open(http: Http, name: str, **asked: object) -> httpx.Response:
    return http.post("/v1/sessions", headers=_as(name), json=asked)


def test_a_tenant_sees_its_own_sessions_only(registry: FakeRegistry, file: Path) -> None:
    with Http(create_app(settings_of(tenants=str(file)), registry)) as http:
        owner = {"Telegrad-Owner": "the same secret of both"}
        opened = http.post("/v1/sessions", json={}, headers=_as("alice", **owner)).json()
        assert registry.demand.tenant == "alice"
        key = {"Telegrad-Session-Key": opened["key"]}
        at = f"/v1/sessions/{opened['session']}"
        assert http.get(f"{at}/memory_stats", headers=_as("alice", **key)).status_code == 200
        assert len(http.get("/v1/sessions", headers=_as("alice", **owner)).json()) == 1
        assert http.get("/v1/sessions", headers=_as("bob", **owner)).json() == []
        for name in ("bob", "root"):
            for method, path in (("GET", f"{at}/memory_stats"), ("DELETE", at), ("POST", f"{at}/detach")):
                answer = http.request(method, path, headers=_as(name, **key, **owner))
                assert (answer.status_code, answer.json()["detail"]) == (
                    404,
                    f"there is no session {opened['session']}",
                )
        assert http.request("DELETE", at, headers=_as("alice", **key)).status_code == 204


def test_what_concerns_everybody_takes_an_administrator(registry: FakeRegistry, file: Path) -> None:
    with Http(create_app(settings_of(tenants=str(file)), registry)) as http:
        session = _open(http, "alice").json()["session"]
        for path in ("/metrics", "/memory_summary", "/memory_stats", f"/memory_snapshot?session={session}"):
            refused = http.get(path, headers=_as("bob"))
            assert refused.status_code == 403 and "an administrator's token" in refused.json()["detail"]
            assert http.get(path, headers=_as("root")).status_code == 200
        body = {"enabled": "all"}
        assert http.post("/memory_history", headers=_as("bob"), json=body).status_code == 403
        assert http.post("/memory_history", headers=_as("root"), json=body).status_code == 204
        assert http.get("/v1/devices", headers=_as("bob")).status_code == 200


def test_limits_of_a_tenant_are_those_of_its_sessions(registry: FakeRegistry, file: Path) -> None:
    settings = settings_of(tenants=str(file), session_quota_bytes=5 << 20)
    with Http(create_app(settings, registry)) as http:
        refused = _open(http, "alice", gpus=2)
        assert "the tenant alice gets at most 1 GPUs, not 2" in refused.json()["detail"]
        first = _open(http, "alice").json()
        told = {name: registry.options[name] for name in ("tenant", "quota_bytes", "tenant_bytes", "operations_ahead")}
        assert told == {"tenant": "alice", "quota_bytes": 1 << 20, "tenant_bytes": 2 << 20, "operations_ahead": 5}
        assert _open(http, "alice").status_code == 201
        full = _open(http, "alice")
        assert full.status_code == 503 and "the tenant alice has 2 sessions open" in full.json()["detail"]
        assert _open(http, "bob").status_code == 201
        assert (registry.options["quota_bytes"], registry.options["tenant_bytes"]) == (5 << 20, None)
        assert registry.options["operations_ahead"] is None
        gone = http.request(
            "DELETE", f"/v1/sessions/{first['session']}", headers=_as("alice", **{"Telegrad-Session-Key": first["key"]})
        )
        assert gone.status_code == 204 and _open(http, "alice").status_code == 201


def test_what_one_tenant_may_run_nobody_else_may(registry: FakeRegistry, file: Path) -> None:
    file.write_text(TABLES.replace("gpus = 1", 'kernels = "1"\nhost_code = "shared"'))
    with Http(create_app(settings_of(tenants=str(file)), registry)) as http:
        assert _open(http, "alice", kernels=True).status_code == 201
        assert (registry.options["kernels"], registry.options["host_code"]) == (True, "shared")
        assert registry.demand.own_worker
        refused = _open(http, "bob", kernels=True)
        assert (refused.status_code, refused.json()["code"]) == (403, "NotAllowedError")
        assert _open(http, "bob").status_code == 201
        assert (registry.options["kernels"], registry.options["host_code"]) == (False, "0")


def test_the_one_token_is_an_administrators_unless_another_is(registry: FakeRegistry) -> None:
    mine, theirs = {"Authorization": "Bearer token-of-all"}, {"Authorization": "Bearer token-of-admin"}
    with Http(create_app(settings_of(token="token-of-all"), registry)) as http:
        assert http.get("/metrics", headers=mine).status_code == 200
    with Http(create_app(settings_of(token="token-of-all", admin_token="token-of-admin"), registry)) as http:
        assert [http.get("/metrics", headers=given).status_code for given in (mine, theirs)] == [403, 200]


def test_the_file_is_read_again_and_sessions_of_who_is_gone_end(
    registry: FakeRegistry, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(application, "TENANTS_SECONDS", 0.01)
    with Http(create_app(settings_of(tenants=str(file)), registry)) as http:
        session = _open(http, "bob").json()["session"]
        kept = _open(http, "alice").json()["session"]
        file.write_text("[alice\n")
        while "tenants not read again" not in caplog.text:
            assert http.get("/v1/devices", headers=_as("bob")).status_code == 200
        file.write_text(TABLES.replace("[bob]", "[carol]").replace(digest(TOKENS["bob"]), digest("carol's token")))
        with caplog.at_level(logging.INFO):
            while session in registry.sessions:
                http.get("/healthz")
        assert kept in registry.sessions
        assert http.get("/v1/devices", headers=_as("bob")).status_code == 401
        assert http.get("/v1/devices", headers={"Authorization": "Bearer carol's token"}).status_code == 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a", "TELEGRAD_TENANTS: "), ("a = 1", r"expected a table \[a\]"),
        ('[a]\ntoken_sha256 = "abc"', r"\[a\] token_sha256.0: string should match"),
        ("[a]\nquota = 3", r"\[a\] quota: extra inputs are not permitted"),
        ('[a]\nmemory = "much"', r"\[a\] memory: "), ('["a b"]', r"\[a b\] name: "),
        ('[a]\nname = "b"', r"\[a\]: its name"),
        (f'[a]\ntoken_sha256 = "{"0" * 64}"\n[b]\ntoken_sha256 = "{"0" * 64}"', "b and a share a token"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        Tenants(settings_of(tenants=str(path)))
    with pytest.raises(ConfigurationError, match=r"TELEGRAD_TENANTS: .*No such file"):
        Tenants(settings_of(tenants=str(tmp_path / "none.toml")))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_bytes(b"[a]\n# \xff")
    with pytest.raises(ConfigurationError, match="TELEGRAD_TENANTS"):
        Tenants(settings_of(tenants=str(path)))


def test_a_new_tenant_is_a_table_and_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--new-tenant", "dora"]) == 0
    printed = capsys.readouterr()
    path = tmp_path / "tenants.toml"
    path.write_text(printed.out)
    tenant = Tenants(settings_of(tenants=str(path))).of_token(printed.err.strip().rpartition(" ")[2])
    assert tenant is not None and tenant.name == "dora" and not tenant.admin


def test_what_tenants_do_is_in_the_audit_log(
    registry: FakeRegistry, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, "server.audit"),
        Http(create_app(settings_of(tenants=str(file)), registry)) as http,
    ):
        session = _open(http, "alice").json()["session"]
        http.post("/memory_history", headers=_as("root"), json={"enabled": None})
    noted = [(r.getMessage(), r.tenant, r.client) for r in caplog.records if r.name == "server.audit"]  # type: ignore[attr-defined]
    assert [note[:2] for note in noted] == [("session opened", "alice"), ("memory history", "root")]
    assert session and all(client for _, _, client in noted)
    assert not any(token in caplog.text for token in TOKENS.values())
