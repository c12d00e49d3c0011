"""Launches that wait on a real device: random programs, made again and again, compute what a host computes.

Between the launches are all the ways in which somebody else comes to the device: reads and writes from the host, other
streams, library calls, memory that is given back, operations whose results have shapes that depend on the data.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from server.engine.devices import open_device
from server.engine.replay import launch_sequences
from server.session.programs.batches import recurring
from telegrad_protocol.meta import Device

pytestmark = pytest.mark.gpu
SIZE = 24
REPEATS = 12
LEVEL = 0.0137
"""What elements are compared with; many are 0 but for their rounding, which is not the host's on a device."""
Step = Callable[[Any, list[Any], str], None]


@pytest.fixture(autouse=True)
def _no_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes again is executed call by call here, or else no launches of single calls would wait."""
    monkeypatch.setattr(recurring, "FEWEST", 1 << 30)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch, cuda_device: str) -> list[int]:
    """A number for each graph that was launched.

    Sequences are captured the second time that they come, also where chains make them, where the device is busy with
    what other processes have launched, and where nothing came again in the tests before.
    """
    from server.engine.device.cuda_graphs import CudaGraph

    monkeypatch.setattr(launch_sequences, "_CHAINED", launch_sequences._CAPTURED + launch_sequences._CAPTURE)
    launches = open_device(Device(cuda_device)).launches  # type: ignore[attr-defined]
    launches.end_cooldown()
    monkeypatch.setattr(launches.sequences, "_is_idle", lambda stream: True)
    found: list[int] = []
    launch = CudaGraph.launch

    def counted(self: CudaGraph) -> bool:
        found.append(1)
        return launch(self)

    monkeypatch.setattr(CudaGraph, "launch", counted)
    return found


def _pointwise(rng: random.Random) -> Step:
    name, a, b, out = rng.choice(["add", "mul", "maximum", "sub"]), rng.randrange(6), rng.randrange(6), rng.randrange(6)

    def step(tg: Any, held: list[Any], device: str) -> None:
        held[out] = getattr(tg, name)(held[a], held[b]).tanh()

    return step


def _product(rng: random.Random) -> Step:
    a, b, out, kind = rng.randrange(6), rng.randrange(6), rng.randrange(6), rng.randrange(3)

    def step(tg: Any, held: list[Any], device: str) -> None:
        if kind == 0:
            held[out] = (held[a] @ held[b]).sin()
        elif kind == 1:
            held[out] = tg.nn.functional.linear(held[a], held[b], held[a][0]).sin()
        else:
            held[out] = tg.addmm(held[a], held[b].T, held[a], beta=0.5).sin()

    return step


def _rows(rng: random.Random) -> Step:
    a, out, name = rng.randrange(6), rng.randrange(6), rng.choice(["softmax", "cumsum", "sum", "norm", "sort"])

    def step(tg: Any, held: list[Any], device: str) -> None:
        if name == "sum":
            held[out] = held[a] - held[a].sum(1, keepdim=True) / SIZE + held[a].mean()
        elif name == "norm":
            held[out] = tg.nn.functional.layer_norm(held[a], (SIZE,))
        elif name == "sort":
            held[out] = held[a].sort(1)[0]
        else:
            held[out] = getattr(tg, name)(held[a], 1)

    return step


def _in_place(rng: random.Random) -> Step:
    a, b, kind = rng.randrange(6), rng.randrange(6), rng.randrange(4)

    def step(tg: Any, held: list[Any], device: str) -> None:
        if kind == 0:
            held[a].mul_(0.5).add_(held[b], alpha=0.25)
        elif kind == 1:
            held[a][1:, ::2].copy_(held[b][:-1, ::2].clone())
        elif kind == 2:
            held[a][0] = 0.5
        else:
            held[a].masked_fill_(held[b] > 0.75, -0.5)

    return step


def _indexed(rng: random.Random) -> Step:
    a, out, rows, kind = (
        rng.randrange(6),
        rng.randrange(6),
        [rng.randrange(SIZE) for _ in range(SIZE)],
        rng.randrange(3),
    )

    def step(tg: Any, held: list[Any], device: str) -> None:
        if kind == 0:
            held[out] = held[a][tg.tensor(rows, device=device)]
        elif kind == 1:
            held[out] = held[a] * (len((held[a] > LEVEL).nonzero()) / SIZE**2)
        else:
            held[out] = tg.cat([held[a][:3], tg.stack([held[a][5]] * (SIZE - 3))]).contiguous()

    return step


def _from_the_host(rng: random.Random) -> Step:
    a, out, kind = rng.randrange(6), rng.randrange(6), rng.randrange(4)
    data = np.random.default_rng(rng.randrange(1 << 30)).standard_normal((SIZE, SIZE))

    def step(tg: Any, held: list[Any], device: str) -> None:
        if kind == 0:
            held[out] = tg.tensor(data, device=device)
        elif kind == 1:
            held[out] = held[a] * held[a].abs().max().item()
        elif kind == 2:
            held[out] = tg.tensor(held[a].numpy(), device=device).cos()
        else:
            held[out] = held[a].to("cpu").exp().to(device).tanh()

    return step


def _memory(rng: random.Random) -> Step:
    a, out, kind = rng.randrange(6), rng.randrange(6), rng.randrange(3)

    def step(tg: Any, held: list[Any], device: str) -> None:
        if kind == 0:
            if device != "cpu":
                tg.cuda.empty_cache()
        elif kind == 1:
            big = held[a].repeat(40, 40).clone()
            held[out] = big[SIZE : 2 * SIZE, :SIZE].sin()
        else:
            held[out] = (held[a] - LEVEL).sign().half().float().double()  # rounding would tell equal numbers apart

    return step


def _stream(rng: random.Random) -> Step:
    a, b, out = rng.randrange(6), rng.randrange(6), rng.randrange(6)

    def step(tg: Any, held: list[Any], device: str) -> None:
        if device == "cpu":
            held[out] = (held[a] + held[b]).sin()
            return
        side, current = tg.cuda.Stream(), tg.cuda.current_stream()
        side.wait_stream(current)
        with tg.cuda.stream(side):
            found = (held[a] + held[b]).sin()
        current.wait_stream(side)
        for each in (held[a], held[b]):
            each.record_stream(side)
        found.record_stream(current)
        held[out] = found

    return step


def _learning(rng: random.Random) -> Step:
    a, b, out = rng.randrange(6), rng.randrange(6), rng.randrange(6)

    def step(tg: Any, held: list[Any], device: str) -> None:
        leaf = held[a].clone().requires_grad_()
        (tg.softmax(leaf @ held[b], 1) * leaf).sum().backward()
        held[out] = leaf.grad.tanh()

    return step


USUAL = (_pointwise, _pointwise, _product, _rows, _in_place)
RARE = (_indexed, _from_the_host, _memory, _stream, _learning)


def _program(rng: random.Random) -> list[Step]:
    return [rng.choice(USUAL if rng.random() < 0.85 else RARE)(rng) for _ in range(60)]


def _results(tg: Any, program: list[Step], data: np.ndarray[Any, Any], device: str) -> Iterator[np.ndarray[Any, Any]]:
    for _ in range(REPEATS):
        held = [tg.tensor(each, device=device) for each in data]
        for step in program:
            step(tg, held, device)
        yield np.stack([each.detach().numpy() for each in held])


@pytest.mark.parametrize("number", range(12))
def test_random_programs_compute_what_a_host_computes(
    cuda_tg: Any, number: int, seed: int, rng: np.random.Generator, graphs: list[int]
) -> None:
    program = _program(random.Random(seed + number))
    data = rng.standard_normal((6, SIZE, SIZE))
    expected = next(_results(cuda_tg, program, data, "cpu"))
    for found in _results(cuda_tg, program, data, "cuda"):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert graphs


def test_sessions_that_take_turns_keep_their_order(cuda_host: Any, rng: np.random.Generator, graphs: list[int]) -> None:
    import telegrad

    data = rng.standard_normal((2, SIZE, SIZE))
    connections = [telegrad.connect(in_process=cuda_host) for _ in range(2)]
    try:
        for _ in range(REPEATS):
            held = []
            for connection, each in zip(connections, data, strict=True):
                connection.use()
                held.append(telegrad.tensor(each))
                for _ in range(10):
                    held[-1] = (held[-1] * 0.5 + 0.25).sin()
            for tensor, each in zip(held, data, strict=True):
                for _ in range(10):
                    each = np.sin(each * 0.5 + 0.25)
                np.testing.assert_allclose(tensor.numpy(), each, rtol=1e-12)
    finally:
        for connection in connections:
            connection.disconnect()
    assert graphs


def test_nothing_waits_once_a_session_has_nothing_to_do(cuda_tg: Any, cuda_device: str) -> None:
    kept = cuda_tg.ones(3) + 1
    cuda_tg.cuda.synchronize()
    kept = kept * 2
    assert kept.sum().item() == 12
    assert not open_device(Device(cuda_device)).launches.waiting  # type: ignore[attr-defined]
