"""``TELEGRAD_CPU=0``: sessions have their GPUs, and nothing on the host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import telegrad as tg
from telegrad.errors import DeviceError
from tests.support import plain_http

from .server_process import ServerProcess


@pytest.fixture(scope="module", params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    module = "tests.support.serve" if request.param == "simulated" else "server"
    with ServerProcess(module, TELEGRAD_DEVICES="cuda:0", TELEGRAD_CPU="0") as running:
        yield running


def test_a_program_that_names_no_device_runs_on_the_gpu(server: ServerProcess) -> None:
    with tg.connect(server.url):
        tg.manual_seed(3)
        model = tg.nn.Sequential(tg.nn.Linear(8, 16), tg.nn.ReLU(), tg.nn.Linear(16, 4))
        optimizer = tg.optim.AdamW(model.parameters(), lr=0.1)
        x, y = tg.randn(32, 8), tg.randint(0, 4, (32,))
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = tg.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] / 2
        assert x.device.type == "cuda" and x.numpy().shape == (32, 8) and "cuda" in repr(x)


def test_tensors_on_the_host_are_refused_wherever_they_are_asked_for(server: ServerProcess) -> None:
    with tg.connect(server.url):
        for make in (
            lambda: tg.ones(2, device="cpu"),
            lambda: tg.tensor([1.0], device="cpu"),
            lambda: tg.ones(2).cpu(),
        ):
            with pytest.raises(DeviceError, match="device cpu is not there; the server has cuda:0"):
                make().tolist()
        assert tg.ones(3).sum().item() == 3.0, "the session goes on"
    opened = plain_http.post(f"{server.url}/v1/sessions", json={}, timeout=60).json()
    assert opened["devices"] and "cpu" not in opened["devices"]
    path, headers = f"{server.url}/v1/sessions/{opened['session']}", {"Telegrad-Session-Key": opened["key"]}
    with plain_http.Client(headers=headers, timeout=60) as http:
        answer = http.post(f"{path}/ops", json={"op": "ones", "args": [[2]], "kwargs": {"device": "cpu"}})
        assert (answer.status_code, answer.json()["code"]) == (422, "DeviceError")
        content = b"\0" * 8
        sent = http.put(f"{path}/tensors/1?device=cpu&dtype=float32&shape=2", content=content,
                        headers={"Content-Type": "application/octet-stream"})  # fmt: skip
        assert (sent.status_code, sent.json()["code"]) == (422, "DeviceError")
        assert http.delete(path).status_code == 204
