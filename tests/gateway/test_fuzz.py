"""Whatever a client sends, the gateway answers, and a mistake of the client with a problem that names it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telegrad_protocol.errors import BY_CODE

from .conftest import Client

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
keys = st.sampled_from(["tensor", "complex", "x"])
marked = st.dictionaries(keys, st.integers(-1, 2) | st.lists(scalars, max_size=3))
dtypes = st.sampled_from(["float32", "bfloat16", "bool", "complex64", "?"]) | scalars
values = st.recursive(scalars | marked, lambda inner: st.lists(inner, max_size=3), max_leaves=8)
steps = st.fixed_dictionaries(
    {"op": st.sampled_from(["tensor", "nothing", "", "tensor\0"]) | scalars},
    optional={
        "data": values, "args": st.lists(values, max_size=3), "kwargs": st.dictionaries(st.text(max_size=3), values),
        "out": values, "dtype": dtypes, "values": st.booleans(),
        "device": st.text(max_size=3), "requires_grad": values,
    },
)  # fmt: skip
bodies = values | steps | st.lists(steps, max_size=3)

lenient = settings(
    max_examples=150, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


def send(client: Client, path: str, body: Any) -> Any:
    return client.call("POST", path, content=body, headers={"Content-Type": "application/json"})


def holds(answer: Any) -> None:
    if answer.status_code >= 300:
        assert answer.status_code < 500, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] in BY_CODE
        assert answer.json()["detail"]
    json.loads(answer.text, parse_constant=pytest.fail)


@lenient
@given(body=bodies)
def test_any_json_to_ops(client: Client, body: Any) -> None:
    holds(send(client, "/ops", json.dumps(body)))


@lenient
@given(body=values | st.fixed_dictionaries({"roots": values}, optional={"gradients": values, "inputs": values}))
def test_any_json_to_backward(client: Client, body: Any) -> None:
    holds(send(client, "/backward", json.dumps(body)))


@lenient
@given(body=values | st.dictionaries(st.sampled_from(["protocol", "client", "other"]), values))
def test_any_json_to_sessions(client: Client, body: Any) -> None:
    client.registry.sessions = {client.session.id: client.session}
    holds(client.http.post("/v1/sessions", content=json.dumps(body), headers={"Content-Type": "application/json"}))


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000,
        '{"op": "tensor", "data": ' + "[" * 3000 + "]" * 3000 + "}",
        '{"op": "tensor", "data": ' + "[" * 100 + "1" + "]" * 100 + "}",
        '{"op": "nothing", "args": [1' + "0" * 400 + "]}",
        '{"op": "nothing", "args": [' + "1" * 10_000 + "]}",
        '{"op": "nothing", "args": ["\\ud800"]}',
        '{"op": "nothing", "kwargs": {"\\ud800": 1}}',
        '{"op": "nothing", "args": [{"complex": [1, 1' + "0" * 400 + "]}]}",
        '{"op": "tensor", "data": {"complex": [1, 1' + "0" * 400 + "]}}",
        '{"op": "tensor", "data": {"complex": [1, {"complex": [1, 2]}]}}',
        '{"op": "tensor", "data": 1' + "0" * 400 + ', "dtype": "complex64"}',
        '{"op": "\\ud800"}',
        '{"op": "tensor", "data": "\\ud800"}',
        '{"op": "tensor", "data": [1], "dtype": "\\ud800"}',
        '{"op": "tensor", "data": [1], "device": "\\ud800"}',
        '{"op": "tensor", "data": [1e999]}',
        '{"op": "tensor", "data": [1], "out": 1e400}',
    ],
)
def test_bodies_at_the_edge_of_what_json_can_say(client: Client, body: str) -> None:
    holds(send(client, "/ops", body))


@pytest.mark.parametrize(
    "body", ['{"a": "\\ud800"}', '{"\\ud800": 1}', '{"a": 1' + "0" * 99 + "}", '{"client": "\\udfff"}']
)
def test_descriptions_of_clients_at_the_edge_of_what_json_can_say(client: Client, body: str) -> None:
    holds(client.http.post("/v1/sessions", content=body, headers={"Content-Type": "application/json"}))
