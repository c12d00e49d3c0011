"""Values, histories and derivatives in C and in Python are the same: results, graphs, gradients, memory and errors."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import context, view_plan
from server.engine import functional as F
from server.engine.autograd import graph_task, node_program
from server.engine.autograd.graph import AccumulateGrad, SavedTensor, SavedTensorList
from server.engine.autograd.inplace import set_requires_grad
from server.engine.autograd.node import OpNode
from server.engine.backward import backward, grad
from server.engine.device import memory
from server.engine.in_c import histories, launches
from server.engine.in_c import values as values_in_c
from server.engine.operators import OPERATORS
from server.engine.value import Storage, Value
from telegrad_protocol.errors import AutogradError, LinearAlgebraError
from tests.ops.adapters import EngineAdapter
from tests.support.compilers import needs_calls_in_c

pytestmark = needs_calls_in_c
STEPS = 60
SIZE = 4

Operation = Callable[[random.Random, Callable[[], Value]], Any]
OPERATIONS: dict[str, Operation] = {
    "add": lambda rng, one: F.add(one(), one()), "mul": lambda rng, one: F.mul(one(), rng.choice((2, 0.5, one()))),
    "sin": lambda rng, one: F.sin(one()), "tanh": lambda rng, one: F.tanh(one()),
    "matmul": lambda rng, one: F.matmul(one(), one()), "linear": lambda rng, one: F.linear(one(), one(), None),
    "linear with a bias": lambda rng, one: F.linear(one(), one(), F.select(one(), 0, 1)),
    "softmax": lambda rng, one: F.log_softmax(one(), rng.randrange(2)),
    "select": lambda rng, one: F.add(F.select(one(), 0, rng.randrange(SIZE)), one()),
    "transpose": lambda rng, one: F.transpose(one(), 0, 1),
    "cat": lambda rng, one: F.narrow(F.cat((one(), one()), 0), 0, 1, SIZE),
    "stack": lambda rng, one: F.mean(F.stack((one(), one(), one())), 0),
    "split": lambda rng, one: F.cat(F.split(one(), 2, 0), 0),
    "detach": lambda rng, one: F.add(F.detach(one()), one()),
    "max": lambda rng, one: F.add(F.amax(one(), 1, True), one()),
    "several results": lambda rng, one: F.matmul(*F.linalg_qr(one())),
    "in place": lambda rng, one: F.add_(F.mul(one(), 1.5), one()), "a view in place": lambda rng, one: _written(one()),
}  # fmt: skip


def _written(value: Value) -> Value:
    copy = F.mul(value, 2.0)
    F.mul_(F.select(copy, 0, 0), 3.0)
    return copy


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What leaves everything to Python until the end of the test."""

    def leave() -> None:
        _forget_calls()
        monkeypatch.setattr(values_in_c, "module", None)
        monkeypatch.setattr(histories, "module", None)
        monkeypatch.setattr(memory, "new_value_in_c", None)
        monkeypatch.setattr(OpNode, "apply", histories.apply_in_python)
        monkeypatch.setattr(node_program, "apply", histories.apply_program_in_python)
        monkeypatch.setattr(node_program, "drain_in_c", None)
        monkeypatch.setattr(launches, "module", None)
        monkeypatch.setattr(graph_task, "count_gradients", graph_task._counted)
        monkeypatch.setattr(view_plan, "view_in_c", None)
        monkeypatch.setattr(Storage, "__del__", values_in_c.finalize_in_python)

    return leave


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    """What was worked out for calls is forgotten, with the functions that it is made of."""
    _forget_calls()
    yield
    _forget_calls()


def _forget_calls() -> None:
    for operator in OPERATORS.values():
        operator.clear_caches()


def test_it_is_in_c_where_there_is_a_compiler(adapter: EngineAdapter) -> None:
    assert values_in_c.new_value is not None
    assert OpNode.apply is not histories.apply_in_python
    assert Storage.__del__ is not values_in_c.finalize_in_python
    assert graph_task.count_gradients is not graph_task._counted and view_plan.view_in_c is not None


def _described(value: Value) -> Any:
    """All that an operation has written into a value and its history."""
    history = value.autograd
    node = None if history is None else history.grad_fn
    slots = [getattr(value, name, None) for name in ("seen", "origin")]
    storage = value.storage
    described: Any = (value.meta, value.keys, slots, storage.version, storage.nbytes, storage.keeper is None)
    if history is not None:
        described += (
            history.requires_grad,
            history.output,
            history.rebased,
            history.grad is None,
            history.accumulator is None,
        )
    return described, _described_node(node)


def _described_node(node: Any) -> Any:
    if not isinstance(node, OpNode):
        return type(node).__name__
    edges = [edge and (type(edge[0]).__name__, edge[1]) for edge in node.edges]
    saved = None if node.saved is None else [_described_saved(item) for item in node.saved]
    return node.name, node.metas, edges, node.retained, saved, node.plan.has_known_results, hasattr(node, "composed")


def _described_saved(item: Any) -> Any:
    if isinstance(item, SavedTensorList):
        return [_described_saved(one) for one in item.items]
    if not isinstance(item, SavedTensor):
        return item
    slots = [name for name in ("array", "output") if hasattr(item, name)]
    return type(item).__name__, item.version, item.meta, item.node is None, item.value is None, slots


def _program(adapter: EngineAdapter, seed: int) -> list[Any]:
    """What a random program sees: of each result, and the gradients of passes in between and at the end."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    values = [
        adapter.tensor(torch.from_numpy(numbers.standard_normal((SIZE, SIZE)).astype(np.float32))) for _ in range(4)
    ]
    leaves = values[:3]
    for leaf in leaves:
        set_requires_grad(leaf, True)
    seen: list[Any] = []
    for _ in range(STEPS):
        name = rng.choice(list(OPERATIONS))
        with context.grad_mode(rng.random() < 0.85):
            result = OPERATIONS[name](rng, partial(rng.choice, values))
        result = F.reshape(result, (SIZE, SIZE))
        seen.append((name, _described(result), adapter.numpy(F.detach(result)).tobytes()))
        values.append(F.tanh(result))
        if len(values) > 12:
            del values[rng.randrange(4, len(values))]
        if rng.random() < 0.1:
            seen.append(_pass(adapter, rng, values[-1], leaves))
            del values[4:]
    return seen


def _pass(adapter: EngineAdapter, rng: random.Random, value: Value, leaves: list[Value]) -> Any:
    """Gradients of a value, by one of the ways to ask for them."""
    if value.autograd is None or not value.autograd.requires_grad:
        return "no history"
    loss, kind = F.sum(F.mul(value, value)), rng.randrange(4)
    if kind == 0:
        given = grad([loss], [None], leaves, allow_unused=True)
    elif kind == 1:
        first = grad([loss], [None], leaves, retain_graph=True, create_graph=True, allow_unused=True)
        total = [F.sum(F.mul(one, one)) for one in first if one is not None and one.autograd is not None]
        given = first if not total else grad(total, [None] * len(total), leaves, allow_unused=True)
    else:
        backward([loss], [None], retain_graph=kind == 2)
        given = [leaf.autograd.grad for leaf in leaves]  # type: ignore[union-attr]
    return kind, [None if one is None else adapter.numpy(F.detach(one)).tobytes() for one in given]


@pytest.mark.parametrize("part", range(5))
def test_random_programs_do_the_same(
    part: int, seed: int, adapter: EngineAdapter, python: Callable[[], None]
) -> None:  # fmt: skip
    in_c = _program(adapter, seed + part)
    python()
    assert _program(adapter, seed + part) == in_c


def _errors(adapter: EngineAdapter) -> list[str]:
    """What is said of saved tensors that were modified, passes, gradients that there are none of, and a launch."""
    said = []
    x = adapter.tensor(torch.ones(2, 2))
    set_requires_grad(x, True)
    y = F.exp(F.mul(x, 2.0))
    F.mul_(F.detach(y), 2.0)
    once = F.sum(F.sin(x))
    backward([once], [None])
    for loss in (F.sum(y), once, F.sum(F.detach(x))):
        with pytest.raises(AutogradError) as caught:
            backward([loss], [None])
        said.append(str(caught.value))
    with pytest.raises(LinearAlgebraError) as refused:
        F.linalg_lu_factor(adapter.tensor(torch.zeros(2, 2)))
    return [*said, str(refused.value)]


def test_errors_are_the_same(adapter: EngineAdapter, python: Callable[[], None]) -> None:
    in_c = _errors(adapter)
    python()
    assert _errors(adapter) == in_c
    gc.collect()  # errors and the frames that they went through refer to each other


def test_nothing_is_left_behind(adapter: EngineAdapter, seed: int) -> None:
    """Some round of a program leaves as many blocks of Python's memory as there were: others may learn from it."""
    counts = []
    for _ in range(8):
        _program(adapter, seed)
        gc.collect()
        counts.append(sys.getallocatedblocks())
    assert min([later - before for before, later in pairwise(counts)]) < 20


def test_a_graph_in_c_is_freed_without_the_garbage_collector(adapter: EngineAdapter) -> None:
    x = adapter.tensor(torch.ones(2, 2))
    set_requires_grad(x, True)
    held = x.backend.allocator.allocated_bytes()
    y = F.tanh(F.exp(F.linear(x, x, None)))
    assert type(y.autograd.grad_fn.edges[0][0]) is OpNode  # type: ignore[union-attr]
    assert not isinstance(y.autograd.grad_fn, AccumulateGrad)  # type: ignore[union-attr]
    del y
    assert x.backend.allocator.allocated_bytes() == held
