"""What is known of the indices of a recorded program: where they come from, and whether inputs hold good ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import context, functional
from server.engine.device.cpu_backend import CpuBackend
from server.engine.dispatcher import dispatch
from server.engine.integers.elements import bounds_of, note_bounds
from server.engine.integers.ranges import IndexRange, indices_in
from server.engine.integers.trust import trusting
from server.engine.operators import OPERATORS
from server.engine.programs.indices import are_good
from server.engine.programs.origins import Origins
from server.engine.programs.recorder import Recorder
from server.engine.replay import record_key
from server.engine.signature import metas_of
from server.engine.value import Storage, Value
from telegrad_protocol import dtypes
from telegrad_protocol.errors import IndexOutOfRangeError
from tests.ops.adapters import EngineAdapter


class _Noting(Recorder):
    def __init__(self, origins: Origins) -> None:
        super().__init__()
        self._origins = origins

    def note_operation(self, operator: Any, args: tuple[Any, ...], signature: Any, result: Any) -> None:
        self._origins.note(operator, args, result)


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def _checks(adapter: EngineAdapter, make: Callable[[Any], Any], array: Any) -> tuple[Any, Any]:
    """What must hold for an embedding of ten rows, of indices that are made of an input; and the input."""
    given, origins = adapter.tensor(torch.tensor(array)), Origins()
    origins.enter(given, 3)
    before = record_key.start(adapter.context, _Noting(origins))
    try:
        indices = make(given)
    finally:
        record_key.stop(adapter.context, before)
    weight = adapter.tensor(torch.randn(10, 2))
    return origins.checks(OPERATORS["_embedding"], (indices, weight, -1, False)), given


MOVES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "a view": lambda x: x.select(0, 1),
    "a copy of a part": lambda x: x.t().clone().reshape((-1,)),
    "the other way round": lambda x: x.flip((0,)),
}


@pytest.mark.parametrize("name", MOVES)
def test_what_is_moved_is_looked_at_in_the_input(adapter: EngineAdapter, name: str, rng: np.random.Generator) -> None:
    good, bad = rng.integers(0, 10, (2, 3)), rng.integers(0, 10, (2, 3))
    bad[1, 1] = rng.choice([-1, 10, 1 << 40])
    for array, expected in ((good, True), (bad, False)):
        checks, given = _checks(adapter, MOVES[name], array)
        assert [check.input for check in checks] == [3]
        assert all([are_good(check, given) for check in checks]) is expected


def test_what_is_written_to_is_not_known(adapter: EngineAdapter) -> None:
    def write(x: Any) -> Any:
        copy = x.clone()
        copy.add_(1)
        return copy

    assert _checks(adapter, write, [[1, 2], [3, 4]])[0] is None
    assert _checks(adapter, lambda x: x.mul(2), [[1, 2], [3, 4]])[0] is None


def test_what_is_computed_is_known_by_its_arguments(adapter: EngineAdapter) -> None:
    def largest(columns: int) -> Callable[[Any], Any]:
        return lambda x: adapter.tensor(torch.randn(4, columns)).argmax(1)

    assert _checks(adapter, largest(10), [1])[0] == []
    assert _checks(adapter, largest(11), [1])[0] is None


def test_an_input_is_looked_at_again_once_somebody_has_written_to_it(adapter: EngineAdapter) -> None:
    (check,), given = _checks(adapter, lambda x: x, [1, 2, 9])
    assert are_good(check, given)
    given.add_(1)
    assert not are_good(check, given)


def test_what_is_written_to_without_a_count_is_looked_at_each_time(adapter: EngineAdapter) -> None:
    (check,), given = _checks(adapter, lambda x: x, [1, 2, 9])
    data = functional._unversioned(given)
    assert are_good(check, given)
    data.add_(1)
    assert not are_good(check, given)


OPERATIONS: dict[str, Callable[[Any, int, Any], Any]] = {
    "add": lambda x, n, other: x.add(n),
    "add_": lambda x, n, other: x.add_(n),
    "sub_": lambda x, n, other: x.sub_(n, alpha=2),
    "remainder_": lambda x, n, other: x.remainder_(abs(n) + 1),
    "sum": lambda x, n, other: x.add(other, alpha=-3),
    "copy_": lambda x, n, other: x.copy_(other),
    "part": lambda x, n, other: x.select(0, 0).copy_(other.select(0, 1)),
    "places": lambda x, n, other: x.argmax(0, keepdim=True).expand((3, 4)).clone(),
    "clone": lambda x, n, other: x.flip((0,)).clone(),
    "narrow": lambda x, n, other: functional._to_copy(functional._to_copy(x, dtype=dtypes.int8), dtype=dtypes.int64),
    "mul": lambda x, n, other: x.mul(n),
    "product": lambda x, n, other: x.mul(other),
    "clamp": lambda x, n, other: x.clamp(n, abs(n) + 1),
    "clamp the wrong way": lambda x, n, other: x.clamp(5, n),
    "clamp below": lambda x, n, other: x.clamp_(min=n),
    "clamp above": lambda x, n, other: x.clamp(max=n),
    "floor": lambda x, n, other: x.floor_divide(abs(n) + 1),
    "floor by mode": lambda x, n, other: dispatch(OPERATORS["div.mode"], (x, abs(n) + 1, "floor")),
    "truncated": lambda x, n, other: dispatch(OPERATORS["div.mode"], (x.abs(), abs(n) + 1, "trunc")),
    "where": lambda x, n, other: functional.where(other > n, x, other),
    "maximum": lambda x, n, other: functional.maximum(x, other),
    "largest": lambda x, n, other: functional.topk(x, 4, 1)[1],
    "sorted": lambda x, n, other: functional.sort(x, 0)[1].flip((0,)),
    "running": lambda x, n, other: functional.cummax(x, 1)[abs(n) % 2],
    "between": lambda x, n, other: functional.searchsorted(functional.sort(other, 1)[0], x),
    "elements": lambda x, n, other: functional.take(x, functional.argsort(other, 1)),
    "large": lambda x, n, other: x.add(1 << 62),
}


@pytest.fixture
def noting(monkeypatch: pytest.MonkeyPatch) -> EngineAdapter:
    """A host whose operations are noted as those of a GPU are."""
    monkeypatch.setattr(CpuBackend, "can_capture", True)
    for operator in OPERATORS.values():
        for table in ("plans", "lookups", "runs", "checked"):
            monkeypatch.setattr(operator, table, type(getattr(operator, table))())
    return EngineAdapter()


def test_operations_on_known_integers_tell_bounds_of_what_they_make(noting: EngineAdapter, seed: int) -> None:
    torch.manual_seed(seed)
    known = 0
    for number in range(60):
        chance = random.Random(seed + number)
        x, other = [noting.tensor(torch.randint(-5, 9, (3, 4))) for _ in range(2)]
        for value, (low, high) in ((x, (-5, 9)), (other, (-7, 8))):
            note_bounds(value, (low, high))
        names = [chance.choice(list(OPERATIONS)) for _ in range(6)]
        for name in names:
            x = OPERATIONS[name](x, chance.randrange(-9, 9), other)
            bounds = bounds_of(x) if x.shape == (3, 4) else None
            if bounds is not None:
                known += 1
                elements = noting.numpy(x)
                assert bounds[0] <= elements.min() and elements.max() <= bounds[1], names
            x = x if x.shape == (3, 4) else noting.tensor(torch.randint(-5, 9, (3, 4)))
    assert known > 60


TAKING: dict[str, Callable[[Any, Any, Any], tuple[Any, ...]]] = {
    "_embedding": lambda x, index, other: (index.select(0, 0), x, -1, False),
    "take": lambda x, index, other: (x, index),
    "put": lambda x, index, other: (x, index, other, False),
    "gather": lambda x, index, other: (x, 1, index, False),
    "index_select": lambda x, index, other: (x, 0, index.select(0, 0)),
    "index_add": lambda x, index, other: (x, 1, index.select(0, 0), other, 1),
    "index_copy": lambda x, index, other: (x, 1, index.select(0, 0), other),
    "index_fill": lambda x, index, other: (x, 0, index.select(0, 0), 2.0),
    "scatter": lambda x, index, other: (x, 1, index, other, None),
    "scatter.value": lambda x, index, other: (x, 0, index, 2.0, None),
    "scatter_add": lambda x, index, other: (x, 0, index, other),
    "scatter_reduce": lambda x, index, other: (x, 1, index, other, "amax", True),
    "index": lambda x, index, other: (x, (None, index.select(0, 0))),
    "index_put": lambda x, index, other: (x, (index.select(0, 0), index.select(0, 0)), other.select(0, 0), True),
}
"""Arguments of operations that take indices: of a tensor of 3 x 3, of three rows of indices, and of another tensor."""


@pytest.mark.parametrize("name", TAKING)
def test_ranges_are_those_that_operations_accept(adapter: EngineAdapter, name: str, seed: int) -> None:
    torch.manual_seed(seed)
    operator = OPERATORS[name]
    x, other = [adapter.tensor(torch.randn(3, 3)) for _ in range(2)]
    zeros = adapter.tensor(torch.zeros(3, 3, dtype=torch.int64))
    found = indices_in(operator.op, metas_of(TAKING[name](x, zeros, other)))
    assert found
    (low, end, _) = found[-1].range
    for index, is_good in ((low, True), (end - 1, True), (low - 1, False), (end, False)):
        chosen = torch.zeros(3, 3, dtype=torch.int64)
        chosen[0, torch.randint(3, ())] = index
        args = TAKING[name](x, adapter.tensor(chosen), other)
        assert found[-1].of(args).meta.dtype is dtypes.int64
        if is_good:
            dispatch(operator, args)
        else:
            with pytest.raises(IndexOutOfRangeError):
                dispatch(operator, args)


def test_launches_trust_what_is_known(noting: EngineAdapter, seed: int) -> None:
    """What the host knows is not checked; what was written to since, or reaches beyond the range, is."""
    torch.manual_seed(seed)
    table, index = noting.tensor(torch.randn(10, 2)), noting.tensor(torch.randint(0, 10, (4,)))
    made: list[tuple[str, bool]] = []
    launches = [lambda args, outs, how=how: made.append((how, context.current.checks.covered))
                for how in ("checked", "unchecked")]  # fmt: skip
    op, args = OPERATORS["index_select"].op, (table, 0, index)
    launch = trusting(op, metas_of(args), *launches)
    for bounds, expected in ((None, "checked"), ((0, 9), "unchecked"), ((-1, 9), "checked"), ((0, 10), "checked")):
        index.add_(0)
        note_bounds(index, bounds)
        launch(args, ())
        assert made.pop() == (expected, expected == "unchecked")
    note_bounds(index, (0, 9))
    launch((table, 0, index.flip((0,))), ())
    launch((table, 0, index.narrow(0, 1, 2)), ())
    lent = Storage(index.storage.backend, index.storage.block, index.storage.nbytes, index.storage)
    launch((table, 0, Value(lent, index.meta, index.backend)), ())
    index.mul_(3)
    launch(args, ())
    assert [how for how, _ in made] == ["unchecked", "unchecked", "checked", "checked"]
    assert not context.current.checks.covered
    assert trusting(OPERATORS["sin"].op, (table.meta,), *launches) is launches[0]


def test_a_position_that_is_counted_and_a_token_that_is_chosen_are_known(noting: EngineAdapter) -> None:
    position, tokens = [noting.tensor(torch.tensor([0])) for _ in range(2)]
    note_bounds(position, (0, 0))
    for step in range(9):
        tokens.copy_(noting.tensor(torch.randn(1, 50)).argmax(1))
        position.add_(1).remainder_(4)
        assert bounds_of(tokens) == (0, 49)
        assert bounds_of(position) in ((step % 4 + 1,) * 2, (0, 3))


def test_bounds_that_are_too_wide_are_looked_at(noting: EngineAdapter) -> None:
    (check,), given = _checks(noting, lambda x: x, [1, 2, 9])
    note_bounds(given, (-1, 70))
    assert are_good(check, given), "its elements are good, and its bounds are not"
    note_bounds(given, (0, 9))
    given.add_(1)
    assert bounds_of(given) == (1, 10)
    assert not are_good(check, given)


def test_an_ignored_index_is_no_index(adapter: EngineAdapter) -> None:
    (check,), given = _checks(adapter, lambda x: x, [1, -100, 3])
    assert not are_good(check, given)
    assert are_good(check._replace(range=IndexRange(0, 10, -100)), given)
    (_,), other = _checks(adapter, lambda x: x, [1, -100, -7])
    assert not are_good(check._replace(range=IndexRange(0, 10, -100)), other)
