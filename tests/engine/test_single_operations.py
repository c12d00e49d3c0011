"""Composites that come to one operation on some operands: from the third call on, that one is all that is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import context
from server.engine import functional as F
from server.engine.autocast import set_autocast
from server.engine.backward import backward
from server.engine.operators import OPERATORS, Operator
from telegrad_protocol import dtypes
from telegrad_protocol.autocast import Autocast
from tests.ops.adapters import EngineAdapter

Make = Callable[[np.random.Generator], list[torch.Tensor]]


def _normal(*shapes: tuple[int, ...]) -> Make:
    return lambda rng: [torch.tensor(rng.standard_normal(shape, np.float32)) for shape in shapes]


CASES: dict[str, tuple[str, Make, tuple[Any, ...]]] = {
    "layer_norm": ("layer_norm", _normal((3, 8), (8,), (8,)), ((8,),)),
    "view": ("reshape", _normal((4, 6)), ((2, 12),)),
    "attention": ("scaled_dot_product_attention", _normal((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8)), ()),
    "masked attention": (
        "scaled_dot_product_attention",
        _normal((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8), (4, 5)),
        (),
    ),
}
OTHERS: dict[str, tuple[str, Make, tuple[Any, ...]]] = {
    "copy": ("reshape", lambda rng: [torch.tensor(rng.standard_normal((4, 6), np.float32)).t()], ((2, 12),)),
    "attention without heads": ("scaled_dot_product_attention", _normal((4, 8), (5, 8), (5, 8)), ()),
}  # fmt: skip
CALLS = 4
UNTIL_KEPT = 2
"""The first call of a class of arguments makes the lookup, the second one is kept by its metas."""


class Counted:
    """Counts the calls of an operation's composite."""

    def __init__(self, operator: Operator, adapter: EngineAdapter) -> None:
        self.operator, self.adapter, self.calls = operator, adapter, 0
        self._composite: Any = operator.composite

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self._composite(*args, **kwargs)


@pytest.fixture
def counted(adapter: EngineAdapter) -> Iterator[Callable[[str], Counted]]:
    made: list[Counted] = []

    def make(name: str) -> Counted:
        operator = OPERATORS[name]
        operator.clear_caches()
        made.append(Counted(operator, adapter))
        operator.composite = made[-1]
        return made[-1]

    yield make
    for one in made:
        one.operator.composite = one._composite
        one.operator.clear_caches()


def _call(library: Any, name: str, tensors: list[Any], rest: tuple[Any, ...]) -> Any:
    function = getattr(library.nn.functional, name, None) if library is torch else None
    function = function or getattr(library, name)
    return function(tensors[0], *rest, *tensors[1:])


def _results(counted: Counted, case: tuple[str, Make, tuple[Any, ...]], rng: np.random.Generator) -> None:
    """Compare calls with PyTorch, each on new elements."""
    name, make, rest = case
    for _ in range(CALLS):
        theirs = make(rng)
        ours = [counted.adapter.tensor(one) for one in theirs]
        result = _call(F, name, ours, rest)
        expected = _call(torch, name, theirs, rest)
        assert result.shape == tuple(expected.shape) and result.meta.strides == expected.stride()
        np.testing.assert_allclose(counted.adapter.numpy(result), expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_composite_is_not_run_again_for_the_same_metas(
    counted: Callable[[str], Counted], case: tuple[str, Make, tuple[Any, ...]], rng: np.random.Generator
) -> None:
    composite = counted(case[0])
    with context.grad_mode(False):
        _results(composite, case, rng)
    assert composite.calls == UNTIL_KEPT


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS)
def test_what_comes_to_more_than_one_operation_stays_a_composite(
    counted: Callable[[str], Counted], case: tuple[str, Make, tuple[Any, ...]], rng: np.random.Generator
) -> None:
    composite = counted(case[0])
    with context.grad_mode(False):
        _results(composite, case, rng)
    assert composite.calls == CALLS


@pytest.mark.parametrize("records", [False, True], ids=["without history", "with history"])
@pytest.mark.parametrize(
    ("module", "name", "shape", "dtype", "rest"),
    [
        ("linalg", "lu", (5, 4), torch.float64, {}),
        ("fft", "fft", (8,), torch.float64, {}),
        ("fft", "irfft", (3, 5), torch.complex128, {}),
        ("fft", "fft2", (3, 4), torch.float64, {}),
        ("fft", "rfftn", (2, 3, 4), torch.float64, {"dim": (0, 2)}),
        ("fft", "irfftn", (3, 4), torch.complex128, {"norm": "ortho"}),
    ],
)
def test_factors_and_transforms_are_one_operation(
    counted: Callable[[str], Counted], module: str, name: str, shape: tuple[int, ...], dtype: torch.dtype,
    rest: dict[str, Any], records: bool, seed: int,
) -> None:  # fmt: skip
    torch.manual_seed(seed)
    composite = counted(f"{module}_{name}")
    for _ in range(CALLS):
        given = torch.randn(shape, dtype=dtype)
        expected = getattr(getattr(torch, module), name)(given, **rest)
        with context.grad_mode(records):
            results = getattr(F, f"{module}_{name}")(composite.adapter.tensor(given, requires_grad=records), **rest)
        listed = [(results, expected)] if isinstance(expected, torch.Tensor) else zip(results, expected, strict=True)
        for mine, other in listed:
            np.testing.assert_allclose(composite.adapter.numpy(mine), other.numpy(), rtol=1e-9, atol=1e-9)
    assert composite.calls == UNTIL_KEPT


@pytest.mark.parametrize(("case", "calls"), [("layer_norm", UNTIL_KEPT), ("view", UNTIL_KEPT), ("attention", CALLS)])
def test_gradients_and_the_nodes_that_clients_see_are_those_of_the_composite(
    counted: Callable[[str], Counted], case: str, calls: int, rng: np.random.Generator
) -> None:
    name, make, rest = CASES[case]
    composite, forward = counted(name), 0  # derivatives may call it, too
    for _ in range(CALLS):
        theirs = [one.requires_grad_() for one in make(rng)]
        ours = [composite.adapter.tensor(one, requires_grad=True) for one in theirs]
        before = composite.calls
        result = _call(F, name, ours, rest)
        forward += composite.calls - before
        node = result.autograd.grad_fn
        assert node.composed[0] is composite.operator and len(node.composed[1]) == len(ours)
        backward([F.sum(result)], [None])
        _call(torch, name, theirs, rest).sum().backward()
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(
                composite.adapter.numpy(mine.autograd.grad), other.grad.numpy(), rtol=1e-4, atol=1e-5
            )
        del result, node
    assert forward == calls


def test_autocast_is_asked_for_the_operation_that_a_composite_comes_to(
    counted: Callable[[str], Counted], rng: np.random.Generator
) -> None:
    name, make, rest = CASES["attention"]
    composite = counted(name)
    tensors = make(rng)
    kinds = []
    for autocast in (None, Autocast.of([("cpu", dtypes.bfloat16)], True)):
        set_autocast(context.current, autocast)
        for _ in range(CALLS):
            ours = [composite.adapter.tensor(one) for one in tensors]
            kinds.append(_call(F, name, ours, rest).dtype)
    set_autocast(context.current, None)
    assert kinds == [dtypes.float32] * CALLS + [dtypes.bfloat16] * CALLS
