"""The ``_foreach_`` family against PyTorch's: every overload and form, lists of mixed types and layouts, gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from server.engine.autograd.graph import make_leaf
from server.engine.backward import grad
from server.engine.operators import OPERATORS
from server.engine.ops import foreach
from server.engine.ops.foreach import EXPRESSIONS as IMPLEMENTED
from server.engine.ops.foreach import _expression_of
from telegrad_protocol.errors import ArgumentError, AutogradError, DTypeError
from telegrad_protocol.ops import foreach as contracts
from tests.gpus import ALL_DEVICES

from .adapters import EngineAdapter
from .harness import assert_close, to_torch

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.complex64]
SHAPES = [(3,), (), (0, 2), (40, 30), (5000,)]


@pytest.fixture(params=ALL_DEVICES)
def adapter(request: pytest.FixtureRequest) -> EngineAdapter:
    made = EngineAdapter(request.param)
    made.context.grad_enabled = False
    return made


def _lists(count: int, dtype: torch.dtype, positive: bool = False) -> list[list[torch.Tensor]]:
    """Tensors of several shapes; one transposed in the first list only, one misaligned."""
    torch.manual_seed(1)
    made = []
    for number in range(count):
        one = [_numbers(shape, dtype, positive) for shape in SHAPES]
        one.append(_numbers((6, 4), dtype, positive).t() if number == 0 else _numbers((4, 6), dtype, positive))
        one.append(_numbers((1001,), dtype, positive)[1:])
        made.append(one)
    return made


def _numbers(shape: tuple[int, ...], dtype: torch.dtype, positive: bool) -> torch.Tensor:
    if dtype is torch.int64:
        return torch.randint(1, 9, shape)
    wide = torch.rand(shape) * 0.8 + 0.1 if positive else torch.randn(shape)
    return (wide + 0.5j * wide).to(dtype) if dtype.is_complex else wide.to(dtype)


def _compare(adapter: EngineAdapter, name: str, *args: Any, in_place: bool = True, **options: Any) -> None:
    """Both forms; the in-place one where the results have the operands' type."""
    expected = getattr(torch, name)(*args, **options)
    _check(adapter, getattr(adapter.functional, name)(*_ours(adapter, args), **options), expected, name)
    if not in_place or any(e.dtype != a.dtype for e, a in zip(expected, args[0], strict=True)):
        return
    mine = _ours(adapter, args)
    getattr(adapter.functional, f"{name}_")(*mine, **options)
    _check(adapter, mine[0], expected, f"{name}_")
    versions = {value.storage.version for value in mine[0]}
    assert versions == {1}


NUMBERED = {
    "_foreach_mul_": (1, lambda n: ((n,), {})),
    "_foreach_div_": (1, lambda n: (([n or 1, 2.0, n or 1],), {})),
    "_foreach_add_": (2, lambda n: ((), {"alpha": n})),
    "_foreach_addcmul_": (3, lambda n: ((), {"value": n})),
    "_foreach_addcdiv_": (3, lambda n: (([n, -n, 0.25],), {})),
    "_foreach_lerp_": (2, lambda n: ((n,), {})),
    "_foreach_sqrt_": (1, lambda n: ((), {})),
}
"""In-place forms: how many lists they take, and the other arguments, of a number."""


@pytest.mark.parametrize("name", NUMBERED)
def test_calls_that_come_again_with_other_numbers_are_one_operation(
    adapter: EngineAdapter, name: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Steps of optimizers, whose rates are others in each: one plan for all floats but 0, and no composite."""
    torch.manual_seed(seed)
    count, arguments = NUMBERED[name]
    looked_at: list[str] = []
    monkeypatch.setattr(foreach, "_expression_of", lambda *args: looked_at.append(args[0]) or _expression_of(*args))
    applied = OPERATORS["_foreach_apply_"]
    adapter.context.grad_enabled = False
    for number in (0.5, -0.25, 0.125, 0.0, 0.75, 3, 0.3, 0.0, 2, float("inf"), -0.1):
        lists = [[torch.rand(shape) + 0.1 for shape in ((4, 5), (300,), ())] for _ in range(count)]
        mine, (positional, options) = _ours(adapter, tuple(lists)), arguments(number)
        before, plans = len(looked_at), len(applied.plans)
        getattr(torch, name)(*lists, *positional, **options)
        getattr(adapter.functional, name)(*mine, *positional, **options)
        _check(adapter, mine[0], lists[0], name)
        assert {value.storage.version for value in mine[0]} == {1}
        if number in (0.125, 0.75, 0.3, -0.1, float("inf")):
            assert (len(looked_at), len(applied.plans)) == (before, plans), number
    assert looked_at


def test_lists_of_several_types_are_asked_once_whether_they_are_one_operation(
    adapter: EngineAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    plain = foreach._is_one_expression
    monkeypatch.setattr(foreach, "_is_one_expression", lambda *args: asked.append(args[0]) or plain(*args))
    counts = []
    for number in (0.5, 0.25, 0.125):
        tensors = [torch.rand(3), torch.rand(4, dtype=torch.float64)]
        (mine,) = _ours(adapter, (tensors,))
        torch._foreach_mul_(tensors, number)
        adapter.functional._foreach_mul_(mine, number)
        _check(adapter, mine, tensors, "_foreach_mul_")
        counts.append(len(asked))
    assert counts == [2, 3, 4], "by the composite in each call, and once by what tells what it comes to"


def test_what_came_before_without_gradients_is_refused_with_them(adapter: EngineAdapter) -> None:
    lists = [[torch.rand(3) for _ in range(2)] for _ in range(2)]
    mine = _ours(adapter, tuple(lists))
    for _ in range(3):
        adapter.functional._foreach_add_(*mine)
    adapter.context.grad_enabled = True
    make_leaf(mine[0][1], True)
    with pytest.raises(AutogradError, match="in-place"):
        adapter.functional._foreach_add_(*mine)
    adapter.context.grad_enabled = False
    adapter.functional._foreach_add_(*mine)
    _check(adapter, mine[0], [a + 4 * b for a, b in zip(*lists, strict=True)], "_foreach_add_")


def _ours(adapter: EngineAdapter, args: tuple[Any, ...]) -> list[Any]:
    def convert(thing: Any) -> Any:
        if isinstance(thing, list):
            return [convert(item) for item in thing]
        return adapter.tensor(thing) if isinstance(thing, torch.Tensor) else thing

    return [convert(arg) for arg in args]


def _check(adapter: EngineAdapter, result: Any, expected: Any, what: str) -> None:
    for mine, reference in zip(result, expected, strict=True):
        assert_close(to_torch(adapter.numpy(mine)), reference, what, slack=2.0)


@pytest.mark.parametrize("dtype", TYPES[:4], ids=str)
@pytest.mark.parametrize("name", [n for n in contracts.UNARY if n not in ("lgamma", "round")])
def test_operations_on_each_tensor(adapter: EngineAdapter, name: str, dtype: torch.dtype) -> None:
    _compare(adapter, f"_foreach_{name}", _lists(1, dtype, positive=True)[0])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", contracts.BINARY)
def test_operations_with_lists_and_numbers(adapter: EngineAdapter, name: str, dtype: torch.dtype) -> None:
    if dtype.is_complex and name not in ("add", "sub", "mul", "div"):
        return
    first, second = _lists(2, dtype, positive=True)
    name = f"_foreach_{name}"
    _compare(adapter, name, first, second)
    _compare(adapter, name, first, 2)
    _compare(adapter, name, first, [1 + n for n in range(len(first))])
    if dtype.is_floating_point:
        _compare(adapter, name, first, 0.5)
    if name in ("_foreach_add", "_foreach_sub"):
        _compare(adapter, name, first, second, alpha=3)


@pytest.mark.parametrize("dtype", TYPES[:4], ids=str)
def test_operations_of_three_lists(adapter: EngineAdapter, dtype: torch.dtype) -> None:
    lists = _lists(3, dtype, positive=True)
    numbers = [0.25 * n for n in range(len(lists[0]))]
    for name in ("_foreach_addcmul", "_foreach_addcdiv"):
        _compare(adapter, name, *lists)
        _compare(adapter, name, *lists, value=0.5)
        _compare(adapter, name, *lists, numbers)
    _compare(adapter, "_foreach_lerp", *lists)
    for weight in (0.25, 0.75):
        _compare(adapter, "_foreach_lerp", *lists[:2], weight)


def test_types_may_differ_between_lists(adapter: EngineAdapter) -> None:
    first = [torch.randn(5).to(dtype) for dtype in TYPES[:4]]
    second = [torch.randn(5, dtype=torch.float64) for _ in first]
    _compare(adapter, "_foreach_add", first, second, in_place=False)
    _compare(adapter, "_foreach_mul", first, [torch.randn(3, 5) for _ in first], in_place=False)
    _compare(adapter, "_foreach_add", [torch.randn(3), torch.randn(4)], torch.tensor(2.0))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "addcmul", "addcdiv"])
def test_results_get_the_types_of_what_they_are_written_into(adapter: EngineAdapter, name: str) -> None:
    first = [torch.rand(5).add(0.5).to(dtype) for dtype in (*TYPES[:4], torch.float32)]
    others = [
        torch.rand(5, dtype=torch.float64).add(0.5).to(dtype) for dtype in (TYPES[1], TYPES[0], *TYPES[:2], TYPES[4])
    ]
    mine = _ours(adapter, (first, *[others] * (2 if name.startswith("addc") else 1)))
    if name == "addcdiv":  # integers are not divided
        first, mine = first[:-1], [values[:-1] for values in mine]
        others = others[:-1]
    getattr(adapter.functional, f"_foreach_{name}_")(*mine)
    getattr(torch, f"_foreach_{name}_")(first, *[others] * (len(mine) - 1))
    _check(adapter, mine[0], first, name)


def test_not_a_number_is_kept(adapter: EngineAdapter) -> None:
    first = [torch.tensor([float("nan"), 1.0, float("inf")])]
    second = [torch.tensor([1.0, float("nan"), 2.0])]
    for name in ("_foreach_maximum", "_foreach_minimum", "_foreach_clamp_min", "_foreach_clamp_max", "_foreach_abs"):
        _compare(adapter, name, *([first, second] if name != "_foreach_abs" else [first]))


def test_norms(adapter: EngineAdapter) -> None:
    tensors = [torch.randn(7), torch.randn(40, 30), torch.randn(1)]
    for order in (1.0, 2.0, float("inf")):
        result = adapter.functional._foreach_norm(_ours(adapter, (tensors,))[0], order)
        _check(adapter, result, torch._foreach_norm(tensors, order), f"norm {order}")


def test_copying(adapter: EngineAdapter) -> None:
    for sources in ([torch.randn(4), torch.randn(2, 3)], [torch.randn(1), torch.randn(3).double()]):
        targets, given = _ours(adapter, ([torch.zeros(4), torch.zeros(2, 3)], sources))
        adapter.functional._foreach_copy_(targets, given)
        expected = [torch.zeros(4), torch.zeros(2, 3)]
        torch._foreach_copy_(expected, sources)
        _check(adapter, targets, expected, "copy")


def test_gradients_flow_through_what_makes_new_tensors(adapter: EngineAdapter) -> None:
    adapter.context.grad_enabled = True
    tensors = [torch.randn(3, requires_grad=True), torch.randn(2, 2, requires_grad=True)]
    leaves = [adapter.tensor(t, True) for t in tensors]
    functional = adapter.functional
    out = functional._foreach_mul(functional._foreach_add(leaves, 1.0), leaves)
    total = functional.add(functional.sum(out[0]), functional.sum(out[1]))
    result = grad([total], [None], leaves)
    expected = torch.autograd.grad(sum(((t + 1) * t).sum() for t in tensors), tensors)
    _check(adapter, result, expected, "gradient")
    with pytest.raises(AutogradError, match="no_grad"):
        functional._foreach_add_(leaves, 1.0)


def test_lists_that_do_not_fit_are_refused(adapter: EngineAdapter) -> None:
    pair = _ours(adapter, ([torch.ones(2), torch.ones(2)],))[0]
    with pytest.raises(ArgumentError, match="one length"):
        adapter.functional._foreach_add(pair, pair[:1])
    with pytest.raises(ArgumentError, match="at least one"):
        adapter.functional._foreach_sqrt([])
    with pytest.raises(DTypeError, match="_foreach_add_: result type float32 can't be cast to int64"):
        adapter.functional._foreach_add_(_ours(adapter, ([torch.ones(2, dtype=torch.int64)],))[0], 0.5)
    with pytest.raises(ArgumentError, match="does not go into"):
        adapter.functional._foreach_add_(pair, _ours(adapter, ([torch.ones(2, 2)] * 2,))[0])
    with pytest.raises(ArgumentError, match="no expression"):
        adapter.functional._foreach_apply_(pair, "system", pair, [], [], [0.0, 0.0])
    with pytest.raises(ArgumentError, match="no expression"):
        adapter.functional._foreach_apply_(pair, "neg", [], pair, [], [0.0, 0.0])


def test_every_expression_is_known_to_both_devices() -> None:
    assert set(IMPLEMENTED) == set(contracts.EXPRESSIONS)


@pytest.mark.gpu
def test_every_expression_is_known_to_the_gpu() -> None:
    from server.engine.cuda.optim.foreach import EXPRESSIONS

    assert set(EXPRESSIONS) == set(contracts.EXPRESSIONS)
