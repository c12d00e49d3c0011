"""Passes that free what a node has taken and write over spent gradients: less is held, and all values are the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from server.engine.device.cpu_backend import CpuBackend
from server.engine.operators import OPERATORS
from server.engine.programs.graph import Slot, Step
from server.engine.programs.joins.weights import apart, with_layers_whole
from server.engine.replay.remembered import forget_all, latest, tables
from server.worker.host import Host
from tests.support.captures import simulate_captures

NEVER = 1 << 60
WIDTH, ROWS, PASSES = 16, 64, 4


def _spend_from(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have values of so many bytes be spent; what was worked out for other sizes is forgotten."""
    monkeypatch.setattr(CpuBackend, "least_spent", nbytes)
    _forget()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing that was worked out in a test is used in others."""
    yield
    _forget()


def _forget() -> None:
    latest.clear()
    for table in tables.all:
        forget_all(table)


def _layers(tg: Any, rng: random.Random, count: int) -> tuple[list[Any], Callable[[Any], Any]]:
    """Parameters, and a function of random layers, some of which share what they are given, view it or write to it."""
    nn, F = tg.nn, tg.nn.functional
    parameters: list[Any] = []

    def weights(*shape: int) -> Any:
        made = (tg.randn(*shape) / WIDTH**0.5).requires_grad_()
        parameters.append(made)
        return made

    def linear() -> Callable[[Any], Any]:
        weight, bias = weights(WIDTH, WIDTH), rng.choice([None, weights(WIDTH)])
        return lambda x: F.linear(x, weight, bias)

    def norm() -> Callable[[Any], Any]:
        layer = nn.LayerNorm(WIDTH)
        parameters.extend(layer.parameters())
        return layer  # type: ignore[no-any-return]

    def residual() -> Callable[[Any], Any]:
        inner, outer = linear(), linear()
        return lambda x: x + outer(F.gelu(inner(x)))

    def gated() -> Callable[[Any], Any]:
        left, right = linear(), linear()
        return lambda x: left(x).sigmoid() * right(x)

    def shifted() -> Callable[[Any], Any]:
        shift, scale = weights(WIDTH), weights(WIDTH)
        return lambda x: (x + shift) * scale

    plain: list[Callable[[], Callable[[Any], Any]]] = [
        linear, norm, residual, gated, lambda: F.relu, lambda: F.silu, lambda: tg.tanh, lambda: tg.square,
        lambda: lambda x: x * 0.5, lambda: lambda x: tg.exp(x * 0.1), lambda: lambda x: x * x,
        lambda: lambda x: x.view(2, -1, WIDTH).relu().reshape(-1, WIDTH), lambda: lambda x: (x * 1.5).relu_(),
        lambda: lambda x: x.t().tanh().t(), lambda: lambda x: tg.abs(x) @ weights_of_product,
        lambda: lambda x: F.dropout(x, 0.0), lambda: lambda x: tg.lerp(x, x * 2, tg.sigmoid(x)),
        shifted,
    ]  # fmt: skip
    weights_of_product = weights(WIDTH, WIDTH)
    chosen = [rng.choice(plain)() for _ in range(count)]

    def model(x: Any) -> Any:
        for layer in chosen:
            x = layer(x)
        return x

    return parameters, model


def _told(value: Any) -> bytes:
    return bytes(value.detach().numpy().tobytes()) if value is not None else b""


def _passes(seed: int, way: str) -> list[Any]:
    """Gradients and losses of passes of random networks, made in one of the ways in which programs make them."""
    import telegrad as tg

    rng, told = random.Random(seed), []
    with tg.connect(in_process=Host(["cpu"])):
        for _ in range(6):
            tg.manual_seed(seed)
            parameters, model = _layers(tg, rng, rng.randint(2, 8))
            x = tg.randn(ROWS, WIDTH, requires_grad=True)
            given = tg.randn(ROWS, WIDTH)
            for number in range(PASSES):
                if number != 2:  # in one pass gradients are added up
                    for one in parameters:
                        one.grad = None
                out = model(x)
                kept = out * 2
                if way == "retained":
                    out.retain_grad()
                if way == "hooked":
                    out.register_hook(lambda grad: grad * 0.5)
                if way == "twice":
                    kept.backward(given, retain_graph=True)
                if way == "grad":
                    told.append(
                        list(map(_told, tg.autograd.grad(kept.sum(), [x], create_graph=True, allow_unused=True)))
                    )
                else:
                    kept.backward(given)
                told.append([*map(_told, (out, kept, given, x.grad, out.grad if way == "retained" else None))])
                told.append([_told(one.grad) for one in parameters])
    return told


WAYS = ("plain", "retained", "hooked", "twice", "grad")


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_the_same_to_the_bit(way: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _spend_from(NEVER, monkeypatch)
    expected = _passes(seed, way)
    _spend_from(1, monkeypatch)
    assert _passes(seed, way) == expected


def _trained(compiled: bool, steps: int) -> tuple[list[float], list[int]]:
    """Losses of a perceptron and the most bytes that each of its steps held besides what was there before."""
    import telegrad as tg

    host, held = Host(["cpu"]), []
    allocator = host.backends[host.default_device].allocator
    with tg.connect(in_process=host):
        tg.manual_seed(0)
        nn = tg.nn
        layers = [layer for _ in range(2) for layer in (nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.ReLU())]
        model = nn.Sequential(*layers)
        optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
        x = tg.randn(2048, 64)

        def step() -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run, losses = tg.compile(step) if compiled else step, []
        for _ in range(steps):
            before = allocator.memory_stats()["allocated_bytes.all.current"]
            allocator.reset_peak()
            losses.append(run().item())
            held.append(allocator.memory_stats()["allocated_bytes.all.peak"] - before)
    return losses, held


@pytest.mark.parametrize("compiled", [False, True])
def test_each_step_holds_less(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's passes, the one that is recorded, replayed ones, and the first calls of a compiled step."""
    _spend_from(NEVER, monkeypatch)
    losses, usual = _trained(compiled, 3 if compiled else 6)
    _spend_from(1 << 20, monkeypatch)
    sparing_losses, sparing = _trained(compiled, 3 if compiled else 6)
    assert sparing_losses == losses
    wide = 2048 * 256 * 4
    assert all([less <= more - wide // 2 for less, more in zip(sparing, usual, strict=True)]), (sparing, usual)


def test_captured_passes_spend_what_recorded_ones_did(monkeypatch: pytest.MonkeyPatch) -> None:
    _spend_from(1 << 20, monkeypatch)
    simulate_captures(monkeypatch)
    captured = _trained(False, 20)[0]
    monkeypatch.setattr(CpuBackend, "can_capture", False)
    assert captured == _trained(False, 20)[0]


def test_a_pass_that_has_freed_what_a_node_saved_refuses_a_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import telegrad as tg

    _spend_from(1, monkeypatch)
    with tg.connect(in_process=Host(["cpu"])):
        x, weight = tg.randn(8, 8, requires_grad=True), tg.randn(8, 8, requires_grad=True)
        for _ in range(PASSES):
            out = tg.nn.functional.gelu(tg.nn.functional.linear(x * 2, weight)).sum()
            out.backward()
            with pytest.raises(RuntimeError, match="second time"):
                out.backward()


def test_layers_that_a_pass_has_taken_apart_are_one_step_of_a_program() -> None:
    grad, x, weight, by_input, by_weight, by_bias = map(Slot, range(6))
    step = Step(OPERATORS["_linear_backward"], (grad, x, weight, True), (by_input, by_weight, by_bias))
    first, others = apart(step)
    assert with_layers_whole([others, first]) == [step]
    other_gradient = first._replace(args=(Slot(7), *first.args[1:]))
    assert with_layers_whole([others, other_gradient]) == [others, other_gradient]
