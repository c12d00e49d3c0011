"""What depends on no size in calls that come again on other sizes is captured, and launched from then on.

The host pretends to be able to capture work (``support.captures``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from server.engine.programs.recorded import sections

from ..support.captures import Again, simulate_captures
from .stretches import call_by_call

pytestmark = pytest.mark.usefixtures("gains_by_stretches")

WIDTH = 16


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often sections were captured, and how often they were launched."""
    simulate_captures(monkeypatch)
    counts: Counter[str] = Counter()

    def counted(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def noting(*args: Any) -> Any:
            counts[name] += 1
            return original(*args)

        monkeypatch.setattr(owner, name, noting)

    counted(sections._Launched, "launch")
    counted(sections._Captor, "_captured")
    return counts


@pytest.fixture
def tg(launches: Counter[str], tg: Any) -> Any:
    """The client library, with a session that was opened after that."""
    return tg


def _weights(tg: Any, rng: np.random.Generator) -> list[Any]:
    sizes = [(WIDTH, 3 * WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
    return [tg.tensor(rng.standard_normal(size) * 0.3, dtype=tg.float32) for _ in range(3) for size in sizes]


def _decoded(tg: Any, weights: list[Any], first: Any, count: int, keeps: Callable[[Any], Any]) -> list[Any]:
    """The tokens of layers whose caches grow by each token. What ``keeps`` makes of each one is kept."""
    caches: list[Any] = [None] * 3
    kept, y = [], first
    for _ in range(count):
        for layer in range(3):
            qkv, up, down = weights[3 * layer : 3 * layer + 3]
            query, key, value = (tg.nn.functional.layer_norm(y, (WIDTH,)) @ qkv).split(WIDTH, dim=1)
            if caches[layer] is not None:
                key, value = tg.cat([caches[layer][0], key]), tg.cat([caches[layer][1], value])
            caches[layer] = key, value
            y = y + tg.softmax(query @ key.transpose(0, 1) * 0.3, -1) @ value
            y = y + tg.nn.functional.gelu(tg.nn.functional.layer_norm(y, (WIDTH,)) @ up) @ down
        kept.append(keeps(y))
        y = y.tanh()
    return kept


def _whole(y: Any) -> Any:
    return y


def _parts_of(y: Any) -> Any:
    """Views of one result, of which the last is written to."""
    left, right = y.tanh().split(WIDTH // 2, dim=1)
    right.mul_(2.0)
    return left


@pytest.mark.parametrize("keeps", [_whole, _parts_of])
def test_a_growing_cache_comes_to_the_same_when_sections_are_launched(
    tg: Any, rng: np.random.Generator, launches: Counter[str], keeps: Callable[[Any], Any]
) -> None:
    """Results that are kept over many tokens are not those of a later token."""
    weights = _weights(tg, rng)
    first = tg.tensor(rng.standard_normal((1, WIDTH)), dtype=tg.float32)
    with call_by_call(tg):
        expected = [y.numpy() for y in _decoded(tg, weights, first, 60, keeps)]
    assert not launches
    for _ in range(2):
        found = [y.numpy() for y in _decoded(tg, weights, first, 60, keeps)]
        np.testing.assert_array_equal(found, expected)
    assert launches["launch"] > 100


def test_weights_that_lie_elsewhere_are_read_where_they_lie(
    tg: Any, rng: np.random.Generator, launches: Counter[str]
) -> None:
    first = tg.tensor(rng.standard_normal((1, WIDTH)), dtype=tg.float32)
    weights = _weights(tg, rng)
    _decoded(tg, weights, first, 60, _whole)
    for number, weight in enumerate(weights):
        weight.data = tg.tensor(weight.numpy() * (1.5 if number % 2 else 0.5))
    before = launches["launch"]
    found = [y.numpy() for y in _decoded(tg, weights, first, 60, _whole)]
    assert launches["launch"] > before
    with call_by_call(tg):
        expected = [y.numpy() for y in _decoded(tg, weights, first, 60, _whole)]
    np.testing.assert_array_equal(found, expected)


def test_weights_may_change_where_they_lie(tg: Any, rng: np.random.Generator, launches: Counter[str]) -> None:
    first = tg.tensor(rng.standard_normal((1, WIDTH)), dtype=tg.float32)
    weights = _weights(tg, rng)
    _decoded(tg, weights, first, 60, _whole)
    for weight in weights:
        weight.mul_(0.9)
    before = launches["launch"]
    found = [y.numpy() for y in _decoded(tg, weights, first, 60, _whole)]
    assert launches["launch"] > before
    with call_by_call(tg):
        expected = [y.numpy() for y in _decoded(tg, weights, first, 60, _whole)]
    np.testing.assert_array_equal(found, expected)


def test_what_a_device_refuses_to_launch_is_executed(
    tg: Any, rng: np.random.Generator, launches: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, weights = tg.tensor(rng.standard_normal((1, WIDTH)), dtype=tg.float32), _weights(tg, rng)
    with call_by_call(tg):
        expected = [y.numpy() for y in _decoded(tg, weights, first, 60, _whole)]
    launch, count = Again.launch, 0

    def refusing(self: Again) -> bool:
        nonlocal count
        count += 1
        return count % 40 != 0 and launch(self)

    monkeypatch.setattr(Again, "launch", refusing)
    found = [y.numpy() for y in _decoded(tg, weights, first, 60, _whole)]
    np.testing.assert_array_equal(found, expected)
    assert count > 40


def test_memory_of_sections_may_be_taken_in_the_middle_of_a_run(
    tg: Any, rng: np.random.Generator, launches: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is short of memory takes that of all captured work. The run is made anew, and captured later."""
    first, weights = tg.tensor(rng.standard_normal((1, WIDTH)), dtype=tg.float32), _weights(tg, rng)
    with call_by_call(tg):
        expected = [y.numpy() for y in _decoded(tg, weights, first, 60, _whole)]
    launch = sections._Launched.launch

    def losing(self: Any, moved: tuple[Any, ...]) -> None:
        if launches["launch"] % 40 == 39:
            self._backend.graph_memory.drop_all()
        launch(self, moved)

    monkeypatch.setattr(sections._Launched, "launch", losing)
    for _ in range(3):
        found = [y.numpy() for y in _decoded(tg, weights, first, 60, _whole)]
        np.testing.assert_array_equal(found, expected)
    assert launches["launch"] > 80


def test_what_depends_on_sizes_altogether_is_executed_call_by_call(
    tg: Any, rng: np.random.Generator, launches: Counter[str], noted: Counter[str]
) -> None:
    """A device would launch nothing of it as one."""
    row = tg.tensor(rng.standard_normal((1, WIDTH)), dtype=tg.float32)

    def grown() -> list[Any]:
        cache, sums = row, []
        for _ in range(60):
            cache = y = tg.cat([cache, row])
            for _ in range(10):
                y = (y * 0.5).sin() + cache
            sums.append(y.sum())
        return [each.item() for each in sums]

    with call_by_call(tg):
        expected = grown()
    assert grown() == expected
    assert noted["_record"] and not noted["_begin"] and not launches


def test_inputs_of_captured_calls_may_share_memory_in_another_way(
    tg: Any, rng: np.random.Generator, noted: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Views of one tensor in one turn are tensors of their own in the next, or share memory with another one."""
    large = tg.tensor(rng.standard_normal((3, 4)))

    def run(number: int) -> list[Any]:
        x = large[:1].expand(3, 4) if number < 6 or number % 5 > 2 else large * number
        made = [*[x.ravel() for _ in range(9)], x + number]
        x._session.flush()
        made = [one.detach() for one in made]
        x._session.flush()
        return made

    with call_by_call(tg):
        expected = [[one.numpy() for one in run(number)] for number in range(60)]
    kept = [run(number) for number in range(60)]
    for number, (these, those) in enumerate(zip(kept, expected, strict=True)):
        for one, other in zip(these, those, strict=True):
            np.testing.assert_array_equal(one.numpy(), other, err_msg=str(number))
    assert noted["_begin"] and not caplog.records  # of launches on other memory than they were captured for
