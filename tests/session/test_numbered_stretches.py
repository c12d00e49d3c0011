"""Stretches whose numbers are others each time: one execution with the numbers that were sent, equal to the calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
import pytest

from server.engine import keys
from server.engine.device.cpu_backend import CpuBackend
from server.session.programs.stretches import Stretch
from tests.support.reading_numbers import reading_numbers

from .stretches import call_by_call

ROUNDS = 12
Arrays = list[np.ndarray[Any, Any]]
STEPS: Final[list[Callable[..., Any]]] = [
    lambda tg, x, y, n: x * n, lambda tg, x, y, n: x / n, lambda tg, x, y, n: x.add(y, alpha=n),
    lambda tg, x, y, n: n - x, lambda tg, x, y, n: x.sub(y, alpha=n), lambda tg, x, y, n: tg.where(x > n, x, y),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _reads(gains_by_stretches: None, captures: None, on: tuple[Any, str]) -> Iterator[None]:
    """Have operations of the host read numbers as those of GPUs do, and gain by stretches, captured or not."""
    with ExitStack() as stack:
        if on[1] == "cpu":
            stack.enter_context(reading_numbers(keys.CPU))
        yield


@pytest.fixture
def stretches(monkeypatch: pytest.MonkeyPatch) -> list[Stretch]:
    """Those that are made."""
    made: list[Stretch] = []
    plain = Stretch.__init__

    def noting(self: Stretch, *args: Any) -> None:
        plain(self, *args)
        made.append(self)

    monkeypatch.setattr(Stretch, "__init__", noting)
    return made


def _same_as_calls(tg: Any, run: Callable[[int], Arrays], rounds: int = ROUNDS) -> None:
    with call_by_call(tg):
        expected = [run(number) for number in range(rounds)]
    for number in range(rounds):
        for found, wanted in zip(run(number), expected[number], strict=True):
            np.testing.assert_array_equal(found, wanted, err_msg=f"round {number}")


def _is_captured_alone(on: tuple[Any, str]) -> bool:
    """Whether launches of a stretch are captured with their numbers."""
    return on[1] == "cpu" and CpuBackend.can_capture and "relocatable" not in vars(CpuBackend)


def test_a_step_with_other_numbers_each_time_is_one_execution(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str], stretches: list[Stretch]
) -> None:
    """The weights of a particle filter, whose observations are numbers."""
    tg, device = on
    seen = rng.uniform(1.1, 1.4, ROUNDS).tolist()
    x = tg.tensor(rng.standard_normal(50), dtype=tg.float32, device=device)

    def run(number: int) -> Arrays:
        weights = x
        for _ in range(2):
            weights = weights * (seen[number] - x) / (1 + seen[number] ** 2)
            weights = weights.sub(x, alpha=0.3 * seen[number]) * seen[number] + x
            weights = (weights - x * 0.25).relu().neg().exp()
        return [weights.numpy()]

    _same_as_calls(tg, run)
    assert not noted["_take_back"]
    assert max([len(one.numbers.constants) for one in stretches]) >= 8
    assert any([one.has_other_numbers for one in stretches]) == _is_captured_alone(on)
    assert noted["_begin"] >= ROUNDS // 2 or _is_captured_alone(on)


def test_numbers_that_have_expressions_of_their_own_are_computed_as_such(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]
) -> None:
    """Factors of 1, powers, infinities and what is not a number, in the middle of others."""
    tg, device = on
    x = tg.tensor(rng.standard_normal(40), dtype=tg.float32, device=device)
    special = [1.0, 0.0, -0.0, float("inf"), float("nan"), 1e-40, -1.0, 2.5]
    numbers = [special[n // 3 % 8] if n > 12 and n % 3 == 0 else float(rng.uniform(1.1, 1.4)) for n in range(40)]

    def run(number: int) -> Arrays:
        y = x.neg()
        for _ in range(4):
            y = (y * numbers[number] + x).neg() - x
        return [y.numpy()]

    _same_as_calls(tg, run, len(numbers))
    assert noted["_begin"] > 10 or _is_captured_alone(on)


def test_numbers_of_operations_that_need_them_at_once_divide_a_stretch(
    on: tuple[Any, str], rng: np.random.Generator, stretches: list[Stretch]
) -> None:
    """A quantile, whose number says which elements it takes, and a power of whole numbers."""
    tg, device = on
    shares = rng.uniform(0.11, 0.39, ROUNDS).tolist()
    x = tg.tensor(rng.standard_normal(40), dtype=tg.float32, device=device)

    def run(number: int) -> Arrays:
        y = x.neg().exp().sin().cos().abs().sqrt().neg().exp() * x
        y = tg.nn.functional.leaky_relu(y - x, shares[number])
        z = y.neg().exp().sin().cos().abs().sqrt().neg().exp() * x
        return [y.numpy(), (z * tg.quantile(z, shares[number])).numpy()]

    _same_as_calls(tg, run)


def test_calls_on_sizes_that_grow_are_divided_at_numbers_that_change(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str], stretches: list[Stretch]
) -> None:
    """Parts without such numbers are executed as one on all sizes, which the whole is not."""
    tg, device = on
    shares = rng.uniform(0.11, 0.39, 40).tolist()
    x = tg.tensor(rng.standard_normal((1, 30)), dtype=tg.float32, device=device)

    def run(number: int) -> Arrays:
        cache = x
        for step in range(16):
            y = x.neg().exp().sin().cos().abs().sqrt().neg().exp().sin() * x
            cache = tg.cat([cache, y.sub(x, alpha=shares[number + step])])
            cache.sum().item()
        return [cache.numpy()]

    _same_as_calls(tg, run)
    assert any([one.has_other_numbers for one in stretches])
    assert noted["_begin"] or _is_captured_alone(on)


@pytest.mark.parametrize("seed", range(6))
def test_random_loops_come_to_what_their_calls_come_to(
    on: tuple[Any, str], rng: np.random.Generator, seed: int, noted: Counter[str]
) -> None:
    """Random chains of operations, of which a random part has numbers that change."""
    tg, device = on
    kinds, changing = rng.integers(len(STEPS), size=24).tolist(), (rng.random(24) < 0.4).tolist()
    plan = list(zip(kinds, changing, *rng.integers(1, 9, (2, 24)).tolist()))
    start = [*tg.tensor(rng.uniform(0.5, 1.5, (3, 20)), dtype=tg.float32, device=device)]
    numbers = rng.uniform(1.01, 1.2, (ROUNDS, len(plan)))

    def run(number: int) -> Arrays:
        made = [each.neg() for each in start]
        for place, (kind, changes, a, b) in enumerate(plan):
            n = float(numbers[number if changes else 0, place])
            x, y = made[-min(a, len(made))], made[-min(b, len(made))]
            made.append(STEPS[kind](tg, x, y, n).clamp(-9, 9))
        return [each.numpy() for each in made[-3:]]

    _same_as_calls(tg, run)
    assert noted["_begin"]


def test_a_profile_tells_the_numbers_of_each_batch(on: tuple[Any, str], rng: np.random.Generator) -> None:
    """Several in one call, the same number in two calls, and a call without any between them."""
    tg, device = on
    x = tg.tensor(rng.standard_normal(40), dtype=tg.float32, device=device)
    numbers = rng.uniform(1.1, 1.4, ROUNDS).tolist()

    def run(number: int) -> None:
        y, n = x, numbers[number]
        for _ in range(3):
            y = (y.neg() * n).add(x, alpha=3 * n).cos() * n
        y.numpy()

    def told() -> list[list[str]]:
        with tg.profiler.profile(record_shapes=True) as profile:
            for number in range(ROUNDS):
                run(number)
        return [one.concrete_inputs for one in profile.events() if one.name in ("aten::mul", "aten::add")]

    with call_by_call(tg):
        expected = told()
    told()
    assert told() == expected
    assert [inputs[1] for inputs in expected[::3]] == [str(n) for n in numbers for _ in range(3)]


def test_calls_whose_numbers_are_needed_are_charged_to_the_session(
    on: tuple[Any, str], rng: np.random.Generator, stretches: list[Stretch]
) -> None:
    """Clients say on which lines their calls are, so there may be any number of them."""
    tg, device = on
    x = tg.tensor(rng.standard_normal(40), dtype=tg.float32, device=device)

    def run(number: int) -> None:
        y = x * (1.1 + number / 100)
        for _ in range(9):
            y = y.neg()
        y.numpy()

    for number in range(4):
        run(number)
    state = tg.ones(1)._session.transport._session.state
    account, before = state.host_memory, state.host_memory.noted
    stretch = next(one for one in stretches if one.numbers.constants)
    account.most, most = 0, account.most
    account.quota, quota = 0, account.quota
    stretch.divide_at_numbers(state)
    assert account.noted == before, "there is no room for it"
    account.most, account.quota = most, quota
    stretch.divide_at_numbers(state)
    assert account.noted > before
    assert stretch.has_other_numbers
