"""A gateway with the test engine in this process, and a session in it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from server.gateway.app import create_app
from server.gateway.settings import Settings

from .declared import check_declared
from .registry import FakeRegistry, OpenSession

TOKEN = "correct-horse-battery"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TELEGRAD_")]:
        monkeypatch.delenv(name)


class Http:
    """Requests to an application in this process, one at a time; a context manager around its lifespan.

    Every answer is checked against the description of the interface.
    """

    def __init__(self, app: FastAPI, base_url: str = "http://127.0.0.1", **rest: Any) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url=base_url, **rest)
        self._lifespan = app.router.lifespan_context(app)

    def __enter__(self) -> Http:
        self._loop.run_until_complete(self._lifespan.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._client.aclose())
        self._loop.run_until_complete(self._lifespan.__aexit__(None, None, None))
        self._loop.close()

    def request(self, method: str, path: str, **rest: Any) -> httpx.Response:
        answer = self._loop.run_until_complete(self._client.request(method, path, **rest))
        check_declared(self._app, answer)
        return answer

    def get(self, path: str, **rest: Any) -> httpx.Response:
        return self.request("GET", path, **rest)

    def post(self, path: str, **rest: Any) -> httpx.Response:
        return self.request("POST", path, **rest)


@dataclass
class Client:
    """Requests to one gateway, about one session."""

    http: Http
    registry: FakeRegistry
    session: OpenSession
    app: FastAPI

    def call(self, method: str, path: str, **rest: Any) -> Any:
        headers = {"Telegrad-Session-Key": self.session.key} | rest.pop("headers", {})
        return self.http.request(method, f"/v1/sessions/{self.session.id}{path}", headers=headers, **rest)

    def ops(self, *steps: dict[str, Any]) -> Any:
        return self.call("POST", "/ops", json=steps[0] if len(steps) == 1 else list(steps))


def settings_of(**values: Any) -> Settings:
    return Settings(devices="cpu", **values)


@pytest.fixture
def registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def app(registry: FakeRegistry) -> FastAPI:
    return create_app(settings_of(max_sessions=3), registry)


@pytest.fixture
def http(app: FastAPI) -> Iterator[Http]:
    with Http(app) as client:
        yield client


@pytest.fixture
def client(http: Http, registry: FakeRegistry, app: FastAPI) -> Client:
    opened = http.post("/v1/sessions", json={}).json()
    return Client(http, registry, registry.sessions[opened["session"]], app)
