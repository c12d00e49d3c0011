"""The HTTP interface as a whole: each endpoint that is described, and what it answers when something is wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi import FastAPI

from telegrad_protocol.errors import BY_CODE, TelegradError, WorkerCrashedError

from .conftest import Client, Http, settings_of
from .declared import JSON, description_of

IDS = {"session_id": "no-such-session", "tensor_id": "1", "name": "no-such-program"}
BODIES: dict[str, Any] = {
    "/ops": {"op": "zeros", "args": [2]}, "/backward": {"roots": 1}, "/detach": {"attachment": 1}, "/attach": {},
    "/memory_history": {"enabled": None}, "/v1/sessions": {},
}  # fmt: skip
"""Bodies that are right, by the end of the path."""
OF_WORKERS = {"DeviceError", "WorkerCrashedError", "CommunicationError", "InternalError", "AcceleratorError"}
"""What a question about a whole worker may end with."""


def operations(app: FastAPI) -> list[tuple[str, str]]:
    """Method and path of all that is described."""
    paths = description_of(app)["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def request_of(method: str, path: str, session: str = "") -> dict[str, Any]:
    """What ``Http.request`` takes for a request that is right."""
    ids = IDS | ({"session_id": session} if session else {})
    body = next((BODIES[end] for end in BODIES if path.endswith(end)), {})
    rest: dict[str, Any] = {"json": body} if method == "POST" else {}
    if method == "PUT" and "tensor_id" in path:
        rest = {"json": [1.0, 2.0]}
    return {"method": method, "path": path.format(**ids), **rest}


def test_every_endpoint_declares_what_it_answers_to_requests_that_are_wrong(client: Client) -> None:
    key = {"Telegrad-Session-Key": client.session.key}
    answered: dict[tuple[str, str], set[int]] = {}
    for method, path in operations(client.app):
        right = request_of(method, path, client.session.id)
        bare = {"method": method, "path": right["path"]}
        json_type = {"headers": key | {"Content-Type": JSON}}
        wrong: list[dict[str, Any]] = [
            request_of(method, path), right, right | {"headers": {"Telegrad-Session-Key": "another"}},
            bare | json_type | {"content": b"{"}, bare | json_type | {"content": b"[" * 200},
            bare | json_type | {"content": b'{"no": "such member"}'}, bare | json_type | {"content": b" " * (9 << 20)},
            bare | {"headers": key | {"Content-Type": "text/csv"}, "content": b"1,2"},
            bare | {"headers": key | {"Origin": "https://elsewhere.example"}},
            right | {"headers": key, "path": right["path"].replace("/1", "/x")},
            right | {"headers": key | {"Accept": "image/png", "Telegrad-Owner": "short"}},
            right | {"headers": key, "params": {"device": "cuda:9", "session": "none", "last": "x", "shape": "x"}},
        ]  # fmt: skip
        if method == "DELETE" and path.endswith("{session_id}"):
            wrong = wrong[:1]  # the others would end the session that the test goes on with
        for request in wrong:
            if path.endswith("/sessions"):
                client.registry.sessions = {client.session.id: client.session}
            answered.setdefault((method, path), set()).add(client.http.request(**request).status_code)
    errors = {status for statuses in answered.values() for status in statuses if status >= 400}
    assert errors >= {400, 403, 404, 406, 413, 415, 422}, errors


def test_every_endpoint_declares_the_status_of_every_error_of_a_worker(client: Client) -> None:
    key = {"Telegrad-Session-Key": client.session.key}
    registry: Any = client.registry
    asked = [(method, path) for method, path in operations(client.app) if not path.endswith("{session_id}")]
    for code, kind in BY_CODE.items():
        registry.request = registry.open = failing_with(kind("it: is wrong"))
        for worker in registry.workers:
            worker.request = registry.request
        for method, path in asked:
            if path.startswith("/v1/sessions") or code in OF_WORKERS:
                answer = client.http.request(**request_of(method, path, client.session.id), headers=key)
                if answer.status_code >= 400 and method != "HEAD" and answer.json()["code"] == code:
                    assert answer.json()["detail"].startswith("it: is wrong")


def failing_with(error: TelegradError) -> Any:
    """A function that answers every request with an error."""

    async def fail(*_: Any) -> Any:
        raise error

    return fail


def test_without_a_token_everything_that_is_not_open_is_401(registry: Any) -> None:
    from server.gateway.app import create_app
    from server.gateway.auth import OPEN_PATHS

    app = create_app(settings_of(token="correct-horse-battery"), registry)
    with Http(app) as http:
        for method, path in operations(app):
            status = http.request(**request_of(method, path)).status_code
            assert (status == 401) == (path not in OPEN_PATHS), f"{method} {path}: {status}"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/v1/sessions/x/tensors/1", {"GET", "HEAD", "PUT", "DELETE"}),
        ("DELETE", "/v1/sessions", {"GET", "HEAD", "POST"}), ("PUT", "/healthz", {"GET", "HEAD"}),
        ("PUT", "/v1/sessions/x/ops", {"POST"}),
    ],
)  # fmt: skip
def test_a_method_that_is_not_there_is_told_all_that_are(http: Http, method: str, path: str, allowed: set[str]) -> None:
    answer = http.request(method, path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
    assert all(name in answer.json()["detail"] for name in allowed)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/", "/metrics", "/v1/devices", "/openapi.json", "/docs"])
def test_what_can_be_read_answers_head(http: Http, path: str) -> None:
    whole, head = http.get(path), http.request("HEAD", path)
    assert head.status_code == whole.status_code == 200
    assert head.headers["content-type"] == whole.headers["content-type"]


def test_a_slash_at_the_end_is_another_path(http: Http) -> None:
    for path in ("/healthz/", "/docs/", "/v1/devices/"):
        answer = http.get(path)
        assert answer.status_code == 404
        assert re.match(rf"GET {path}: there is no such endpoint", answer.json()["detail"])


def test_an_error_that_is_raised_while_a_worker_starts_says_when_to_come_again(client: Client) -> None:
    registry: Any = client.registry
    registry.request = failing_with(WorkerCrashedError("the worker is being started"))
    answer = client.ops({"op": "zeros", "args": [1]})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
