"""What requests make the gateway hold: charged to the tenant, refused beyond its limit, given back with the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from server.gateway.app import create_app
from server.gateway.http.tensor_files import npy_header

from .conftest import Client, Http, settings_of
from .registry import FakeRegistry
from .test_tenants import TABLES, TOKENS

KIB = 1 << 10


@pytest.fixture
def limited(registry: FakeRegistry) -> Iterator[Client]:
    """A session of a tenant whose requests may hold 6 MiB."""
    app = create_app(settings_of(host_quota_bytes="6MiB"), registry)
    with Http(app) as http:
        opened = http.post("/v1/sessions", json={}).json()
        yield Client(http, registry, registry.sessions[opened["session"]], app)


def assert_refused(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (507, "OutOfMemoryError"), answer.text[:300]
    for part in ("TELEGRAD_HOST_QUOTA_BYTES", "the limit is 6 MiB", "as npy"):
        assert part in answer.json()["detail"]


def test_bodies_of_many_values_are_refused_and_those_of_few_are_not(limited: Client, rng: np.random.Generator) -> None:
    few = rng.random((40, 50)).tolist()
    many = rng.random(25_000).tolist()
    put = {"headers": {"Content-Type": "application/json"}}
    for _ in range(4):  # what was refused, and what was answered, holds nothing
        assert limited.ops({"op": "tensor", "data": few, "out": 1}).status_code == 200
        assert_refused(limited.ops({"op": "tensor", "data": many, "out": 2}))
        assert limited.call("PUT", "/tensors/3", content=json.dumps(few), **put).status_code == 201
        assert_refused(limited.call("PUT", "/tensors/4", content=json.dumps(many), **put))
    assert limited.call("GET", "/tensors/2").status_code == 404


def test_answers_of_many_values_are_refused(limited: Client) -> None:
    for _ in range(4):
        assert limited.ops({"op": "zeros", "args": [[100, 100]], "out": 1}).status_code == 200
        read = limited.call("GET", "/tensors/1", headers={"Accept": "application/json"})
        assert read.status_code == 200 and np.shape(read.json()["values"]) == (100, 100)
        many = {"op": "add_", "args": [{"tensor": 1}, 1], "values": True}
        assert_refused(limited.ops(*[many] * 10))
        for shape, fits in (("12000", True), ("12000,1,1,1", False)):  # lists in lists take more
            raw = {"content": bytes(48_000), "headers": {"Content-Type": "application/octet-stream"}}
            assert limited.call("PUT", f"/tensors/2?dtype=float32&shape={shape}", **raw).status_code == 201
            read = limited.call("GET", "/tensors/2", headers={"Accept": "application/json"})
            assert read.status_code == 200 if fits else assert_refused(read) is None


def test_streams_of_tensors_are_charged_by_what_a_stream_holds(limited: Client) -> None:
    array = np.arange(3_000_000, dtype=np.float32)
    content = npy_header("float32", array.shape) + array.tobytes()
    assert limited.call("PUT", "/tensors/1", content=content).status_code == 201
    read = limited.call("GET", "/tensors/1", headers={"Accept": "application/octet-stream"})
    assert read.content == array.tobytes()


class Slow:
    """Bodies that pause before their last byte."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.waiting = 0
        self.read = 0

    async def body(self, content: bytes) -> AsyncIterator[bytes]:
        self.read += 1
        yield content[:-1]
        self.waiting += 1
        await self.go_on.wait()
        yield content[-1:]


def test_requests_of_a_tenant_share_its_limit_and_those_of_others_have_theirs(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text(TABLES.replace("sessions = 2", 'sessions = 2\nhost_memory = "6MiB"'))
    app = create_app(settings_of(tenants=str(file)), registry)

    async def post(client: httpx.AsyncClient, name: str, content: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {TOKENS[name]}", "Content-Type": "application/json"}
        return await client.post("/v1/sessions", content=content, headers=headers)

    async def run() -> None:
        slow, large = Slow(), json.dumps({"client": "x" * 2500 * KIB}).encode()
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            tasks = [asyncio.create_task(post(client, "alice", slow.body(large))) for _ in range(2)]
            while slow.waiting < 2:
                await asyncio.sleep(0)
            refused = await post(client, "alice", large)
            assert_refused(refused)
            assert "other requests of the tenant hold 4.9 MiB" in refused.json()["detail"]
            assert (await post(client, "bob", large)).status_code == 422, "the text is too long, and nothing else"
            tasks[0].cancel()
            await asyncio.gather(tasks[0], return_exceptions=True)
            slow.go_on.set()
            assert (await tasks[1]).status_code == 507, "it takes more once it is to be parsed"
            assert (await post(client, "alice", b"{}")).status_code == 201

    asyncio.run(run())


def test_a_body_is_not_read_of_who_has_shown_no_token(registry: FakeRegistry) -> None:
    app = create_app(settings_of(token=TOKENS["alice"]), registry)

    async def run() -> None:
        slow = Slow()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for path, status in (("/healthz", 405), ("/", 405), ("/v1/sessions", 401)):
                answer = await client.post(path, content=slow.body(b"{}"), headers={"Content-Type": "application/json"})
                assert answer.status_code == status
        assert slow.read == 0

    asyncio.run(run())
