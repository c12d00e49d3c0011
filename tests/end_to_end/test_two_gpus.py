"""Two GPUs of a worker process: sessions over a socket train on both, and as PyTorch does on the same GPUs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import telegrad
from server.engine.device.current_device import device_count
from telegrad_protocol.errors import DeviceError

from ..gpus import needs_two
from ..transport.waiting import wait_until
from .server_process import ServerProcess

STEPS = 15
SIMULATED, REAL = "simulated", pytest.param("real", marks=[pytest.mark.gpu, needs_two])


@pytest.fixture(scope="module", params=[SIMULATED, REAL])
def node_server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server whose one worker has two GPUs: simulated ones, or those of this machine."""
    if request.param == SIMULATED and device_count():
        pytest.skip("the real GPUs are tested")
    module = "tests.support.serve" if request.param == SIMULATED else "server"
    with ServerProcess(module, TELEGRAD_DEVICES="cuda:0,cuda:1") as process:
        yield process


@pytest.fixture
def tg(node_server: ServerProcess) -> Iterator[Any]:
    """The client library on a session with two GPUs; a test leaves no byte on them."""
    with telegrad.connect(node_server.url):
        yield telegrad
        telegrad.cuda.set_device(0)
    wait_until(lambda: not node_server.sessions, "the sessions ended")
    assert node_server.held_on("cuda:0") == node_server.held_on("cuda:1") == 0


def _model(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def _batches(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(rng.standard_normal((10, 8), np.float32), rng.integers(0, 4, 10)) for _ in range(STEPS)]


def _train(tg: Any, net: Any, run: Any, batches: Any, place: str, target: str) -> list[float]:
    """Losses of a training of ``net`` by ``run``, with inputs on ``place`` and targets on ``target``."""
    optimizer = tg.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for x, y in batches:
        logits = run(tg.from_numpy(x).to(place))
        loss = tg.nn.functional.cross_entropy(logits, tg.from_numpy(y).to(target))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [float(loss.item()) for loss in losses]


def _reference(rng: np.random.Generator) -> Any:
    torch.manual_seed(int(rng.integers(1 << 30)))
    return _model(torch.nn)


def _ours(tg: Any, reference: Any) -> Any:
    net = _model(tg.nn)
    net.load_state_dict({name: tg.tensor(value.cpu().numpy()) for name, value in reference.state_dict().items()})
    return net


def _staged(net: Any) -> Any:
    first, second = net[:3].to("cuda:0"), net[3:].to("cuda:1")
    return lambda x: second(first(x).to("cuda:1"))


@pytest.mark.filterwarnings("ignore:.*Attempting to run cuBLAS, but there was no current CUDA context")
def test_data_parallel_trains_as_under_pytorch(tg: Any, rng: np.random.Generator) -> None:
    """Where there are GPUs, PyTorch's DataParallel runs on the same two; else PyTorch trains on the CPU."""
    reference, batches = _reference(rng), _batches(rng)
    net = _ours(tg, reference)
    ours = _train(tg, net, tg.nn.DataParallel(net), batches, "cuda:0", "cuda:0")
    if torch.cuda.device_count() > 1:
        reference.to("cuda:0")
        theirs = _train(torch, reference, torch.nn.DataParallel(reference), batches, "cuda:0", "cuda:0")
    else:
        theirs = _train(torch, reference, reference, batches, "cpu", "cpu")
    np.testing.assert_allclose(ours, theirs, rtol=2e-4)
    assert ours[-1] != ours[0]


def test_a_pipeline_trains_as_under_pytorch(tg: Any, rng: np.random.Generator) -> None:
    reference, batches = _reference(rng), _batches(rng)
    net = _ours(tg, reference)
    ours = _train(tg, net, _staged(net), batches, "cuda:0", "cuda:1")
    assert {p.device.index for p in net.parameters()} == {0, 1}
    if torch.cuda.device_count() > 1:
        theirs = _train(torch, reference, _staged(reference), batches, "cuda:0", "cuda:1")
    else:
        theirs = _train(torch, reference, reference, batches, "cpu", "cpu")
    np.testing.assert_allclose(ours, theirs, rtol=2e-4)


def test_a_step_on_two_gpus_waits_for_nothing(tg: Any, rng: np.random.Generator) -> None:
    net = _model(tg.nn)
    optimizer, run = tg.optim.SGD(net.parameters(), lr=0.1), _staged(net)
    x = tg.tensor(rng.standard_normal((4, 8), np.float32), device="cuda:0")
    before = tg.wire_stats().round_trips
    for _ in range(3):
        optimizer.zero_grad()
        with tg.cuda.device(1):
            loss = run(x).square().mean()
        loss.backward()
        tg.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    assert tg.wire_stats().round_trips == before
    assert loss.item() > 0


def test_threads_work_on_gpus_of_their_own(tg: Any) -> None:
    """The current GPU of each thread decides where its tensors are, whatever the others do meanwhile."""
    wrong: list[Any] = []

    def work(index: int) -> None:
        tg.cuda.set_device(index)
        total = tg.zeros(3)
        for step in range(200):
            total = total + tg.full((3,), float(step), device="cuda")
            if total.device.index != index:
                wrong.append(total.device)
        if total.tolist() != [sum(range(200))] * 3:
            wrong.append(total.tolist())

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and tg.cuda.current_device() == 0


def test_mistakes_are_found_at_the_call_and_the_session_goes_on(tg: Any) -> None:
    a, b = tg.ones(2, device="cuda:0"), tg.ones(2, device="cuda:1")
    with pytest.raises(DeviceError, match="found at least two devices, cuda:0 and cuda:1!"):
        a + b
    assert tg.cuda.device_count() == 2 and (a.to("cuda:1") + b).tolist() == [2, 2]
