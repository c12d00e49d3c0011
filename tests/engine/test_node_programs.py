"""What nodes of a plan do by programs: the same gradients, memory and errors as where each node is asked."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import context
from server.engine import functional as F
from server.engine.autograd import gradients, node_program
from server.engine.autograd.inplace import set_requires_grad
from server.engine.autograd.node import OpNode
from server.engine.backward import backward, grad
from server.engine.in_c import histories
from server.engine.operators import OPERATORS
from server.engine.replay import backward_program
from server.replay_policy import BACKWARD_PROGRAMS
from telegrad_protocol.errors import AutogradError
from tests.engine.repeated_gradients import check_gradients_again, differentiable
from tests.engine.test_replay import MODELS, train
from tests.ops.adapters import EngineAdapter
from tests.support.draws import drawn

pytestmark = pytest.mark.filterwarnings("ignore")
STEPS = 40


@pytest.fixture
def seed(seed: int) -> int:
    """The printed seed, which PyTorch draws from too."""
    torch.manual_seed(seed)
    return seed


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


@pytest.fixture(params=["as compiled", "in Python"])
def programs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How many nodes were recorded, each the first time it is met, and no whole passes; no calls are remembered."""
    _forget_calls()
    if request.param == "in Python":
        monkeypatch.setattr(node_program, "drain_in_c", None)
        monkeypatch.setattr(node_program, "apply", histories.apply_program_in_python)
    monkeypatch.setattr(node_program, "RECORDED_AFTER", 1)
    monkeypatch.setattr(backward_program, "BACKWARD_PROGRAMS", BACKWARD_PROGRAMS._replace(budget=0))
    counts, record = {"recorded": 0}, node_program._record

    def recorded(*args: Any) -> Any:
        results, program = record(*args)  # type: ignore[misc]
        counts["recorded"] += program is not None
        return results, program

    monkeypatch.setattr(node_program, "_record", recorded)
    yield counts
    _forget_calls()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What has every node asked until the end of the test."""

    def ask() -> None:
        _forget_calls()
        monkeypatch.setattr(node_program, "_record", None)

    return ask


def _forget_calls() -> None:
    node_program.additions.clear()
    for operator in OPERATORS.values():
        operator.clear_caches()


@pytest.mark.parametrize("info", drawn(differentiable(), 60))
def test_every_operation_gives_the_same_gradients_again(
    info: Any, adapter: EngineAdapter, programs: dict[str, int]
) -> None:
    check_gradients_again(info, adapter, 4)


@pytest.mark.parametrize("kind", MODELS)
def test_training_is_the_same_to_the_bit_and_byte(
    kind: str, programs: dict[str, int], asked: Callable[[], None]
) -> None:
    by_programs = train(kind)
    assert programs["recorded"] >= 3
    asked()
    assert train(kind) == by_programs


OPERATIONS: tuple[Callable[[random.Random, Callable[[], Any]], Any], ...] = (
    lambda rng, one: F.add(one(), one()), lambda rng, one: F.mul(one(), rng.choice((2, 0.5, one()))),
    lambda rng, one: F.sub(one(), F.select(one(), 0, rng.randrange(4))), lambda rng, one: F.tanh(one()),
    lambda rng, one: F.matmul(one(), one()), lambda rng, one: F.linear(one(), one(), F.select(one(), 0, 1)),
    lambda rng, one: F.log_softmax(one(), rng.randrange(2)), lambda rng, one: F.t(one()),
    lambda rng, one: F.narrow(F.cat((one(), one()), 0), 0, 1, 4), lambda rng, one: F.cat(F.split(one(), 2, 0), 0),
    lambda rng, one: F.mean(F.stack((one(), one(), one())), 0), lambda rng, one: F.add_(F.mul(one(), 1.5), one()),
    lambda rng, one: F.where(F.gt(one(), 0), one(), one()), lambda rng, one: F.layer_norm(one(), (4,)),
    lambda rng, one: F.div(one(), F.add(F.exp(one()), 1.0)), lambda rng, one: F.max(one(), 1, True)[0] + one(),
)  # fmt: skip


def _program(adapter: EngineAdapter, seed: int) -> list[Any]:
    """What passes over random graphs see: gradients, and what each has left in memory and allocated."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    allocator = adapter.backends[adapter.device].allocator
    leaves = [adapter.tensor(torch.from_numpy(numbers.standard_normal((4, 4)).astype(np.float32))) for _ in range(3)]
    for leaf in leaves:
        set_requires_grad(leaf, True)
    seen: list[Any] = []
    for _ in range(STEPS):
        values, before = [*leaves, adapter.tensor(torch.ones(4, 4))], allocator.memory_stats()
        for _ in range(rng.randint(1, 8)):
            result = rng.choice(OPERATIONS)(rng, partial(rng.choice, values))
            values.append(F.tanh(F.reshape(result, (4, 4))))
        loss = F.sum(F.mul(values[-1], values[rng.randrange(3)]))
        if rng.random() < 0.2 and values[-1].autograd is not None:
            gradients.retain_grad(values[-1])
        if rng.random() < 0.3:
            backward([loss], [None], retain_graph=True)
        allocator.reset_peak()
        backward([loss], [None])
        kept = values[-1].autograd
        given = [leaf.autograd.grad for leaf in leaves] + [None if kept is None else kept.grad]
        after = allocator.memory_stats()
        seen.append([None if one is None else (one.meta, adapter.numpy(one).tobytes()) for one in given])
        seen += [after[name] - before[name] for name in ("allocation.all.allocated", "requested_bytes.all.current")]
        seen.append(after["requested_bytes.all.peak"] - before["requested_bytes.all.current"])
        del values, loss, given, kept
        if rng.random() < 0.5:
            for leaf in leaves:
                leaf.autograd.grad = None
    return seen


@pytest.mark.parametrize("part", range(4))
def test_random_graphs_give_the_same(
    part: int, seed: int, adapter: EngineAdapter, programs: dict[str, int], asked: Callable[[], None]
) -> None:
    by_programs = _program(adapter, seed + part)
    assert programs["recorded"] > 10
    asked()
    assert _program(adapter, seed + part) == by_programs


def _leaf(adapter: EngineAdapter) -> Any:
    return adapter.tensor(torch.randn(3, 4), True)


def _errors(adapter: EngineAdapter, x: Any) -> list[str]:
    said = []
    y = F.exp(F.mul(x, 2.0))
    F.mul_(F.detach(y), 2.0)
    once = F.sum(F.sin(x))
    backward([once], [None])
    for loss in (F.sum(y), once):
        with pytest.raises(AutogradError) as caught:
            backward([loss], [None])
        said.append(str(caught.value))
    return said


def test_errors_are_the_same(
    seed: int, adapter: EngineAdapter, programs: dict[str, int], asked: Callable[[], None]
) -> None:
    x = _leaf(adapter)
    for _ in range(3):
        backward([F.add(F.sum(F.exp(F.mul(x, 2.0))), F.sum(F.sin(x)))], [None])
    by_programs = _errors(adapter, x)
    asked()
    assert _errors(adapter, x) == by_programs


def test_a_node_is_recorded_after_some_like_it_and_not_asked_again(
    seed: int, adapter: EngineAdapter, programs: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_program, "RECORDED_AFTER", 5)
    x, calls = _leaf(adapter), []
    for count in range(1, 9):
        y = F.sum(F.tanh(x))
        node = y.autograd.grad_fn.edges[0][0]
        backward([y], [None])
        calls.append(node.plan.asked)
        assert (node.plan.program is not None) == (count >= 5)
    assert calls == [1, 2, 3, 4, 5, 5, 5, 5]


def test_a_program_is_for_one_layout_of_gradients_and_for_the_modes_of_its_recording(
    seed: int, adapter: EngineAdapter, programs: dict[str, int]
) -> None:
    x = adapter.tensor(torch.randn(4, 4), True)
    given = torch.randn(4, 4)
    for transposed in (False, False, True, False, True):
        x.autograd.grad = None
        gradient = adapter.tensor(given.t() if transposed else given)
        backward([F.tanh(x)], [gradient])
        wanted = adapter.numpy(gradient) * (1 - np.tanh(adapter.numpy(F.detach(x))) ** 2)
        np.testing.assert_allclose(adapter.numpy(x.autograd.grad), wanted, rtol=1e-5)
    y = F.tanh(x)
    plan = y.autograd.grad_fn.plan
    with context.grad_mode(False):
        before, first = node_program.modes_now(), plan.program.modes
    assert before is first
    context.current.cudnn = context.current.cudnn._replace(deterministic=True)
    asked = plan.asked
    backward([F.tanh(x)], [adapter.tensor(given)])
    assert plan.asked == asked + 1


def test_graphs_of_passes_and_what_is_watched_are_made_by_asking(
    seed: int, adapter: EngineAdapter, programs: dict[str, int]
) -> None:
    x = _leaf(adapter)
    for _ in range(3):
        backward([F.sum(F.tanh(x))], [None])
    y = F.sum(F.tanh(x))
    plan = y.autograd.grad_fn.edges[0][0].plan
    before = plan.asked
    (first,) = grad([y], [None], [x], create_graph=True)
    assert isinstance(first.autograd.grad_fn, OpNode)
    assert plan.program is not None
    trace: list[str] = []
    context.current.trace = trace
    try:
        backward([F.sum(F.tanh(x))], [None])
    finally:
        context.current.trace = None
    assert any("tanh_backward" in line or "mul" in line for line in trace)
    assert plan.asked >= before
