"""Products of vectors and matrices: what the operator database does not ask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from telegrad_protocol.errors import AutogradError, DTypeError, InplaceError, ShapeError
from tests.gpus import ALL_DEVICES

from .adapters import EngineAdapter
from .harness import Comparison


@pytest.fixture(params=ALL_DEVICES)
def adapter(request: pytest.FixtureRequest) -> EngineAdapter:
    return EngineAdapter(request.param)


SHAPES = [
    ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((3, 4), (4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)), ((2, 3, 4),
    (4, 5)),
    ((3, 4), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)), ((6, 1, 3, 4), (2, 4, 5)), ((1, 3, 4), (6, 4, 5)), ((2, 3, 4), (1, 4,
    5)),
    ((5, 2, 3, 4), (4,)), ((5, 2, 3, 4), (4, 1)), ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((0,), (0,)), ((2, 0, 4), (4, 5)),
    ((0, 3, 4), (0, 4, 5)), ((3, 4), (0, 4, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_matmul_agrees_in_all_broadcasts_and_layouts(
    adapter: EngineAdapter, left: tuple[int, ...], right: tuple[int, ...], turned: tuple[bool, bool]
) -> None:
    torch.manual_seed(0)

    def made(shape: tuple[int, ...], turn: bool) -> torch.Tensor:
        if turn and len(shape) > 1:
            return torch.randn(*shape[:-2], shape[-1], shape[-2]).mT.requires_grad_()
        return torch.randn(shape, requires_grad=True)

    args = made(left, turned[0]), made(right, turned[1])
    Comparison(adapter).run(torch.matmul, adapter.functional.matmul, args, {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, torch.bfloat16, torch.complex64], ids=str)
def test_products_take_strided_and_repeated_operands(adapter: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    base = (torch.randn(8, 12) * 5).to(dtype)
    operands = [base[:, ::2], base[::2, :6], base[1:2, :6].expand(8, 6), base[:, :1].expand(8, 6), base[:6].t()[:8, :]]
    for left in operands:
        for right in operands:
            Comparison(adapter).run(torch.mm, adapter.functional.mm, (left, right.t()), {}, gradients=False)


def test_linear_gradient_is_in_the_weights_own_layout(adapter: EngineAdapter) -> None:
    x, weight = (adapter.tensor(torch.randn(s), requires_grad=True) for s in ((6, 4), (3, 4)))
    out = adapter.functional.linear(x, weight)
    (grad,) = adapter.grad([out], [adapter.tensor(torch.ones(6, 3))], [weight], False)
    assert grad.meta.strides == (4, 1)


@pytest.mark.parametrize("shape", [(6, 4), (2, 3, 4), (4,), (0, 4), (5, 0)])
@pytest.mark.parametrize("bias", [None, (3,), (1,), ()])
def test_linear_agrees_for_all_inputs(
    adapter: EngineAdapter, shape: tuple[int, ...], bias: tuple[int, ...] | None
) -> None:
    torch.manual_seed(0)
    args = [torch.randn(shape, requires_grad=True), torch.randn(3, shape[-1], requires_grad=True)]
    if bias is not None:
        args.append(torch.randn(bias, requires_grad=True))
    Comparison(adapter).run(torch.nn.functional.linear, adapter.functional.linear, args, {})


@pytest.mark.parametrize("use_gelu", [False, True])
@pytest.mark.parametrize("added", [(5,), (3, 5), ()])
def test_activated_sums_agree_with_their_parts(
    adapter: EngineAdapter, added: tuple[int, ...], use_gelu: bool
) -> None:  # fmt: skip
    torch.manual_seed(0)
    args = [torch.randn(shape, requires_grad=True) for shape in (added, (3, 4), (4, 5))]

    def theirs(*operands: torch.Tensor, beta: float, alpha: float) -> torch.Tensor:
        total = torch.addmm(*operands, beta=beta, alpha=alpha)
        functional = torch.nn.functional
        return functional.gelu(total, approximate="tanh") if use_gelu else functional.relu(total)

    def ours(*operands: Any, beta: float, alpha: float) -> Any:
        return adapter.functional._addmm_activation(*operands, beta=beta, alpha=alpha, use_gelu=use_gelu)

    for beta, alpha in ((1.0, 1.0), (2.0, 0.5)):
        Comparison(adapter, slack=4.0).run(theirs, ours, args, {"beta": beta, "alpha": alpha})


def test_nothing_of_the_input_counts_with_beta_zero(adapter: EngineAdapter) -> None:
    nan = torch.full((2, 2), float("nan"))
    ones = torch.ones(2, 2)
    found = adapter.functional.addmm(*map(adapter.tensor, (nan, ones, ones)), beta=0)
    assert adapter.numpy(found).tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_products_propagate_nan_and_infinity(adapter: EngineAdapter) -> None:
    left = torch.tensor([[float("nan"), 1.0], [float("inf"), 0.0]])
    right = torch.tensor([[0.0, 1.0], [1.0, -1.0]])
    Comparison(adapter).run(torch.mm, adapter.functional.mm, (left, right), {}, gradients=False)


def _into(name: str, target: Any, *args: Any) -> Any:
    """The ``out=`` form."""
    operator = OPERATORS[f"{name}.out"]
    return dispatch(operator, operator.op.bind(args, {"out": target}))


def test_inplace_and_out_forms_write_where_they_are_told(adapter: EngineAdapter) -> None:
    torch.manual_seed(0)
    a, b, c = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
    for name in ("mm", "matmul"):
        target = adapter.tensor(torch.zeros(5, 3).t())
        assert _into(name, target, adapter.tensor(a), adapter.tensor(b)) is target
        np.testing.assert_allclose(adapter.numpy(target), (a @ b).numpy(), rtol=1e-5, atol=1e-6)
    mine = adapter.tensor(c)
    adapter.functional.addmm_(mine, adapter.tensor(a), adapter.tensor(b), beta=2)
    np.testing.assert_allclose(adapter.numpy(mine), torch.addmm(c, a, b, beta=2).numpy(), rtol=1e-5, atol=1e-6)
    assert mine.storage.version == 1


def test_out_form_of_a_composite_refuses_differentiation(adapter: EngineAdapter) -> None:
    a = adapter.tensor(torch.ones(2, 2), requires_grad=True)
    with pytest.raises(AutogradError, match=r"matmul\(\): functions with out=... arguments don't support"):
        _into("matmul", adapter.tensor(torch.zeros(2, 2)), a, a)


REFUSALS: list[tuple[str, list[torch.Tensor], dict[str, Any], type[Exception], str]] = [
    (
        "mm",
        [torch.ones(2, 3), torch.ones(2, 3)],
        {},
        ShapeError,
        r"mm: cannot multiply float32\[2,3\] by float32\[2,3\]",
    ),
    ("mm", [torch.ones(2, 2), torch.ones(2, 2).double()], {}, DTypeError, "must have the same dtype"),
    ("mm", [torch.ones(2, 2).bool()] * 2, {}, DTypeError, "mm: not defined for bool"),
    ("bmm", [torch.ones(2, 3, 4), torch.ones(3, 4, 5)], {}, ShapeError, "batch by batch"),
    ("mv", [torch.ones(2, 3), torch.ones(2)], {}, ShapeError, r"mv: cannot multiply"),
    ("dot", [torch.ones(3), torch.ones(4)], {}, ShapeError, "inconsistent tensor size"),
    ("matmul", [torch.tensor(1.0), torch.ones(2)], {}, ShapeError, "at least one dimension"),
    ("matmul", [torch.ones(3, 2, 4), torch.ones(2, 4, 5)], {}, ShapeError, "do not broadcast"),
    ("addmm", [torch.ones(3), torch.ones(2, 2), torch.ones(2, 2)], {}, ShapeError, "addmm: shapes"),
    ("addmm", [torch.ones(2, 2)] * 3, {"alpha": 1j}, DTypeError, "alpha must be real"),
    ("linear", [torch.ones(2, 3), torch.ones(4, 2)], {}, ShapeError, "transpose of the weight"),
    ("linear", [torch.ones(2, 3), torch.ones(4, 3), torch.ones(3)], {}, ShapeError, "linear: "),
    ("outer", [torch.ones(2, 2), torch.ones(2)], {}, ShapeError, "two vectors"),
    ("cross", [torch.ones(2, 2), torch.ones(2, 2)], {}, ValueError, "no dimension of size 3"),
    ("trace", [torch.ones(2)], {}, ShapeError, "expected a matrix"),
]


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "kind", "message"), REFUSALS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_operands_that_do_not_fit_are_refused(
    adapter: EngineAdapter,
    name: str,
    args: list[torch.Tensor],
    kwargs: dict[str, Any],
    kind: type[Exception],
    message: str,
) -> None:
    with pytest.raises(kind, match=message):
        adapter.function(name)(*map(adapter.tensor, args), **kwargs)


def test_inplace_product_into_repeated_memory_is_refused(adapter: EngineAdapter) -> None:
    with pytest.raises(InplaceError, match="addmm_: several elements of the written"):
        adapter.functional.addmm_(
            adapter.tensor(torch.ones(1, 2).expand(2, 2)), *[adapter.tensor(torch.ones(2, 2))] * 2
        )


@pytest.mark.parametrize("dims", [(0,), (-1,), None])
def test_a_number_is_solved_along_the_dimensions_that_it_may_have(tg: Any, rng: np.random.Generator, dims: Any) -> None:
    a, b = rng.uniform(1, 2, 2)
    expected = torch.linalg.tensorsolve(torch.tensor(a), torch.tensor(b), dims)
    assert tg.linalg.tensorsolve(tg.tensor(a), tg.tensor(b), dims).item() == pytest.approx(expected.item())
    with pytest.raises(IndexError, match="out of range"):
        tg.linalg.tensorsolve(tg.tensor(a), tg.tensor(b), (1,)).item()
