"""Stretches that write to what they have made, and take indices: equal to their calls, and only where that is safe."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from server.engine.operators import OPERATORS
from server.session.programs.stretches import Stretch
from telegrad.errors import IndexOutOfRangeError

from .stretches import call_by_call

ROUNDS = 9


@pytest.fixture(autouse=True)
def _learns(gains_by_stretches: None, captures: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the host gain by stretches, with captures and without, and its operations note what integers they make."""
    for operator in OPERATORS.values():
        for table in ("plans", "lookups", "runs", "checked"):
            monkeypatch.setattr(operator, table, type(getattr(operator, table))())


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls each stretch holds that is made."""
    counts: list[int] = []
    plain = Stretch.__init__

    def noting(self: Stretch, *args: Any) -> None:
        plain(self, *args)
        counts.append(self.calls)

    monkeypatch.setattr(Stretch, "__init__", noting)
    return counts


def _same_as_calls(tg: Any, run: Callable[[int], list[np.ndarray[Any, Any]]], rounds: int = ROUNDS) -> None:
    with call_by_call(tg):
        expected = [run(number) for number in range(rounds)]
    for number in range(rounds):
        for found, wanted in zip(run(number), expected[number], strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_sums_by_indices_that_were_computed_are_held_whole(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str], held: list[int]
) -> None:
    """A step of k-means: distances, the nearest, and sums where these are, which are whole numbers and so exact."""
    tg, device = on
    points = tg.tensor(rng.integers(-9, 9, (200, 4)), device=device, dtype=tg.float32)

    def run(number: int) -> list[np.ndarray[Any, Any]]:
        where = points[number : number + 5]
        for _ in range(3):
            nearest = (points[:, None] - where).square().sum(2).argmin(1)
            sums = tg.zeros_like(where).index_add_(0, nearest, points)
            amounts = tg.zeros(5, device=device).index_add_(0, nearest, tg.ones(200, device=device))
            where = tg.where(amounts[:, None] > 0, sums / amounts.clamp(min=1)[:, None], where)
            where.sum().item()
        return [where.numpy(), nearest.numpy(), amounts.numpy()]

    _same_as_calls(tg, run)
    assert noted["_begin"] and not noted["_take_back"]
    assert max(held) >= 14, "the writes have divided it"


def test_what_writes_to_a_view_of_what_was_there_divides_a_stretch(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]
) -> None:
    tg, device = on
    there = tg.tensor(rng.standard_normal((4, 6)), device=device, dtype=tg.float32)

    def run(number: int) -> list[np.ndarray[Any, Any]]:
        y = there.clone()
        for _ in range(10):
            y = y.sin()
        there[1].add_(1.5)
        row = there[0]
        for _ in range(10):
            y = (y + row).cos()
        row.mul_(0.5)
        for _ in range(10):
            y = y.tanh() + row
        return [y.numpy(), there.numpy()]

    before, rounds = there.numpy().copy(), 3 * ROUNDS  # each of two writes is found out by itself
    with call_by_call(tg):
        expected = [run(number) for number in range(rounds)]
    there.copy_(tg.tensor(before))
    for number in range(rounds):
        for found, wanted in zip(run(number), expected[number], strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert noted["_begin"] and not noted["_take_back"]


def test_made_tensors_may_be_written_to_in_every_way(on: tuple[Any, str], rng: np.random.Generator) -> None:
    """Several writes to one tensor, to views of it, and by it; and later ones to what a stretch has made."""
    tg, device = on
    x = tg.tensor(rng.standard_normal((6, 6)), device=device, dtype=tg.float32)

    def run(number: int) -> list[np.ndarray[Any, Any]]:
        y = x.clone().mul_(1.5).add_(x)
        view = y[1:3].t()
        view.sub_(2.0)
        part = y.narrow(0, 2, 2).relu_()
        total = tg.zeros(6, device=device)
        tg.sum(y, 0, out=total)
        y.addcmul_(part.sum(), total, value=0.25)
        copied = tg.empty_like(y).copy_(y.t())
        z = (copied + view.sum()).fill_diagonal_(3.0)
        result = [y.numpy(), z.numpy(), total.numpy(), view.numpy()]
        z.add_(1.0)
        return [*result, z.numpy(), copied.numpy()]

    _same_as_calls(tg, run)


def test_only_known_indices_are_taken_without_a_look(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]
) -> None:
    """The indices are an input: good ones are used, and one that is not is an error, with nothing else lost."""
    tg, device = on
    table = tg.tensor(rng.standard_normal((10, 4)), device=device, dtype=tg.float32)

    def run(rows: list[int]) -> np.ndarray[Any, Any]:
        y = table.index_select(0, tg.tensor(rows, device=device))
        y.sum().item()
        for _ in range(5):
            y = (y + table.index_select(0, tg.tensor(rows, device=device))).sin().mul(1.25)
        return y.numpy()

    good = [rng.integers(0, 10, 3).tolist() for _ in range(ROUNDS)]
    with call_by_call(tg):
        expected = [run(rows) for rows in good]
    for rows, wanted in zip(good, expected, strict=True):
        np.testing.assert_array_equal(run(rows), wanted)
    with pytest.raises(IndexOutOfRangeError, match="index 10 is out of range"):
        run([0, 10, 3])
    np.testing.assert_array_equal(run(good[0]), expected[0])


@pytest.mark.parametrize("count", [10, 13])
def test_places_that_may_lie_outside_are_looked_at(on: tuple[Any, str], rng: np.random.Generator, count: int) -> None:
    """Of places among thirteen only some are rows of a table of ten; those that are not must be found."""
    tg, device = on
    table = tg.tensor(rng.standard_normal((10, 4)), device=device, dtype=tg.float32)
    scores = tg.tensor(rng.standard_normal((3, count)), device=device, dtype=tg.float32)

    def run(best: int) -> np.ndarray[Any, Any]:
        x = scores.clone()
        x[:, best] = 9.0
        x.sum().item()
        y = scores
        for _ in range(8):
            y = y.sin()
        chosen = (x + y * 0.0).argmax(1)
        return (table.index_select(0, chosen).square().sum(1) + y.sum(1)).numpy()

    with call_by_call(tg):
        expected = [run(number) for number in range(10)]
    for _ in range(3):
        for number in range(10):
            np.testing.assert_array_equal(run(number), expected[number])
    if count > 10:
        with pytest.raises(IndexOutOfRangeError, match="index 12 is out of range"):
            run(12)
        np.testing.assert_array_equal(run(3), expected[3])


def test_sizes_may_change_where_indices_do_not_depend_on_them(
    on: tuple[Any, str], rng: np.random.Generator, noted: Counter[str]
) -> None:
    """Tokens are places in a row that stays; places in the rows that grow are looked at each time."""
    tg, device = on
    table = tg.tensor(rng.standard_normal((12, 8)), device=device, dtype=tg.float32)

    def decoded(_: int) -> list[np.ndarray[Any, Any]]:
        cache, token, results = None, tg.zeros(1, dtype=tg.int64, device=device), []
        for _ in range(30):
            row = table.index_select(0, token)
            cache = row if cache is None else tg.cat([cache, row])
            weights = (row @ cache.t() * 0.3).softmax(-1)
            nearest = cache.index_select(0, weights.argmax(1))
            y = ((weights @ cache).sin() + row.tanh() + nearest).square().add(0.5).sqrt()
            token = (y @ table.t()).argmax(-1)
            results.append(y.sum().item())
        return [np.array(results), token.numpy()]

    if device == "cpu":
        _same_as_calls(tg, decoded, 3)
    else:  # a product of a new shape is done by a guess first, and later by what turns out to be the fastest
        with call_by_call(tg):
            expected = decoded(0)
        np.testing.assert_allclose(decoded(0)[0], expected[0], rtol=1e-3)


@pytest.mark.parametrize("captures", ["captured"], indirect=True)
def test_rows_of_what_grows_are_held_while_their_places_are_rows(
    tg: Any, rng: np.random.Generator, noted: Counter[str]
) -> None:
    """Places among four are rows of what has four rows, however long these are; of what has three they may not be."""
    scores, data = tg.tensor(rng.standard_normal((4, 4))), rng.standard_normal((4, 40))
    chosen = scores.numpy().argmax(1)

    def run(rows: int, length: int) -> np.ndarray[Any, Any]:
        grown = tg.tensor(data[:rows, :length])
        grown.sum().item()
        places = ((scores * 2.0 + 1.0) * 0.5).argmax(1)
        y = grown.index_select(0, places)
        for _ in range(4):
            y = (y * 1.5).tanh()
        return y.numpy()

    def expected(length: int) -> np.ndarray[Any, Any]:
        y = data[chosen, :length]
        for _ in range(4):
            y = np.tanh(y * 1.5)
        return y

    for length in range(3, 20):
        np.testing.assert_allclose(run(4, length), expected(length), rtol=1e-12)
    assert noted["_begin"] > 5 and not noted["_take_back"]
    scores.copy_(tg.eye(4))
    with pytest.raises(IndexOutOfRangeError, match="index 3 is out of range"):
        run(3, 30)
    assert noted["_take_back"] == 1


def _random_loop(chance: random.Random) -> Callable[[Any, list[Any], Any], None]:
    """A loop's body over six matrices, which stay from round to round: calls that make, view, write and index."""
    steps = [(chance.choice(list(_KINDS)), *[chance.randrange(6) for _ in range(3)]) for _ in range(28)]

    def body(tg: Any, held: list[Any], there: Any) -> None:
        for kind, a, b, out in steps:
            _KINDS[kind](tg, held, a, b, out, there)

    return body


def _sums(tg: Any, held: list[Any], a: int, b: int, out: int, there: Any) -> None:
    index = held[b].argmax(1)
    held[out] = tg.zeros_like(held[a]).index_add_(0, index, held[a].round())


def _chosen(tg: Any, held: list[Any], a: int, b: int, out: int, there: Any) -> None:
    held[out] = held[a].index_select(0, held[b].topk(6, 1)[1][:, 0]) * 0.5


def _written(tg: Any, held: list[Any], a: int, b: int, out: int, there: Any) -> None:
    made = held[a].clone()
    made[1:3].mul_(0.5)
    made.t().select(0, 2).copy_(held[b][0])
    held[out] = made


def _replaced(tg: Any, held: list[Any], a: int, b: int, out: int, there: Any) -> None:
    held[out] = held[a].sin()


_KINDS: dict[str, Callable[[Any, list[Any], int, int, int, Any], None]] = {
    "make": _replaced, "sums": _sums, "chosen": _chosen, "written": _written,
    "together": lambda tg, held, a, b, out, there: held.__setitem__(out, (held[a] + held[b]).tanh()),
    "in place": lambda tg, held, a, b, out, there: held[a].mul_(0.5).add_(held[b].clone(), alpha=0.25),
    "a view": lambda tg, held, a, b, out, there: held.__setitem__(out, held[a].t()),
    "a row": lambda tg, held, a, b, out, there: held[a][out].add_(0.125),
    "given": lambda tg, held, a, b, out, there: tg.maximum(held[a], held[b].clone(), out=held[a]),
    "there": lambda tg, held, a, b, out, there: there[out].add_(held[a][b]).clamp_(-4, 4),
    "from there": lambda tg, held, a, b, out, there: held.__setitem__(out, held[a] * there),
}  # fmt: skip


@pytest.mark.parametrize("number", range(10))
def test_random_loops_come_to_what_their_calls_come_to(
    on: tuple[Any, str], rng: np.random.Generator, seed: int, number: int
) -> None:
    tg, device = on
    body, data = _random_loop(random.Random(seed + number)), rng.standard_normal((7, 6, 6))

    def results() -> list[np.ndarray[Any, Any]]:
        *held, there = [tg.tensor(each, device=device) for each in data]
        found = []
        for turn in range(2 * ROUNDS):
            body(tg, held, there)
            found.append(held[turn % 6].numpy().copy())
            if turn % 3 == 2:
                held[:] = [each.clone() for each in held]
        return [*found, *[each.numpy() for each in held], there.numpy()]

    with call_by_call(tg):
        expected = results()
    for found, wanted in zip(results(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
