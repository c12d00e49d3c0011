"""Compiled functions whose executions are captured and launched as one, on a host that pretends to and on a GPU."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from server.engine.programs import captures, indices
from server.engine.programs.captures import Captures
from server.session.programs import compiled
from telegrad_protocol.meta import CPU
from tests.support.captures import simulate_captures

from . import functions as functions
from .harness import Case, Elements, drawn_cases
from .test_functions import outcomes_of

CALLS = 13
"""Executions of a loop are launched from about the sixth on."""


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each execution that was launched."""
    counted: list[int] = []
    launch = Captures.launch

    def noted(self: Captures, *args: Any) -> Any:
        results = launch(self, *args)
        counted.extend([1] if results is not None else [])
        return results

    monkeypatch.setattr(Captures, "launch", noted)
    return counted


@pytest.fixture(params=drawn_cases(12))
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(Elements, "tolerance", request.param.tolerance)
    return request.param._replace(calls=max(CALLS, request.param.calls))  # type: ignore[no-any-return]


def test_captured_equals_eager(
    tg: Any, case: Case, seed: int, launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = outcomes_of(tg, case, seed, compiled=False)
    simulate_captures(monkeypatch)
    for number, (one, other) in enumerate(zip(outcomes_of(tg, case, seed, compiled=True), expected, strict=True)):
        assert one == other, f"call {number // 2}, {len(launches)} launches"


@pytest.mark.parametrize("case", [c for c in drawn_cases(12) if c.id != "failures_on_the_server"], indirect=True)
def test_captured_on_memory_of_their_own_equals_eager(
    tg: Any, case: Case, seed: int, launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every execution that is not launched is captured so: whatever moves, is modified or is returned as it came.

    What fails by its elements' values is left out: captured work of a device cannot fail, and that of this host can.
    """
    expected = outcomes_of(tg, case, seed, compiled=False)
    simulate_captures(monkeypatch)
    monkeypatch.setattr(captures, "FEWEST_MISSES", 1)
    for number, (one, other) in enumerate(zip(outcomes_of(tg, case, seed, compiled=True), expected, strict=True)):
        assert one == other, f"call {number // 2}, {len(launches)} launches"


def _trained(tg: Any, seed: int, compiled: bool, device: str) -> list[Any]:
    """Losses, gradients and parameters of a small classifier whose rate changes, on new batches from the host."""
    rng = np.random.default_rng(seed)
    tg.manual_seed(seed)
    model = tg.nn.Sequential(
        tg.nn.Embedding(7, 6), tg.nn.Flatten(), tg.nn.Linear(18, 9), tg.nn.GELU(), tg.nn.Linear(9, 4)
    )
    model.to(device)
    optimizer = tg.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = tg.compile(step) if compiled else step
    losses = []
    for number in range(4 * CALLS):
        optimizer.param_groups[0]["lr"] = 0.01 / (1 + number)
        x = tg.tensor(rng.integers(0, 7, (5, 3)), device=device)
        is_ignored = (rng.random(5) < 0.2) & (np.arange(5) > 0)  # the mean of no losses is NaN, which equals nothing
        y = tg.tensor(np.where(is_ignored, -100, rng.integers(0, 4, 5)), device=device)
        losses.append(run(x, y).item())
    parameters = list(model.parameters())
    return [losses, *[p.grad.tolist() for p in parameters], *[p.tolist() for p in parameters]]


def test_training_is_equal_to_the_bit(tg: Any, seed: int, launches: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _trained(tg, seed, False, "cpu")
    simulate_captures(monkeypatch)
    assert _trained(tg, seed, True, "cpu") == expected
    assert len(launches) >= CALLS, "steps are launched as one"


def _kept(tg: Any, seed: int, compiled: bool, device: str, between: Callable[[int], None]) -> list[Any]:
    """Train, keep some results of each step for some time, modify some of them, and return all that they were."""
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    tg.manual_seed(seed)
    weight = tg.tensor(rng.standard_normal((6, 6)).astype("f"), device=device).requires_grad_()
    mean = tg.zeros(6, device=device)
    optimizer = tg.optim.AdamW([weight], lr=0.01)

    def step(x: Any, y: Any) -> tuple[Any, ...]:
        optimizer.zero_grad()
        hidden = (x @ weight).tanh()
        loss = (hidden - y).square().mean()
        loss.backward()
        optimizer.step()
        with tg.no_grad():
            mean.mul_(0.9).add_(hidden.mean(0), alpha=0.1)
        kept = hidden.detach()
        return (
            loss.detach(),
            kept,
            kept[1:].t(),
            (x > y).sum(),
            x,
            tg.ones(5, dtype=tg.bool, device=device) & (y[:, 0] > 0),
        )

    run = tg.compile(step) if compiled else step
    held: list[Any] = []
    told: list[Any] = []
    for number in range(5 * CALLS):
        optimizer.param_groups[0]["lr"] = 0.01 / (1 + number % 5)
        x, y = (tg.tensor(rng.standard_normal((5, 6)).astype("f"), device=device) for _ in range(2))
        held += run(x, y)
        if chance.random() < 0.3:
            held[-chance.randrange(2, 6)].mul_(2)
        if chance.random() < 0.1:
            held.append(weight.grad)
        while held and chance.random() < 0.4:
            told.append(held.pop(chance.randrange(len(held))).tolist())
        between(number)
    return [*told, *[one.tolist() for one in held], weight.tolist(), mean.tolist(), weight.grad.tolist()]


def test_loops_that_keep_results_are_launched(
    tg: Any, host: Any, seed: int, launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where captures are dropped in between, since memory is short."""
    expected = _kept(tg, seed, False, "cpu", lambda number: None)
    simulate_captures(monkeypatch)
    assert _kept(tg, seed, True, "cpu", lambda number: None) == expected
    assert len(launches) >= CALLS, "steps are launched as one"
    launches.clear()
    memory = host.backends[CPU].graph_memory

    def drop(number: int) -> None:
        if number == 3 * CALLS:
            assert launches and memory.nbytes and memory.drop_all() and not memory.nbytes
            launches.clear()

    assert _kept(tg, seed, True, "cpu", drop) == expected
    assert launches, "what was dropped is captured anew"


def _step_of_rows(tg: Any, weight: Any) -> Any:
    """A compiled step that trains the rows of a table which it is given the numbers of."""

    @tg.compile
    def step(at: Any) -> Any:
        loss = tg.nn.functional.embedding(at, weight).square().sum()
        loss.backward()
        with tg.no_grad():
            weight.sub_(weight.grad * 0.1)
        weight.grad = None
        return loss

    return step


def test_indices_that_the_host_knew_are_looked_at_in_each_run(
    tg: Any, rng: np.random.Generator, launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices check no indices that the host knows to be good, so while they are recorded nothing asks about them."""
    simulate_captures(monkeypatch)
    taken, runs = compiled.Variant.taken, list[bool]()

    def noting(self: compiled.Variant, *args: Any) -> list[Any] | None:
        found = taken(self, *args)
        runs.append(found is not None)
        return found

    monkeypatch.setattr(compiled.Variant, "taken", noting)
    weight = tg.tensor(rng.standard_normal((5, 3)).astype("f")).requires_grad_()

    step = _step_of_rows(tg, weight)
    for _ in range(CALLS):
        step(tg.tensor([0, 1, 4]))
    before, count = weight.tolist(), len(launches)
    assert count and all(runs)
    with pytest.raises(IndexError, match="index 5 is out of range"):
        step(tg.tensor([0, 5, 4])).item()
    assert not runs[-1] and len(launches) == count and weight.tolist() == before


# -- on a GPU, which really captures them


@pytest.fixture
def on_gpu(cuda_tg: Any) -> Iterator[Any]:
    """The client, which makes tensors on the GPU."""
    cuda_tg.set_default_device("cuda")
    yield cuda_tg
    cuda_tg.set_default_device("cpu")


@pytest.mark.gpu
def test_captured_equals_eager_on_a_gpu(
    on_gpu: Any, case: Case, seed: int, launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Elements, "tolerance", max(case.tolerance, 1e-5))  # sums by atomics have no order
    expected = outcomes_of(on_gpu, case, seed, compiled=False)
    for number, (one, other) in enumerate(zip(outcomes_of(on_gpu, case, seed, compiled=True), expected, strict=True)):
        assert one == other, f"call {number // 2}, {len(launches)} launches"


@pytest.mark.gpu
def test_training_on_a_gpu_is_the_same(cuda_tg: Any, seed: int, launches: list[int]) -> None:
    expected = _trained(cuda_tg, seed, False, "cuda")
    for mine, other in zip(_trained(cuda_tg, seed, True, "cuda"), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
    assert len(launches) >= CALLS // 2, "steps are launched as one"


@pytest.mark.gpu
def test_loops_that_keep_results_are_launched_on_a_gpu(cuda_tg: Any, seed: int, launches: list[int]) -> None:
    expected = _kept(cuda_tg, seed, False, "cuda", lambda number: None)
    for mine, other in zip(_kept(cuda_tg, seed, True, "cuda", lambda number: None), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-5)
    assert len(launches) >= CALLS, "steps are launched as one"


@pytest.mark.gpu
def test_an_index_out_of_range_fails_at_its_line_on_a_gpu(cuda_tg: Any, launches: list[int]) -> None:
    weight = cuda_tg.randn(5, 3, device="cuda").requires_grad_()

    step = _step_of_rows(cuda_tg, weight)
    for _ in range(CALLS):
        step(cuda_tg.tensor([0, 1, 4], device="cuda"))
    before = weight.tolist()
    assert launches
    step(cuda_tg.tensor([0, 5, 4], device="cuda"))
    with pytest.raises(IndexError, match="index 5 is out of range"):
        weight.tolist()
    assert weight.tolist() == before
    count = len(launches)
    for _ in range(CALLS):
        step(cuda_tg.tensor([0, 1, 4], device="cuda"))
    assert weight.tolist() != before and len(launches) > count


def _decoded(tg: Any, device: str, calls: int, compile: bool = True) -> list[int]:
    """Tokens of a loop that feeds each one back, at a position that it counts; without a read in between."""
    rng = np.random.default_rng(7)
    table, places = [tg.tensor(rng.standard_normal(shape).astype("f"), device=device) for shape in ((50, 8), (4, 8))]
    weight = tg.tensor(rng.standard_normal((50, 8)).astype("f"), device=device)

    def choose(tokens: Any, position: Any) -> Any:
        hidden = tg.nn.functional.embedding(tokens, table) + tg.nn.functional.embedding(position, places)
        return (hidden @ weight.T).argmax(-1)

    run = tg.compile(choose) if compile else choose
    tokens, position, found = tg.tensor([3], device=device), tg.tensor([0], device=device), []
    for _ in range(calls):
        tokens = run(tokens, position)
        position.add_(1).remainder_(4)
        found.append(tokens)
    return [int(one.item()) for one in found]


def test_what_a_program_chooses_is_known_to_be_a_place(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_captures(monkeypatch)
    noted: list[Any] = []
    monkeypatch.setattr(compiled, "note_bounds", lambda value, bounds: noted.append((value.shape, bounds)))
    _decoded(tg, "cpu", CALLS)
    assert noted and set(noted) == {((1,), (0, 49))}


def test_a_loop_that_feeds_its_tokens_back_does_not_wait_on_a_gpu(
    cuda_tg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    expected = _decoded(cuda_tg, "cuda", 4 * CALLS, compile=False)
    looks: list[Any] = []
    look = indices._elements
    monkeypatch.setattr(indices, "_elements", lambda *args: looks.append(args) or look(*args))
    assert _decoded(cuda_tg, "cuda", 4 * CALLS) == expected
    assert len(looks) <= 4, "uploads are looked at as they pass"
