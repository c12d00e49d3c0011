"""Opening, closing and finding sessions; tokens and keys."""

from __future__ import annotations

import itertools

import pytest

from server.gateway.app import create_app
from server.gateway.auth import OPEN_PATHS
from server.gateway.workers.machine_memory import default_host_quota
from telegrad_protocol.messages import PROTOCOL_VERSION

from .conftest import TOKEN, Client, Http, settings_of
from .registry import FakeRegistry


def test_a_session_is_opened_with_its_key_and_closed(http: Http, registry: FakeRegistry) -> None:
    opened = http.post("/v1/sessions", json={})
    hello = opened.json()
    assert opened.status_code == 201
    assert opened.headers["location"] == f"/v1/sessions/{hello['session']}"
    assert hello["key"] and hello["protocol"] == PROTOCOL_VERSION and hello["lease_seconds"] == 60
    path, headers = f"/v1/sessions/{hello['session']}", {"Telegrad-Session-Key": hello["key"]}
    assert http.request("DELETE", path, headers=headers).status_code == 204
    assert registry.sessions == {}
    assert registry.host.sessions == set()
    gone = http.request("DELETE", path, headers=headers)
    assert (gone.status_code, gone.json()["code"]) == (410, "SessionLostError")


def test_a_client_gets_the_lease_that_it_asks_for_up_to_the_maximum(registry: FakeRegistry) -> None:
    with Http(create_app(settings_of(max_lease_seconds=3600, lease_seconds=30), registry)) as http:
        granted = [
            http.post("/v1/sessions", json=asked).json()["lease_seconds"] for asked in ({}, {"lease_seconds": 3600})
        ]
        assert granted == [30, 3600]
        refused = http.post("/v1/sessions", json={"lease_seconds": 3601})
        assert (refused.status_code, refused.json()["code"]) == (422, "ArgumentError")
        assert "3600 s (TELEGRAD_MAX_LEASE_SECONDS)" in refused.json()["detail"]
        for wrong in ("0", "-1", '"long"', "1e400"):
            answer = http.post(
                "/v1/sessions", content=f'{{"lease_seconds": {wrong}}}', headers={"Content-Type": "application/json"}
            )
            assert answer.status_code == 422
    assert len(registry.sessions) == 0


def test_a_client_of_another_protocol_or_table_is_refused_and_leaves_no_session(
    http: Http, registry: FakeRegistry
) -> None:
    for description in ({"protocol": 99}, {"protocol": PROTOCOL_VERSION, "table_hash": "other"}):
        answer = http.post("/v1/sessions", json=description)
        assert (answer.status_code, answer.json()["code"]) == (409, "HandshakeError")
        assert "install equal versions" in answer.json()["detail"]
    assert registry.sessions == {}
    fitting = {"protocol": PROTOCOL_VERSION, "table_hash": "0123", "client": "telegrad 0.1.0", "pid": 3}
    assert http.post("/v1/sessions", json=fitting).status_code == 201


def test_the_limit_of_sessions_is_told_and_leaving_makes_room(client: Client) -> None:
    for _ in range(2):
        assert client.http.post("/v1/sessions", json={}).status_code == 201
    full = client.http.post("/v1/sessions", json={})
    assert (full.status_code, full.json()["code"], full.headers["retry-after"]) == (503, "CommunicationError", "5")
    assert "TELEGRAD_MAX_SESSIONS" in full.json()["detail"]
    client.call("DELETE", "")
    assert client.http.post("/v1/sessions", json={}).status_code == 201


OTHERS = {
    "tenant": "local", "tenant_bytes": None, "memory_share": 0.9, "tenant_host_bytes": default_host_quota(),
    "operations_ahead": None, "kernels": False, "host_code": "0",
}  # fmt: skip
"""What a worker is told beside the quota, where nobody asks for more."""


def test_the_quota_is_what_the_operator_set_whatever_a_client_says(http: Http, registry: FakeRegistry) -> None:
    http.post("/v1/sessions", json={"quota_bytes": 1 << 60, "client": "me"})
    assert registry.options == {"client": "me", "quota_bytes": None, **OTHERS}
    with Http(create_app(settings_of(session_quota_bytes="1MiB"), registry)) as limited:
        limited.post("/v1/sessions", json={"quota_bytes": None})
    assert registry.options == {"quota_bytes": 1 << 20, **OTHERS}


def test_kernels_of_its_own_are_the_operators_to_allow(http: Http, registry: FakeRegistry) -> None:
    refused = http.post("/v1/sessions", json={"kernels": True})
    assert (refused.status_code, refused.json()["code"]) == (403, "NotAllowedError")
    assert "TELEGRAD_ALLOW_KERNELS" in refused.json()["detail"]
    for setting in ("1", "shared"):
        with Http(create_app(settings_of(allow_kernels=setting), registry)) as allowed:
            assert allowed.post("/v1/sessions", json={"kernels": True}).status_code == 201
            assert registry.options == {"quota_bytes": None, **OTHERS, "kernels": True}
            assert registry.demand.own_worker == (setting == "1")


SESSION_PATHS = [
    ("DELETE", ""), ("POST", "/ops"), ("POST", "/backward"), ("PUT", "/tensors/1"), ("GET", "/tensors/1"),
    ("HEAD", "/tensors/1"), ("DELETE", "/tensors/1"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), SESSION_PATHS)
@pytest.mark.parametrize("headers", [{}, {"Telegrad-Session-Key": "key-2"}, {"Telegrad-Session-Key": "ké"}])
def test_what_is_in_a_session_needs_its_key(client: Client, method: str, path: str, headers: dict[str, str]) -> None:
    client.ops({"op": "tensor", "data": [1], "out": 1})
    client.http.post("/v1/sessions", json={})
    encoded = {name: value.encode() for name, value in headers.items()}
    body = None if method in ("GET", "HEAD", "DELETE") else {"op": "zeros", "args": [2], "roots": 1}
    answer = client.http.request(method, f"/v1/sessions/{client.session.id}{path}", headers=encoded, json=body)
    assert answer.status_code == 403
    if method != "HEAD":
        assert answer.json()["code"] == "AuthenticationError"
        assert client.session.key not in answer.text
    assert list(client.session.engine.tensors) == [1]


def test_an_unknown_session_is_not_found(http: Http) -> None:
    answer = http.post("/v1/sessions/nope/ops", json={"op": "zeros"}, headers={"Telegrad-Session-Key": "x"})
    assert (answer.status_code, answer.json()["code"]) == (404, "UnknownIdError")


GUARDED = ["/metrics", "/memory_summary", "/memory_stats", "/memory_snapshot", "/v1/devices", "/no/such/path"]
WRONG = [None, "Bearer", "Bearer wrong-token", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN]


@pytest.mark.parametrize(("path", "given"), list(itertools.product(GUARDED, WRONG)))
def test_everything_needs_the_token_where_there_is_one(registry: FakeRegistry, path: str, given: str | None) -> None:
    with Http(create_app(settings_of(token=TOKEN), registry)) as http:
        answer = http.get(path, headers={} if given is None else {"Authorization": given})
    assert (answer.status_code, answer.json()["code"]) == (401, "AuthenticationError")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"
    assert TOKEN not in answer.text


def test_the_token_opens_everything_and_some_paths_need_none(registry: FakeRegistry) -> None:
    with Http(create_app(settings_of(token=TOKEN), registry)) as http:
        assert {path: http.get(path).status_code for path in OPEN_PATHS} == dict.fromkeys(OPEN_PATHS, 200)
        assert http.post("/v1/sessions", json={}).status_code == 401
        assert registry.sessions == {}
        for path in GUARDED[:-1]:
            assert http.get(path, headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200
        assert http.get("/no/such/path", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "10.0.0.1:8000", "localhost.evil.example"])
def test_without_a_token_only_requests_to_loopback_names_are_answered(http: Http, host: str) -> None:
    answer = http.post("/v1/sessions", json={}, headers={"Host": host})
    assert (answer.status_code, answer.json()["code"]) == (401, "AuthenticationError")


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]", "[::1]:8000"])
def test_loopback_names_are_answered(http: Http, host: str) -> None:
    assert http.get("/memory_summary", headers={"Host": host}).status_code == 200
