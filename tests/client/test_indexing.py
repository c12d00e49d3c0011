"""Index expressions against PyTorch: thousands of random ones, and those that must be refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import functional as F
from telegrad._tensor.indexing import getitem, setitem
from telegrad_protocol.errors import TelegradError

from ..ops.adapters import EngineAdapter
from ..ops.harness import Comparison
from ..support.draws import drawn

Both = tuple[Any, Any]


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def _call(name: str, *args: Any, **options: Any) -> Any:
    return getattr(F, name)(*args, **options)


def _upload(adapter: EngineAdapter) -> Callable[[np.ndarray], Any]:
    return lambda array: adapter.tensor(torch.from_numpy(np.ascontiguousarray(array)))


class Expressions:
    """Random index expressions, each for PyTorch and for telegrad."""

    def __init__(self, adapter: EngineAdapter, seed: int) -> None:
        self.adapter = adapter
        self.random = random.Random(seed)
        self.torch = torch.Generator().manual_seed(seed)

    def index(self, shape: tuple[int, ...], *, masks: bool = True, zero_d: bool = True) -> Both:
        self.block = self.random.choice([(2,), (3,), (1,), (2, 3), (0,), (3, 1)])
        left = list(shape)
        theirs, ours = [], []
        while left and self.random.random() < 0.85:
            kind = self.random.choice(
                ["int", "slice", "slice", "none", "ellipsis", "tensor", "tensor", "mask", "list", "0-d", "bool"]
            )
            made = self._one(kind, left, masks, zero_d, Ellipsis in [t for t in theirs if t is Ellipsis])
            if made is not None:
                theirs.append(made[0])
                ours.append(made[1])
        return tuple(theirs), tuple(ours)

    def _one(self, kind: str, left: list[int], masks: bool, zero_d: bool, has_ellipsis: bool) -> Both | None:
        size, chance = left[0], self.random
        if kind == "none":
            return None, None
        if kind == "bool":
            truth = chance.random() < 0.8
            return (truth, truth) if masks and chance.random() < 0.3 else None
        if kind == "ellipsis":
            if has_ellipsis:
                return None
            del left[: chance.randint(0, len(left))]
            return Ellipsis, Ellipsis
        if kind == "mask":
            ndim = chance.randint(1, len(left))
            if not masks or has_ellipsis or chance.random() < 0.5:
                return None
            mask = torch.rand(tuple(left[:ndim]), generator=self.torch) < 0.5
            self.block = (int(mask.sum()),)
            del left[:ndim]
            return mask, mask.numpy() if chance.random() < 0.3 else self.adapter.tensor(mask)
        if not size:
            return None
        if kind == "slice":
            left.pop(0)
            bounds = [chance.choice([None, chance.randint(-size - 1, size + 1)]) for _ in range(2)]
            item = slice(*bounds, chance.choice([None, 1, 2, 3]))
            return item, item
        if has_ellipsis and kind in ("int", "0-d", "tensor", "list"):
            size = min(left)  # which dimension comes next depends on the whole expression
        left.pop(0)
        if kind == "int":
            number = chance.randint(-size, size - 1)
            return number, chance.choice([number, np.int64(number)])
        if kind == "0-d":
            number = torch.tensor(chance.randint(-size, size - 1))
            return (number, self.adapter.tensor(number)) if zero_d else (int(number), int(number))
        places = torch.randint(-size, size, self.block, generator=self.torch)
        if kind == "list":
            return places, places.tolist() if chance.random() < 0.5 and places.numel() else places.numpy()
        if chance.random() < 0.3:
            places = places.int()
        return places, self.adapter.tensor(places)


def _source(chance: random.Random, generator: torch.Generator) -> torch.Tensor:
    shape = [chance.choice([1, 2, 3, 4, 5]) for _ in range(chance.randint(1, 4))]
    made = torch.randn(shape, generator=generator)
    made = made.permute(chance.sample(range(len(shape)), len(shape))) if chance.random() < 0.5 else made
    return made.detach()


@pytest.mark.parametrize("seed", drawn([pytest.param(n, id=str(n)) for n in range(8)], 3))
def test_reading_agrees_with_pytorch(adapter: EngineAdapter, seed: int) -> None:
    expressions = Expressions(adapter, seed)
    for number in range(150):
        source = _source(expressions.random, expressions.torch).requires_grad_()
        theirs, ours = expressions.index(tuple(source.shape))
        try:
            expected = source[theirs]
        except (IndexError, RuntimeError):
            with pytest.raises(TelegradError):
                getitem(adapter.tensor(source), ours, _call, _upload(adapter))
            continue
        mine = adapter.tensor(source, True)
        found = getitem(mine, ours, _call, _upload(adapter))
        what = f"seed {seed}, expression {number}: {tuple(source.shape)}[{theirs}]"
        same_layout = not any(isinstance(t, torch.Tensor) and (t.dtype is torch.bool or not t.ndim) for t in theirs)
        try:
            Comparison(adapter, same_layout).compare(found, expected)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from None
        if expected.numel():
            weights = torch.randn(expected.shape, generator=expressions.torch)
            (expected * weights).sum().backward()
            gradient = adapter.grad([found], [adapter.tensor(weights)], [mine], False)[0]
            Comparison(adapter).compare(gradient, source.grad, what=f"gradient of {what}")


@pytest.mark.parametrize("seed", drawn([pytest.param(n, id=str(n)) for n in range(8)], 3))
def test_assignment_agrees_with_pytorch(adapter: EngineAdapter, seed: int) -> None:
    expressions = Expressions(adapter, 100 + seed)
    for number in range(150):
        source = _source(expressions.random, expressions.torch)
        theirs, ours = expressions.index(tuple(source.shape), zero_d=False)
        mine = adapter.tensor(source)
        scale, our_scale = torch.ones((), requires_grad=True), adapter.tensor(torch.ones(()), True)
        result, our_result = source * scale, F.mul(mine, our_scale)
        try:
            part = source[theirs]
            value = _value(part, expressions)
            result[theirs] = value
        except (IndexError, RuntimeError):
            continue
        tensor = isinstance(value, torch.Tensor)
        our_value = adapter.tensor(value, True) if tensor else value
        setitem(our_result, ours, our_value, _call, _upload(adapter))
        what = f"seed {seed}, expression {number}: {tuple(source.shape)}[{theirs}] = {value}"
        unique = not any(isinstance(t, torch.Tensor) and t.dtype is not torch.bool and t.ndim for t in theirs)
        if not unique and tensor and value.numel() > 1:
            continue  # which of several values for one place wins is not defined
        Comparison(adapter).compare(our_result, result, what=f"result of {what}")
        inputs = [scale, value] if tensor else [scale]
        expected = torch.autograd.grad(result.exp().sum(), inputs, allow_unused=True)
        found = adapter.grad(
            [F.sum(F.exp(our_result))], [None], [our_scale, our_value] if tensor else [our_scale], False
        )
        for one, reference in zip(found, expected, strict=True):
            Comparison(adapter).compare(one, reference, what=f"gradient of {what}")


def _value(part: torch.Tensor, expressions: Expressions) -> Any:
    chance = expressions.random
    if chance.random() < 0.3:
        return chance.choice([2, 0.5, True])
    shape = [1 if chance.random() < 0.2 else n for n in part.shape][chance.randint(0, part.ndim) :]
    shape = [1] * chance.choice([0, 0, 0, 1]) + shape
    return torch.randn(shape, generator=expressions.torch, requires_grad=True)


def test_zero_dimensional_tensors_assign_into_the_memory_itself(adapter: EngineAdapter) -> None:
    source, place = torch.zeros(3, 4), torch.tensor(1)
    mine = adapter.tensor(source)
    source[place, 1:3] = 5.0
    setitem(mine, (adapter.tensor(place), slice(1, 3)), 5.0, _call, _upload(adapter))
    Comparison(adapter).compare(mine, source)


@pytest.mark.parametrize(("position", "expected"), [(lambda _: 1, "select"), (lambda _: None, "index")])
def test_an_integer_tensor_gives_a_view_where_it_can_be_read(
    position: Callable[[Any], int | None], expected: str, adapter: EngineAdapter
) -> None:
    called: list[str] = []

    def record(name: str, *args: Any) -> Any:
        called.append(name)
        return _call(name, *args)

    integer = adapter.tensor(torch.tensor(1))
    getitem(adapter.tensor(torch.zeros(3, 4)), integer, record, _upload(adapter), position)
    assert called == [expected]


def test_host_masks_need_no_positions_from_the_device(adapter: EngineAdapter) -> None:
    called: list[str] = []

    def record(name: str, *args: Any) -> Any:
        called.append(name)
        return _call(name, *args)

    getitem(adapter.tensor(torch.zeros(3)), np.array([True, False, True]), record, _upload(adapter))
    assert called == ["index"]


@pytest.mark.parametrize(
    ("index", "kind"),
    [
        (5, IndexError), ((0, 0, 0), IndexError), (1.0, IndexError), ("a", TypeError), ([0.5], IndexError),
        (slice(None, None, -1), ValueError), ([7], IndexError), (np.ones(3, bool), IndexError),
        (np.array([[0, 1], [0, -5]]), IndexError),
    ],
)  # fmt: skip
def test_wrong_indices_are_refused_at_the_call(adapter: EngineAdapter, index: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        getitem(adapter.tensor(torch.zeros(2, 3)), index, _call, _upload(adapter))
    assert isinstance(caught.value, TelegradError)


def test_tensor_indices_out_of_range_name_index_and_size(adapter: EngineAdapter) -> None:
    with pytest.raises(IndexError, match="index: index 7 is out of range for dimension 0 of size 2"):
        getitem(adapter.tensor(torch.zeros(2, 3)), adapter.tensor(torch.tensor([0, 7])), _call, _upload(adapter))


@pytest.mark.parametrize("value", [torch.tensor(7.5), torch.tensor([3]), torch.tensor([[True]])], ids=str)
def test_numbers_of_any_type_fill_what_a_mask_or_a_number_in_a_tensor_chooses(
    adapter: EngineAdapter, value: torch.Tensor
) -> None:
    theirs = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    ours, mask, row = adapter.tensor(theirs), theirs > 2, torch.tensor([True, False, True])
    for index in (mask, (0, row), (slice(None), row)):
        theirs[index] = value
        masks = [adapter.tensor(i) if isinstance(i, torch.Tensor) else i for i in index] if index is not mask else None
        setitem(
            ours, adapter.tensor(mask) if masks is None else (*masks,), adapter.tensor(value), _call, _upload(adapter)
        )
    theirs[torch.tensor(1)] = torch.arange(3)
    setitem(ours, adapter.tensor(torch.tensor(1)), adapter.tensor(torch.arange(3)), _call, _upload(adapter))
    assert adapter.numpy(ours).tolist() == theirs.tolist()
    with pytest.raises(TelegradError, match="must have the dtype"):
        setitem(ours, adapter.tensor(torch.tensor([0])), adapter.tensor(torch.tensor(1)), _call, _upload(adapter))


def test_lists_cannot_be_assigned(adapter: EngineAdapter) -> None:
    with pytest.raises(TypeError, match="can be assigned"):
        setitem(adapter.tensor(torch.zeros(3)), 0, [1.0], _call, _upload(adapter))
