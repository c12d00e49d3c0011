"""What runs look up no more is the same as where they looked it up, in C and in Python, and the same as PyTorch's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import functional as F
from server.engine.generic_kernels import kernel as generic_kernel
from server.engine.in_c import arrays
from server.engine.operators import OPERATORS
from tests.ops.adapters import EngineAdapter
from tests.support.compilers import needs_calls_in_c

pytestmark = pytest.mark.filterwarnings("ignore")
STEPS = 50
SIZE = 4
TYPES = (torch.float32, torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.bool)
REFUSALS = (RuntimeError, TypeError, ValueError, IndexError)
"""What PyTorch raises for operands that an operation does not take."""

_NAMES = (
    "add", "sub", "mul", "maximum", "eq", "lt", "where", "cat", "stack", "sin", "exp", "abs", "sum", "amax", "matmul",
    "add_", "sub_", "mul_", "copy_", "fill_", "zero_", "masked_fill_", "addcmul_", "itself", "view", "index_add",
    "clone",
)  # fmt: skip
Step = tuple[str, tuple[Any, ...]]


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What was worked out for calls is forgotten, with the functions that it is made of."""
    _forget_calls()
    yield
    _forget_calls()


def _forget_calls() -> None:
    for operator in OPERATORS.values():
        operator.clear_caches()


@pytest.fixture(params=["as compiled", "in Python", "looked up"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How kernels of the host are called: in C, in Python, or looked up in each call."""
    if request.param == "in Python":
        monkeypatch.setattr(arrays, "module", None)
    elif request.param == "looked up":
        monkeypatch.setattr(generic_kernel, "call_of", lambda *_: None)
    return request.param  # type: ignore[no-any-return]


def _first(rng: random.Random, numbers: np.random.Generator) -> torch.Tensor:
    """A tensor of some type, row-major, transposed, with gaps, or of no dimension."""
    dtype = rng.choice(TYPES)
    plain = torch.from_numpy(numbers.integers(-4, 5, (SIZE, SIZE)) * 0.5).to(dtype)
    return rng.choice((plain, plain, plain.t(), plain[:, 1], plain[1:3, ::2], plain[0, 0], plain[:, :1]))


def _number(rng: random.Random) -> Any:
    return rng.choice((2, 0.5, -1, True, 0, 3.0))


def _operands(rng: random.Random, values: list[Any]) -> Step:
    """A step, whose tensors are places in the list."""
    one, other, third = (rng.randrange(len(values)) for _ in range(3))
    operand = rng.choice((other, [_number(rng)]))
    name = rng.choice(_NAMES)
    if name in ("cat", "stack"):
        return name, ((one, other, one), 0)
    if name in ("where", "addcmul_"):
        return name, (one, other, third)
    if name in ("sin", "exp", "abs", "zero_", "itself", "view", "clone"):
        return name, (one,)
    if name in ("sum", "amax"):
        return name, (one, rng.choice((0, -1)))
    if name == "masked_fill_":
        return name, (one, [_number(rng)])
    return name, (one, other if name in ("matmul", "maximum", "copy_", "index_add") else operand)


def _take(values: list[Any], item: Any) -> Any:
    """What an operand stands for: a tensor, a number, or a list of tensors."""
    if isinstance(item, list):
        return item[0]
    return tuple([values[place] for place in item]) if isinstance(item, tuple) else values[item]


def _do(step: Step, values: list[Any], lib: Any, integers: Any) -> Any:
    """Make a step with the functions of a library."""
    name, items = step
    one = values[items[0]] if isinstance(items[0], int) else None
    if name in ("cat", "stack"):
        return getattr(lib, name)(_take(values, items[0]), items[1])
    if name in ("sum", "amax"):
        return getattr(lib, name)(one, items[1])
    if name == "where":
        return lib.where(lib.gt(one, 0), values[items[1]], values[items[2]])
    if name == "masked_fill_":
        return one.masked_fill_(lib.gt(one, 0), _take(values, items[1]))
    if name == "itself":
        return one.mul_(one)
    if name == "view":
        return lib.select(one, 0, 0)
    if name == "index_add":
        return lib.index_add(one, 0, integers, lib.index_select(values[items[1]], 0, integers))
    function = getattr(one, name) if name.endswith("_") else getattr(lib, name)
    taken = [_take(values, item) for item in items]
    if not name.endswith("_"):
        return function(*taken)
    if lib is torch:  # whose results are others where an operand overlaps what is written
        taken = [item.clone() if isinstance(item, torch.Tensor) else item for item in taken]
    return function(*taken[1:])


def _program(adapter: EngineAdapter, seed: int, compares: bool) -> list[bytes]:
    """The elements of all results of a random program, which ``compares`` them with PyTorch's."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    theirs = [_first(rng, numbers) for _ in range(6)]
    ours = [adapter.tensor(one) for one in theirs]
    integers = torch.tensor([0, 1, 0])
    seen: list[bytes] = []
    for _ in range(STEPS):
        step = _operands(rng, ours)
        try:
            expected = _do(step, theirs, torch, integers)
        except REFUSALS:  # what the engine says to these is the matter of other tests
            continue
        result = _do(step, ours, F, adapter.tensor(integers))
        elements = adapter.numpy(F.detach(result))
        seen.append(elements.tobytes())
        if compares:
            torch.testing.assert_close(
                torch.from_numpy(elements.astype(np.float64)), expected.to(torch.float64), rtol=2e-2, atol=1e-2,
                equal_nan=True, msg=lambda text, step=step: f"{step}: {text}",
            )  # fmt: skip
            is_exact = elements.dtype.kind in "iub"
            expected.copy_(
                torch.from_numpy(elements if is_exact else elements.astype(np.float64))
            )  # roundings do not add up
        if not step[0].endswith("_") and step[0] != "itself":
            ours.append(result)
            theirs.append(expected)
        if len(ours) > 9:
            place = rng.randrange(len(ours))
            del ours[place], theirs[place]
    return seen


@pytest.mark.parametrize("part", range(6))
def test_random_programs_give_what_pytorch_gives(part: int, seed: int, adapter: EngineAdapter, way: str) -> None:
    assert len(_program(adapter, seed + part, True)) > STEPS // 4


@needs_calls_in_c
@pytest.mark.parametrize("part", range(6))
def test_random_programs_are_equal_to_the_bit(
    part: int, seed: int, adapter: EngineAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = _program(adapter, seed + part, False)
    _forget_calls()
    monkeypatch.setattr(arrays, "module", None)
    assert _program(adapter, seed + part, False) == compiled
    _forget_calls()
    monkeypatch.setattr(generic_kernel, "call_of", lambda *_: None)
    assert _program(adapter, seed + part, False) == compiled


def test_what_is_read_may_share_the_memory_that_is_written(adapter: EngineAdapter, way: str, seed: int) -> None:
    numbers = torch.from_numpy(np.random.default_rng(seed).standard_normal((SIZE, SIZE)).astype(np.float32))
    ours, theirs = adapter.tensor(numbers), numbers.clone()
    for _ in range(3):  # the first call makes the run, the second and third are its
        F.add_(ours, F.t(ours))
        theirs.add_(theirs.t().clone())
        F.mul_(F.select(ours, 0, 0), F.select(ours, 1, 1))
        theirs[0].mul_(theirs[:, 1].clone())
        F.sub_(ours, ours, alpha=0.25)
        theirs.sub_(theirs.clone(), alpha=0.25)
    assert np.array_equal(adapter.numpy(ours), theirs.numpy())


@needs_calls_in_c
def test_what_is_no_kernel_is_refused() -> None:
    module = arrays.module
    good = (max, (np, 0), ((1, 0),), ("out",), (), True)
    assert callable(module.bound_to_kernel(good))
    for place, wrong in ((1, [0]), (2, ((2, 0),)), (2, ((-1, 0),)), (2, ((0,),)), (2, (("0", 0),)), (3, ()), (4, (1,))):
        with pytest.raises(TypeError):
            module.bound_to_kernel((*good[:place], wrong, *good[place + 1 :]))
    with pytest.raises(TypeError):
        module.bound_to_kernel(good[:-1])
    with pytest.raises(TypeError):
        module.bound_in_place((*good, ("0",), max))
    launch = module.bound_to_kernel(good)
    for arguments in ((), ((),), ((), ()), ([], (1,))):
        with pytest.raises(TypeError):
            launch(*arguments)
    with pytest.raises((IndexError, AttributeError)):
        launch((), (1,))


def test_a_kernel_may_have_no_results(adapter: EngineAdapter, way: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for given in (rng.integers(-4, 5, 2), rng.standard_normal((3, 3)), rng.standard_normal((2, 4)).astype("f")):
        grad = adapter.tensor(torch.from_numpy(given))
        for _ in range(3):
            assert F._linear_backward(grad, None, None, False) == ()


def test_nothing_is_looked_up_by_calls_that_came_before(
    adapter: EngineAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = adapter.tensor(torch.ones(3, 7)), adapter.tensor(torch.ones(3, 7))
    halves = adapter.tensor(torch.ones(3, 7, dtype=torch.bfloat16))

    def calls() -> None:
        for _ in range(2):
            F.cat((one, other), 0), F.add(halves, halves), F.mul(one, adapter.tensor(torch.ones(7, dtype=torch.int64)))
            F.add_(one, other), F.copy_(one, other), F.fill_(other, 2.0), F.rand((3, 7))

    calls()
    looked_up = pytest.fail
    monkeypatch.setattr(generic_kernel.GenericKernel, "_call", lambda *_: looked_up("a call was looked up"))
    calls()
