"""Calls whose Python is left out return what they return without ``compile``, whatever a program changes in between."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.draws import drawn

from . import guarded_contents as guarded_contents
from . import guarded_lookups as guarded_lookups
from . import guarded_objects as guarded_objects
from .guarded import BUILDERS, CALLS, Guarded, called_often, calls_of
from .guarded_layers import OF_LAYERS, layers
from .harness import exactly


@pytest.fixture(autouse=True)
def _modes(tg: Any) -> Iterator[None]:
    yield
    tg.set_grad_enabled(True)
    tg.set_default_dtype(tg.float32)


@pytest.fixture(params=BUILDERS, ids=lambda build: build.__name__)
def build(request: pytest.FixtureRequest) -> Any:
    return request.param


def _gradients(tg: Any, result: Any, tensors: list[Any]) -> Any:
    """Return the gradients that a sum of all results has for these tensors."""
    parts = [result] if isinstance(result, tg.Tensor) else result.values() if isinstance(result, dict) else result
    losses = [part.float().sum() for part in parts if isinstance(part, tg.Tensor) and part.requires_grad]
    if not losses:
        return None
    return [
        None if one is None else exactly(tg, one) for one in tg.autograd.grad(sum(losses), tensors, allow_unused=True)
    ]


def outcomes(tg: Any, build: Callable[[Any], Guarded], seed: int, wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    """Return what each call of a case returns, with gradients, and the function that was called."""
    tg.set_grad_enabled(True)
    tg.set_default_dtype(tg.float32)
    case, rng = build(tg), np.random.default_rng(seed)
    function = wrap(case.function)
    tg.manual_seed(seed)
    told: list[Any] = []
    for number in range(CALLS):
        case.change(number)
        x = tg.tensor(rng.standard_normal((3, 4)), dtype=tg.get_default_dtype())
        parameters = list(case.function.parameters()) if isinstance(case.function, tg.nn.Module) else []
        if parameters:
            x = x.to(parameters[0].dtype)
        learnt = [one for one in parameters if one.requires_grad]
        arguments = case.arguments(x, number)
        try:
            result = function(*arguments)
        except ValueError as error:
            told.append(str(error))
            continue
        told.append([exactly(tg, result), exactly(tg, arguments[0]) if isinstance(arguments[0], tg.Tensor) else None])
        told.append(_gradients(tg, result, learnt) if learnt else None)
        told.append([exactly(tg, one) for one in getattr(case.function, "buffers", list)()])
    return told, (case, function)


def test_results_are_those_of_the_function(tg: Any, build: Callable[[Any], Guarded], seed: int) -> None:
    expected, _ = outcomes(tg, build, seed, lambda function: function)
    got, (case, compiled) = outcomes(tg, build, seed, tg.compile)
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a == b, f"outcome {number} of {build.__name__}"
    calls = calls_of(compiled)
    assert (calls.replayed > 0) is case.is_left_out, calls.reason


def _steps_of(tg: Any, build: Callable[[Any], Guarded]) -> Callable[[Any], Guarded]:
    """Return what builds a step of training of a case's model, in a function that calls another one."""

    def made(tg: Any) -> Guarded:
        case = build(tg)
        model = case.function

        def loss_of(x: Any) -> Any:
            return model(x).float().square().mean()

        def step(x: Any) -> Any:
            for parameter in model.parameters():
                parameter.grad = None
            loss = loss_of(x)
            if loss.requires_grad:
                loss.backward()
            with tg.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= parameter.grad * 0.1
            return loss.detach(), [parameter.detach().sum() for parameter in model.parameters()]

        return Guarded(step, lambda x, number: (x.to(next(iter(model.parameters()), x).dtype),), case.change, False)

    return made


@pytest.mark.parametrize("build", drawn([pytest.param(build, id=build.__name__) for build in OF_LAYERS], 8))
def test_steps_are_those_of_the_function(tg: Any, build: Callable[[Any], Guarded], seed: int) -> None:
    expected, _ = outcomes(tg, _steps_of(tg, build), seed, lambda function: function)
    got, (_, compiled) = outcomes(tg, _steps_of(tg, build), seed, tg.compile)
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a == b, f"outcome {number} of {build.__name__}"
    calls = calls_of(compiled)
    assert calls.inner or calls.replayed, calls.reason


def test_a_profile_shows_what_is_executed_anyway(tg: Any) -> None:
    """The Python is left out under a profile, too, and the operations are the kernel that they have become."""
    compiled = tg.compile(lambda x: x.sin() * 2 + x.cos() + x.exp())
    x = tg.ones(3)
    called_often(compiled, x)
    before = calls_of(compiled).replayed
    with tg.profiler.profile() as profile:
        compiled(x)
    assert calls_of(compiled).replayed == before + 1
    assert [event.name for event in profile.events()] == [
        "telegrad::run_program", "telegrad::fused_sin_mul_cos_add_exp",
    ]  # fmt: skip
    compiled(x)
    assert calls_of(compiled).replayed == before + 2


def test_what_a_model_needs_is_freed_with_it(tg: Any) -> None:
    net = layers(tg)
    compiled = tg.compile(net)
    called_often(compiled, tg.ones(3, 4))
    assert calls_of(compiled).replayed
    dead = weakref.ref(net.blocks[0].line.weight)
    del net, compiled
    gc.collect()
    assert dead() is None


def test_a_copy_has_calls_of_its_own(tg: Any) -> None:
    compiled = tg.compile(layers(tg).eval())
    x = tg.ones(3, 4)
    called_often(compiled, x)
    other = copy.deepcopy(compiled)
    with tg.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert calls_of(other).replayed == 0
    assert exactly(tg, called_often(other, x)) == exactly(tg, other._orig_mod(x)) != exactly(tg, compiled(x))


def test_modes_that_answer_calls_are_asked(tg: Any) -> None:
    asked: list[str] = []

    class Mode(tg.overrides.TorchFunctionMode):
        """Notes which functions were called."""

        def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(function.__name__)
            return function(*args, **(kwargs or {}))

    compiled = tg.compile(lambda x: x.sin() * 2 + x.cos() + 1)
    x = tg.ones(3)
    called_often(compiled, x)
    with Mode():
        compiled(x)
    assert "sin" in asked and "cos" in asked


def test_kernels_that_a_program_registers_answer_calls(tg: Any) -> None:
    compiled = tg.compile(lambda x: x.sin() * 2 + x.cos() + 1)
    x = tg.zeros(3)
    called_often(compiled, x)
    replayed = calls_of(compiled).replayed
    library = tg.library.Library("aten", "IMPL")
    try:
        library.impl("sin", lambda x: x + 5, "CPU")
        assert called_often(compiled, x).tolist() == [12.0] * 3
    finally:
        library._destroy()
    assert calls_of(compiled).replayed == replayed
    assert called_often(compiled, x).tolist() == [2.0] * 3
    assert calls_of(compiled).replayed > replayed


def test_a_view_of_a_view_has_the_base_of_that(tg: Any) -> None:
    compiled = tg.compile(lambda x: (x.sin() * 2 + x.cos(), x[0]))
    base = tg.ones(3, 4)
    assert called_often(compiled, base)[1]._base is base
    before = calls_of(compiled).replayed
    assert before
    view = called_often(compiled, base.view(3, 4))[1]
    assert calls_of(compiled).replayed > before and view._base is base


def test_transforms_go_through_the_function(tg: Any) -> None:
    def function(x: Any) -> Any:
        return (x.sin() * x + x.cos()).sum()

    compiled = tg.compile(function)
    x = tg.linspace(0, 1, 4)
    called_often(compiled, x)
    assert calls_of(compiled).replayed
    assert exactly(tg, tg.func.grad(compiled)(x)) == exactly(tg, tg.func.grad(function)(x))
    batch = tg.stack([x, x + 1])
    assert np.allclose(tg.vmap(compiled)(batch).numpy(), tg.vmap(function)(batch).numpy())


def test_threads_do_not_share_what_they_give(tg: Any) -> None:
    compiled = tg.compile(lambda x: (x * 2).sin() + (x * 3).cos() - x)
    called_often(compiled, tg.ones(3))
    failures: list[str] = []

    def work(number: int) -> None:
        x = tg.full((3,), float(number))
        expected = exactly(tg, (x * 2).sin() + (x * 3).cos() - x)
        for _ in range(20):
            if exactly(tg, compiled(x)) != expected:
                failures.append(f"thread {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_what_another_thread_queues_within_a_watched_call_is_not_taken_for_its_own(
    tg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, x = tg.compile(lambda x: (x * 2).sin() + (x * 3).cos() - x), tg.ones(3)
    session, calls, others = x._session, calls_of(compiled), []
    expected = exactly(tg, called_often(compiled, x, 2))
    while not calls.is_hopeful:
        compiled(x)
    end_part = session.end_part

    def end_part_later(*args: Any) -> None:
        thread = threading.Thread(target=lambda: others.append(x + 1))
        thread.start()
        thread.join()
        end_part(*args)

    with monkeypatch.context() as patch:
        patch.setattr(session, "end_part", end_part_later)
        assert exactly(tg, compiled(x)) == expected
    assert calls.reason == "instructions of other threads are among its own"
    assert exactly(tg, called_often(compiled, x)) == expected
    assert calls.replayed
    assert others[0].tolist() == [2.0, 2.0, 2.0]


def test_a_model_is_trained_by_calls_that_are_left_out(tg: Any, seed: int) -> None:
    def trained(wrap: Callable[[Any], Any]) -> list[Any]:
        tg.manual_seed(seed % 1000)
        model = tg.nn.Sequential(tg.nn.Linear(4, 8), tg.nn.GELU(), tg.nn.Linear(8, 2))
        optimizer = tg.optim.AdamW(model.parameters(), lr=1e-2)
        chosen, rng, losses = wrap(model), np.random.default_rng(seed), []
        for number in range(30):
            x = tg.tensor(rng.standard_normal((3 if number % 7 else 2, 4)), dtype=tg.float32)
            optimizer.zero_grad()
            loss = chosen(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(exactly(tg, loss))
        if chosen is not model:
            assert calls_of(chosen).replayed > 10, calls_of(chosen).reason
        return losses

    assert trained(tg.compile) == trained(lambda model: model)


def _product(x: Any) -> Any:
    return x.sin() + x * x + x.cos()


def _difference(x: Any) -> Any:
    return x.sin() + (2.0 - x) + x.cos()


def _element(x: Any) -> Any:
    return x.sin() + x[0] + x.cos() + 1


def _negation(x: Any) -> Any:
    return -x.sin() + x.cos() + x.exp()


def _comparison(x: Any) -> Any:
    return (x.sin() > x).float() + x.cos() + 1


OPERATORS = {
    "__mul__": _product, "__rsub__": _difference, "__getitem__": _element, "__neg__": _negation, "__gt__": _comparison,
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_tensors_that_a_program_replaces_arecalled(
    tg: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    function = OPERATORS[name]
    compiled, x = tg.compile(function), tg.linspace(0, 1, 4)
    called_often(compiled, x)
    assert calls_of(compiled).replayed
    own, counted = getattr(tg.Tensor, name), []
    monkeypatch.setattr(tg.Tensor, name, lambda *operands: counted.append(1) or own(*operands).exp())
    expected = exactly(tg, function(x))
    assert exactly(tg, called_often(compiled, x)) == expected
    assert len(counted) == 13


def test_an_operator_that_parameters_get_iscalled(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = tg.nn.Parameter(tg.linspace(1, 2, 4))
    compiled = tg.compile(lambda x: x.sin() + weight * x + x.cos())
    x = tg.linspace(0, 1, 4)
    called_often(compiled, x)
    assert calls_of(compiled).replayed
    monkeypatch.setattr(tg.nn.Parameter, "__mul__", lambda self, other: other * 0, raising=False)
    assert exactly(tg, compiled(x)) == exactly(tg, x.sin() + x * 0 + x.cos())


def test_two_tensors_may_become_one_where_calls_are_recognised_by_their_bytes(tg: Any, seed: int) -> None:
    """The numbers of the two lie apart by more and by less, so that their places are read from the bytes."""

    def function(x: Any, y: Any, number: int) -> Any:
        return x * 2 + y.sin() * x.cos() + y.exp()

    compiled, calls = tg.compile(function), []
    tg.manual_seed(seed)
    for number in range(24):
        x = tg.rand(3)
        between = [tg.ones(1) for _ in range(number % 3)]
        y = tg.rand(3)
        between = [tg.ones(1) for _ in range(number % 4)]
        given = (x, y, number) if number < 5 else (x, x, 0)
        calls.append((given, compiled(*given), between))
    assert [exactly(tg, got) for _, got, _ in calls] == [exactly(tg, function(*given)) for given, _, _ in calls]
    assert calls_of(compiled).replayed


def test_calls_are_left_out_under_their_own_modes_whatever_modes_came_between(tg: Any, seed: int) -> None:
    weight = tg.ones(4, 4, requires_grad=True)

    def function(x: Any) -> Any:
        return (x @ weight + x.sin()) @ weight * 2

    compiled, kinds = tg.compile(function), ("plain", "no_grad", "autocast")
    tg.manual_seed(seed)
    for number in range(40):
        x, kind = tg.rand(1 + (number % 5 > 0), 4), kinds[0 if number < 9 else number * 7 // 3 % 3]
        with {"plain": tg.enable_grad(), "no_grad": tg.no_grad(), "autocast": tg.autocast("cpu")}[kind]:
            got, expected = compiled(x), function(x)
        assert exactly(tg, got) == exactly(tg, expected), f"call {number}, {kind}"
        if got.requires_grad:
            assert exactly(tg, tg.autograd.grad(got.float().sum(), weight)) == exactly(
                tg, tg.autograd.grad(expected.float().sum(), weight)
            )
    assert calls_of(compiled).replayed


def test_reset_lets_go_of_weights_that_were_replaced(tg: Any) -> None:
    net = layers(tg).eval()
    compiled = tg.compile(net)
    called_often(compiled, tg.ones(3, 4))
    assert calls_of(compiled).replayed
    line = net.blocks[0].line
    dead = weakref.ref(line.weight)
    line.weight = tg.nn.Parameter(line.weight.detach() * 2)
    tg.compiler.reset()
    gc.collect()
    assert dead() is None
    assert exactly(tg, called_often(compiled, tg.ones(3, 4))) == exactly(tg, net(tg.ones(3, 4)))


def test_an_argument_that_is_missing_is_told_with_the_functions_name(tg: Any) -> None:
    compiled = tg.compile(given := lambda a, *, b: a.sin() * b + a.cos() - b)
    for _ in range(6):
        with pytest.raises(TypeError) as told:
            compiled(tg.ones(3))
        assert given.__qualname__ in str(told.value)
        compiled(tg.ones(3), b=tg.ones(3))
