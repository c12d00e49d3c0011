"""Programs that are executed as one, below autograd: results, gradients and histories are those of instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from server.engine.cpu.fused.machine_code import code_bytes
from server.session.programs import sequences
from telegrad_protocol.errors import AutogradError

from .test_compile import FUNCTIONS, _as_lists, _step, _training

CALLS = 8


@pytest.fixture
def variants(tg: Any) -> Callable[[], list[Any]]:
    """Returns how the session's programs are executed as one, and what has no such form."""
    state = tg.ones(1)._session.transport._session.state
    return lambda: [variant for program in state.programs.values() for variant in program.variants.values()]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__.strip("_"))
def test_results_are_those_without_compile(tg: Any, function: Callable[..., Any], rng: np.random.Generator) -> None:
    compiled = tg.compile(function)
    for _ in range(CALLS):
        array = rng.standard_normal((3, 3)).astype("f")
        tg.manual_seed(7)
        expected = _as_lists(function(tg, tg.tensor(array)))
        tg.manual_seed(7)
        assert _as_lists(compiled(tg, tg.tensor(array))) == expected


@pytest.mark.parametrize("sets_to_none", [True, False])
def test_training_is_equal_to_the_bit(
    tg: Any, variants: Callable[[], list[Any]], seed: int, sets_to_none: bool
) -> None:
    def train(compiled: bool) -> list[Any]:
        model, optimizer = _training(tg)
        rng = np.random.default_rng(seed)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad(sets_to_none)
            loss = tg.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        step = tg.compile(step) if compiled else step
        seen = []
        for _ in range(CALLS):
            x, y = tg.tensor(rng.standard_normal((4, 6)).astype("f")), tg.tensor(rng.integers(0, 3, 4))
            loss = step(x, y)
            seen.append([loss.item(), *[p.grad.tolist() for p in model.parameters()], loss.requires_grad])
        with pytest.raises(AutogradError, match="freed"):
            loss.backward()
            tg.ones(1).item()
        return [*seen, *[p.tolist() for p in model.parameters()]]

    expected = train(False)
    assert train(True) == expected
    assert any(variants()), "a step that repeats is executed as one"


def test_a_whole_step_is_a_list_of_kernels(tg: Any, variants: Callable[[], list[Any]]) -> None:
    model, optimizer = _training(tg)
    x, y = tg.randn(4, 6), tg.tensor([0, 1, 2, 0])
    step = tg.compile(_step)
    for _ in range(CALLS):
        step(tg, model, optimizer, x, y).item()
    (variant,) = [variant for variant in variants() if variant is not None]
    text = variant.executable.describe().text
    assert "linear" in text and "backward" in text and "adamw" in text


def test_gradients_add_up_where_there_are_some(tg: Any, rng: np.random.Generator) -> None:
    weight = tg.tensor(rng.standard_normal(3), requires_grad=True)
    total = np.zeros(3)

    @tg.compile
    def add(x: Any) -> None:
        (weight * x).exp().sum().backward()

    for number in range(3 * CALLS):
        if number % CALLS == CALLS // 2:
            weight.grad, total = None, np.zeros(3)
        array = rng.standard_normal(3)
        add(tg.tensor(array))
        total = total + array * np.exp(weight.detach().numpy() * array)
        np.testing.assert_allclose(weight.grad.numpy(), total, rtol=1e-12)


def test_inputs_that_share_memory_are_another_situation(tg: Any, rng: np.random.Generator) -> None:
    @tg.compile
    def function(a: Any, b: Any) -> Any:
        a.mul_(2)
        c = b + 1
        a.add_(c)
        return c * b

    for number in range(4 * CALLS):
        x, other = rng.standard_normal((2, 4))
        a = tg.tensor(x)
        b, y = ((tg.tensor(other), other), (a, x), (a.view(2, 2).flatten(), x))[number % 3]
        x *= 2
        z = y + 1
        x += z
        np.testing.assert_array_equal(function(a, b).numpy(), z * y)
        np.testing.assert_array_equal(a.numpy(), x)


def test_views_of_one_tensor_are_written_one_after_another(tg: Any, rng: np.random.Generator) -> None:
    @tg.compile
    def function(a: Any) -> Any:
        left, right = a[:2], a[1:]
        left.mul_(3)
        right.add_(left.clone())
        return left - right, right.sum()

    for _ in range(CALLS):
        array = rng.standard_normal(3)
        a = tg.tensor(array)
        difference, total = function(a)
        x = array.copy()
        x[:2] *= 3
        x[1:] += x[:2].copy()
        np.testing.assert_allclose(difference.numpy(), x[:2] - x[1:], rtol=1e-14)
        np.testing.assert_allclose(total.item(), x[1:].sum(), rtol=1e-14)


def test_what_is_returned_twice_is_told_apart(tg: Any) -> None:
    weight = tg.ones(2, requires_grad=True)

    @tg.compile
    def function(x: Any) -> Any:
        loss = (weight * x).pow(2).sum()
        loss.backward()
        return loss, loss.detach(), x, weight, x.view(2)

    for number in range(CALLS):
        weight.grad = None
        x = tg.full((2,), float(number))
        loss, detached, same, leaf, view = function(x)
        assert loss.requires_grad and loss.grad_fn is not None and not detached.requires_grad
        assert same is x and leaf is weight and leaf.is_leaf
        detached.add_(1)
        assert loss.item() == detached.item() == 2.0 * number**2 + 1
        view.zero_()
        assert x.tolist() == [0.0, 0.0]


def test_a_history_that_goes_on_is_kept(tg: Any) -> None:
    weight = tg.ones(2, requires_grad=True)

    @tg.compile
    def forward(x: Any) -> Any:
        return ((weight * x).exp() * weight).sum()

    for number in range(CALLS):
        weight.grad = None
        forward(tg.full((2,), number / 8)).backward()
        expected = np.exp(number / 8) * (1 + number / 8)
        np.testing.assert_allclose(weight.grad.numpy(), [expected] * 2, rtol=1e-6)


def test_leaves_that_cease_to_require_gradients_are_another_situation(tg: Any) -> None:
    a, b = tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)

    @tg.compile
    def function() -> None:
        (a * 2 + b * 3).sum().backward()

    for number in range(3 * CALLS):
        b.requires_grad_(number // CALLS != 1)
        a.grad = b.grad = None
        function()
        assert a.grad.tolist() == [2.0, 2.0]
        assert (b.grad is None) if number // CALLS == 1 else b.grad.tolist() == [3.0, 3.0]


def test_an_error_names_the_line_and_nothing_follows_it(tg: Any) -> None:
    table, total = tg.nn.Embedding(4, 2), tg.zeros(1)

    @tg.compile
    def function(index: Any) -> Any:
        y = table(index).sum()  # the line
        total.add_(1)
        return y * 2 + index.sum() - 1

    for number in range(2 * CALLS):
        is_bad = number in (CALLS, CALLS + 3)
        result = function(tg.tensor([9 if is_bad else 1]))
        if is_bad:
            with pytest.raises(IndexError, match="9") as error:
                result.tolist()
            assert "test_compiled_runs.py" in error.value.site and error.value.operation == "embedding"
            with pytest.raises(RuntimeError, match="embedding failed"):
                result.tolist()
        else:
            result.tolist()
    assert total.item() == 2 * CALLS - 2


def test_random_numbers_go_on(tg: Any, variants: Callable[[], list[Any]]) -> None:
    def function(x: Any) -> Any:
        return tg.nn.functional.dropout(x, 0.5) + tg.rand(4) * 2 - tg.randn_like(x)

    compiled = tg.compile(function)
    x = tg.ones(4)
    tg.manual_seed(3)
    expected = [function(x).tolist() for _ in range(CALLS)]
    tg.manual_seed(3)
    assert [compiled(x).tolist() for _ in range(CALLS)] == expected
    assert len({str(row) for row in expected}) == CALLS and any(variants())


def test_modes_are_other_situations(tg: Any) -> None:
    weight = tg.ones(3, requires_grad=True)

    @tg.compile
    def function(x: Any) -> Any:
        return (weight * x).sin() + x.double().mean()

    for number in range(4 * CALLS):
        x = tg.ones(3)
        if number // CALLS == 1:
            with tg.no_grad():
                y = function(x)
        elif number // CALLS == 2:
            with tg.inference_mode():
                y = function(x)
            assert y.is_inference()
        else:
            y = function(x)
        assert y.requires_grad is (number // CALLS in (0, 3))
        np.testing.assert_allclose(y.detach().clone().numpy(), np.sin(1.0) + 1, rtol=1e-6)


def test_second_derivatives(tg: Any, rng: np.random.Generator) -> None:
    @tg.compile
    def penalty(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (first,) = tg.autograd.grad((x**3).sum(), x, create_graph=True)
        first.pow(2).sum().backward()
        return x.grad

    for _ in range(CALLS):
        array = rng.standard_normal(4)
        np.testing.assert_allclose(penalty(tg.tensor(array)).numpy(), 36 * array**3, rtol=1e-12)


def test_a_graph_that_is_kept_can_be_used_again(tg: Any) -> None:
    weight = tg.ones(2, requires_grad=True)

    @tg.compile
    def function(x: Any) -> Any:
        loss = (weight * x).exp().sum()
        loss.backward(retain_graph=True)
        return loss

    for number in range(CALLS):
        weight.grad = None
        loss = function(tg.ones(2))
        loss.backward()
        np.testing.assert_allclose(weight.grad.numpy(), [2 * np.e] * 2, rtol=1e-6, err_msg=str(number))


def test_nothing_stays_allocated(tg: Any, host: Any) -> None:
    model, optimizer = _training(tg, width=64)
    x, y = tg.randn(4, 6), tg.tensor([0, 1, 2, 0])
    step = tg.compile(_step)
    session = tg.ones(1)._session.transport._session
    backend = host.backends[host.default_device]
    held = []
    for _ in range(3 * CALLS):
        step(tg, model, optimizer, x, y).item()
        held.append(backend.allocator.allocated_bytes(session.state.number))
    assert len(set(held[3:])) == 1


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_learning_rates_change_in_the_same_program(
    tg: Any, variants: Callable[[], list[Any]], seed: int, kind: str
) -> None:
    def train(compiled: bool) -> list[Any]:
        rng = np.random.default_rng(seed)
        weight = tg.tensor(rng.standard_normal((3, 2)), requires_grad=True)
        optimizer = getattr(tg.optim, kind)([weight], lr=0.1)
        scheduler = tg.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (x @ weight).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = tg.compile(step) if compiled else step
        losses = []
        for _ in range(2 * CALLS):
            losses.append(step(tg.tensor(rng.standard_normal((4, 3)))).item())
            scheduler.step()
        return [losses, weight.tolist()]

    expected = train(False)
    assert train(True) == expected
    assert [variant is not None for variant in variants()] == [True]


def test_what_looks_at_elements_looks_each_time(tg: Any) -> None:
    @tg.compile
    def function(x: Any, q: Any) -> Any:
        return tg.quantile(x.sin().cos() * 2 + 1, q) + x.sum()

    for number in range(CALLS):
        assert function(tg.ones(4), tg.tensor(0.1 * number)).item() > 0
    with pytest.raises(ValueError, match=r"q must be in the range \[0, 1\]"):
        function(tg.ones(4), tg.tensor(1.5)).item()


def test_gradients_that_the_program_sets_are_those_of_new_tensors(tg: Any, rng: np.random.Generator) -> None:
    @tg.compile
    def function(x: Any, y: Any) -> Any:
        z = (y * 2).sin() + 1
        x.grad = z
        return z * 3 - y

    for _ in range(CALLS):
        array = rng.standard_normal(3)
        x, y = tg.zeros(3, dtype=tg.float64), tg.tensor(array)
        function(x, y).tolist()
        np.testing.assert_allclose(x.grad.numpy(), np.sin(2 * array) + 1, rtol=1e-12)


def test_a_leaf_that_is_returned_keeps_its_gradient(tg: Any) -> None:
    @tg.compile
    def function(x: Any) -> Any:
        leaf = (x * 1).detach().requires_grad_()
        (leaf * leaf).sum().backward()
        return leaf

    for number in range(CALLS):
        leaf = function(tg.full((2,), float(number)))
        (leaf * 3).sum().backward()
        assert leaf.grad.tolist() == [2.0 * number + 3] * 2


def test_machine_code_is_charged_and_what_ran_longest_ago_goes(
    tg: Any, variants: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences, "most_session_variants", 3)
    x, account = tg.ones(40, 50), tg.ones(1)._session.transport._session.state.host_memory

    def compiled(operation: str) -> Callable[[Any], Any]:
        return tg.compile(lambda x: getattr(x * 2 + 1, operation)() * x - 1)  # type: ignore[no-any-return]

    functions = [compiled(operation) for operation in ("neg", "abs", "square", "relu", "sqrt")]
    results, noted = [], []
    for function in functions:
        rows = [function(x).tolist() for _ in range(CALLS)]
        assert rows == rows[:1] * CALLS
        results.append(rows[0])
        noted.append(account.noted)
    assert len(variants()) == 3 and all(variants())
    growth = np.diff(noted)
    assert min(growth[:2]) > code_bytes("") > 4 * max(growth[2:]), "what is charged is taken back with the variant"
    assert [function(x).tolist() for function in functions] == results


def test_calls_are_sent_once_there_are_enough_for_a_batch(tg: Any) -> None:
    """Nothing waits for a timer, of which there is none in this process, or for a read."""

    def step(x: Any) -> Any:
        for _ in range(10):
            x = x * 2
        return x

    compiled, x = tg.compile(step), tg.ones(3)
    stats = x._session.transport.stats
    for _ in range(CALLS):
        compiled(x)
    before = stats.frames
    for _ in range(64):
        compiled(x)
    assert stats.frames - before >= 5


@pytest.mark.parametrize(
    "mode, tunes", [("max-autotune", True), ("max-autotune-no-cudagraphs", True), ("default", False)]
)
def test_programs_that_tune_are_others(tg: Any, mode: str, tunes: bool) -> None:
    """Although their instructions are the same, whichever function is called first."""

    def function(x: Any, weight: Any) -> Any:
        return (x @ weight).relu() + 1

    x, weight = tg.linspace(-1, 1, 12).reshape(3, 4), tg.linspace(-2, 1, 20).reshape(4, 5)
    other, chosen = tg.compile(function), tg.compile(function, mode=mode)
    expected = function(x, weight).tolist()
    for _ in range(CALLS):
        assert [one(x, weight).tolist() for one in (other, chosen)] == [expected, expected]
    programs = x._session.transport._session.state.programs.values()
    assert {program.tunes for program in programs} == {False, tunes}
