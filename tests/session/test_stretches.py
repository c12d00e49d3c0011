"""Calls that a program makes again and again are executed as one, and nobody can tell but by the time it takes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from server.session.programs import holding
from telegrad._session.sending import send_queue
from telegrad._session.thread_modes import DEFAULT
from telegrad.errors import InternalError, LinearAlgebraError, OutOfMemoryError
from telegrad_protocol import messages
from telegrad_protocol.ops import TABLE

from .stretches import call_by_call

pytestmark = pytest.mark.usefixtures("gains_by_stretches")

ROUNDS = 7


def test_numbers_that_come_to_take_more_bytes_are_learnt_anew(
    host: Any, noted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a client that begins with small ones."""
    import telegrad

    monkeypatch.setattr(send_queue, "FIRST_NUMBER", 1)
    with telegrad.connect(in_process=host):
        x = telegrad.ones(4)
        for _ in range(60):
            y = x
            for _ in range(12):
                y = y.sin()
            assert float(y.sum().item()) == pytest.approx(4 * 0.43189843, rel=1e-5)
    assert noted["_record"] >= 2 and noted["_begin"]


def _block(tg: Any, x: Any, weights: list[Any]) -> Any:
    """Calls of many kinds that change nothing: products, views, rows, casts, results that are not needed."""
    for weight in weights:
        a, b, c = (x @ weight).split(8, dim=1)
        mixed = tg.softmax(a @ b.transpose(0, 1), -1) @ c
        x = x + tg.cat([mixed, mixed.tanh(), mixed.double().to(x.dtype)], 1) @ weight.transpose(0, 1) * 0.1
        x = tg.nn.functional.layer_norm(x, (16,))
    return x


def _weights(tg: Any, rng: np.random.Generator, device: str) -> list[Any]:
    return [tg.tensor(rng.standard_normal((16, 24)), device=device, dtype=tg.float32) for _ in range(3)]


def _loop(tg: Any, x: Any, weights: list[Any], rounds: int = ROUNDS) -> list[np.ndarray[Any, Any]]:
    results = []
    for _ in range(rounds):
        y = x
        for _ in range(3):
            y = _block(tg, y, weights)
        results.append(y.detach().numpy())
    return results


def test_results_are_equal_to_the_bit(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]
) -> None:  # fmt: skip
    tg, device = on
    weights = _weights(tg, rng, device)
    x = tg.tensor(rng.standard_normal((5, 16)), device=device, dtype=tg.float32)
    with call_by_call(tg):
        (expected,) = _loop(tg, x, weights, 1)
    assert not noted
    for found in _loop(tg, x, weights):
        np.testing.assert_array_equal(found, expected)
    assert noted["_record"] and noted["_begin"] and not noted["_take_back"]


def test_shapes_may_change(on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]) -> None:
    tg, device = on
    weights = _weights(tg, rng, device)
    inputs = [tg.tensor(rng.standard_normal((n, 16)), device=device, dtype=tg.float32) for n in (3, 7, 4)]
    with call_by_call(tg):
        expected = [_loop(tg, x, weights, 1)[0] for x in inputs]
    for _ in range(ROUNDS):
        for x, wanted in zip(inputs, expected, strict=True):
            np.testing.assert_array_equal(_loop(tg, x, weights, 1)[0], wanted)
    assert noted["_begin"]


def _train(tg: Any, device: str, arrays: list[np.ndarray[Any, Any]], steps: int) -> list[np.ndarray[Any, Any]]:
    weights = [tg.tensor(each, device=device, dtype=tg.float32, requires_grad=True) for each in arrays[1:]]
    x = tg.tensor(arrays[0], device=device, dtype=tg.float32)
    optimizer = tg.optim.AdamW(weights, lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        hidden = _block(tg, x, weights)
        loss = (_block(tg, hidden, weights) - x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().numpy())
    return [*losses, *[each.detach().numpy() for each in weights]]


def test_training_is_equal_to_the_bit(on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]) -> None:
    tg, device = on
    arrays = [rng.standard_normal((5, 16)), *[rng.standard_normal((16, 24)) for _ in range(2)]]
    with call_by_call(tg):
        expected = _train(tg, device, arrays, 12)
    found = _train(tg, device, arrays, 12)
    assert not noted["_begin"]  # what has a history is executed call by call
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_gradients_of_gradients_and_hooks_are_those_of_calls(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]
) -> None:  # fmt: skip
    tg, device = on
    weight = tg.tensor(rng.standard_normal((16, 24)), device=device, dtype=tg.float32, requires_grad=True)
    x = tg.tensor(rng.standard_normal((4, 16)), device=device, dtype=tg.float32)

    def both() -> list[np.ndarray[Any, Any]]:
        y = _block(tg, x, [weight, weight])
        seen: list[Any] = []
        y.register_hook(lambda gradient: seen.append(gradient) or gradient * 2)
        (first,) = tg.autograd.grad(y.square().sum(), weight, create_graph=True)
        (second,) = tg.autograd.grad(first.square().sum(), weight)
        return [seen[0].detach().numpy(), first.detach().numpy(), second.numpy()]

    with call_by_call(tg):
        expected = both()
    for _ in range(ROUNDS):
        for a, b in zip(both(), expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_random_numbers_go_on_as_they_would(on: tuple[Any, str], noted: Counter[str]) -> None:
    tg, device = on
    x = tg.ones(64, device=device)

    def drawn() -> np.ndarray[Any, Any]:
        tg.manual_seed(5)
        y = x
        for _ in range(ROUNDS):
            for _ in range(12):
                y = tg.nn.functional.dropout(y, 0.1).sin() + tg.rand(64, device=device)
            y.sum().item()
        return y.numpy()

    with call_by_call(tg):
        expected = drawn()
    np.testing.assert_array_equal(drawn(), expected)
    np.testing.assert_array_equal(drawn(), expected)
    assert noted["_begin"]


def test_who_writes_to_a_view_afterwards_writes_to_its_base(on: tuple[Any, str], noted: Counter[str]) -> None:
    tg, device = on
    x = tg.ones(4, 6, device=device)
    for _ in range(ROUNDS):
        y = x
        for _ in range(10):
            y = y.transpose(0, 1).view(y.shape[1], y.shape[0]) * 1.5
        row = y[0]
        row.add_(2.5)
        y[1, 1] = 7.0
        assert float(y[0, 0]) == pytest.approx(1.5**10 + 2.5, rel=1e-6)
        assert float(y[1, 1]) == 7.0 and float(row[0]) == float(y[0, 0])
    assert noted["_begin"]


def test_memory_is_given_back(on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]) -> None:
    tg, device = on
    weights = _weights(tg, rng, device)
    x = tg.tensor(rng.standard_normal((5, 16)), device=device, dtype=tg.float32)

    def held() -> int:
        return int(tg.cuda.memory_allocated(x.device))

    with call_by_call(tg):
        _loop(tg, x, weights, 1)
        before = held()
    _loop(tg, x, weights)
    assert noted["_begin"]
    assert held() == before


def test_what_fails_in_the_middle_fails_where_it_is(tg: Any, rng: np.random.Generator, noted: Counter[str]) -> None:
    """The tenth call fails for what only elements tell: results before it are there, those after it are not."""
    matrix, good = tg.ones(3, 3, dtype=tg.float64), tg.tensor(np.eye(3) * rng.uniform(1, 2))
    bad = tg.full((3, 3), -1.0, dtype=tg.float64)

    def run(elements: Any) -> tuple[Any, Any, Any]:
        matrix.copy_(elements).sum().item()
        y = matrix
        for _ in range(9):
            y = y * 1.0
        inverse = tg.linalg.cholesky(y)
        return y, inverse, inverse.sin().cos()

    for _ in range(ROUNDS):
        results = run(good)
        assert np.isfinite(results[-1].numpy()).all()
    results = run(bad)
    with pytest.raises(LinearAlgebraError, match=r"linalg\.cholesky"):
        results[-1].numpy()
    assert (results[0].numpy() == -1).all()
    assert noted["_take_back"] == 1


def test_statistics_are_updated_once_where_a_later_call_fails(tg: Any) -> None:
    """A batch normalization that is trained changes what was there, so that it cannot be executed a second time."""
    mean, variance, matrix = tg.zeros(3), tg.ones(3), tg.eye(3)
    good, bad = tg.eye(3), -tg.eye(3)

    def run(elements: Any) -> Any:
        matrix.copy_(elements).sum().item()
        y = tg.nn.functional.batch_norm(matrix + 1, mean, variance, training=True, momentum=0.5)
        for _ in range(9):
            y = y * 1.0
        return (y + tg.linalg.cholesky(matrix)).sum().item()

    for _ in range(ROUNDS):
        run(good)
    with pytest.raises(LinearAlgebraError, match=r"linalg\.cholesky"):
        run(bad)
    expected = (4 / 3) * (1 - 0.5**ROUNDS) / 2 + (2 / 3) / 2
    np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-6)


def test_lack_of_memory_leaves_what_came_before_it(tg: Any, noted: Counter[str]) -> None:
    x = tg.ones(1 << 20)

    def run() -> tuple[Any, list[Any]]:
        y, kept = x, []
        for _ in range(9):
            y = y + 1
        for _ in range(6):
            kept.append(y.repeat(16))
        return y, kept

    for _ in range(ROUNDS):
        y, kept = run()
        assert float(kept[-1][0]) == 10.0
        del y, kept
    held, total = tg.cuda.memory_allocated("cpu"), tg.cuda.mem_get_info()[1]
    tg.cuda.set_per_process_memory_fraction((held + (200 << 20)) / total)
    y, kept = run()
    with pytest.raises(OutOfMemoryError):
        kept[-1].sum().item()
    assert float(y[0]) == 10.0 and float(kept[0][0]) == 10.0


def test_a_batch_is_found_by_its_bytes_alone(tg: Any, rng: np.random.Generator, noted: Counter[str]) -> None:
    """Any other number in a batch makes it another batch."""
    x = tg.tensor(rng.standard_normal(8))
    batches = x._session.transport._session._batches

    def run(factor: float, dim: int = 0) -> float:
        y = x
        for _ in range(8):
            y = (y * factor).sin()
        return float(y.sum(dim).item())

    for _ in range(ROUNDS):
        run(1.25)
    before = batches.policy.hits + batches._hits
    assert run(-0.5) == pytest.approx(float(_repeated(np.sin, x.numpy(), -0.5)))
    assert batches.policy.hits + batches._hits == before
    run(1.25)
    run(1.25)
    assert batches.policy.hits + batches._hits > before


def _repeated(function: Any, x: np.ndarray[Any, Any], factor: float) -> Any:
    for _ in range(8):
        x = function(x * factor)
    return x.sum()


def test_an_operation_that_a_device_checks_divides_a_stretch(
    tg: Any, noted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    checked: set[int] = set()
    monkeypatch.setattr(holding, "_checked", checked)
    x = tg.ones(4)

    def run() -> float:
        y = x
        for _ in range(10):
            y = y.sin()
        y = y.tanh()
        for _ in range(10):
            y = y.sin()
        return float(y.sum().item())

    expected = {run() for _ in range(ROUNDS)}
    whole = noted["_begin"]
    checked.add(TABLE["tanh"].index)
    expected |= {run() for _ in range(ROUNDS + 1)}
    assert len(expected) == 1 and whole
    before = noted["_begin"]
    run()
    assert noted["_begin"] == before + 2


@pytest.mark.parametrize("args", [[1], [[[1]]], ["no tensor"], [{"a": 1}], [1 << 63]], ids=str)
def test_what_is_no_call_fails_as_ever_however_often_it_comes(tg: Any, args: list[Any]) -> None:
    session = tg.ones(1)._session
    for op in (1 << 20, TABLE["sin"].index, TABLE["add_"].index, TABLE["_foreach_zero_"].index) * 4:
        for _ in range(10):
            session.queue(messages.Call(op, 0, (session.new_id(),), args), DEFAULT)
        with pytest.raises(tg.TelegradError) as caught:
            tg.ones(1).item()
        assert not isinstance(caught.value, InternalError)
    assert tg.ones(1).item() == 1.0


@pytest.mark.parametrize("is_seen", [True, False])
def test_numbers_that_change_each_time_are_not_looked_at_forever(
    tg: Any, noted: Counter[str], monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    """Whether the first look at a batch sees some of them or none: no operation of the host reads numbers."""
    x = tg.ones(4)
    batches = x._session.transport._session._batches
    looks, plain = [], batches._learn
    monkeypatch.setattr(batches, "_learn", lambda *args: looks.append(1) or plain(*args), raising=False)
    for number in range(12):
        y, factor = x, 1.5 + number / 16
        for _ in range(10):
            y = (y * factor).sin() if is_seen else y.sin() * factor
        y.sum().item()
    assert 1 <= len(looks) <= 4 and not noted


def test_a_program_that_records_what_it_does_has_no_batch_compared(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = tg.ones(4, requires_grad=True)
    batches = x._session.transport._session._batches
    looks, plain = [], batches._look
    monkeypatch.setattr(batches, "_look", lambda *args: looks.append(1) or plain(*args), raising=False)

    def run() -> None:
        y = x
        for _ in range(16):
            y = y.sin() + 1
        y.sum().item()

    run()
    looks.clear()
    for _ in range(ROUNDS):
        run()
    assert not looks
    with tg.no_grad():
        for _ in range(ROUNDS):
            run()
    assert looks


def test_somebody_who_watches_sees_each_call(tg: Any, noted: Counter[str]) -> None:
    x = tg.ones(8)

    def run() -> None:
        y = x
        for _ in range(16):
            y = y.sin() + 1
        y.sum().item()

    for _ in range(ROUNDS):
        run()
    assert noted["_begin"]
    with tg.profiler.profile() as profile:
        run()
    assert sum([row.count for row in profile.key_averages() if row.key == "aten::sin"]) == 16
