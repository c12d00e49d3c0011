"""``torch::autograd::Function`` in C++: gradients as PyTorch's, what is saved, refused, and freed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad import errors

from .conftest import FOLDER


@pytest.fixture
def functions(kernel_cache: str, tg: Any) -> Any:
    """The extension, in the session of ``tg``; it takes seconds once."""
    from telegrad.utils.cpp_extension import load

    return load("autograd_functions", [FOLDER / "autograd_functions.cpp"], extra_cflags=["-O0"])


def _leaves(tg: Any, rng: np.random.Generator, *shapes: tuple[int, ...]) -> tuple[list[Any], list[torch.Tensor]]:
    arrays = [rng.standard_normal(shape) for shape in shapes]
    ours = [tg.tensor(array, requires_grad=True) for array in arrays]
    return ours, [torch.tensor(array, requires_grad=True) for array in arrays]


def _assert_same(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-10)


def _assert_same_gradients(ours: list[Any], theirs: list[torch.Tensor]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.grad is None) == (other.grad is None)
        if other.grad is not None:
            _assert_same(mine.grad, other.grad)


def test_gradients_are_those_of_pytorch(tg: Any, functions: Any, rng: np.random.Generator) -> None:
    (x, w, b), (px, pw, pb) = _leaves(tg, rng, (3, 4), (2, 4), (2,))
    for _ in range(3):  # the first call waits for what is returned, the others do not
        functions.multiplied(functions.linear(x, w, b), 1.5).pow(2).sum().backward()
        (torch.nn.functional.linear(px, pw, pb) * 3).pow(2).sum().backward()
    functions.linear(x, w.detach()).sum().backward()
    torch.nn.functional.linear(px, pw.detach()).sum().backward()
    _assert_same_gradients([x, w, b], [px, pw, pb])
    assert functions.linear(x, w).requires_grad and not functions.linear(x.detach(), w.detach()).requires_grad
    with tg.no_grad():
        assert not functions.linear(x, w).requires_grad


def test_functions_are_differentiated_twice(tg: Any, functions: Any, rng: np.random.Generator) -> None:
    (x,), (px,) = _leaves(tg, rng, (3, 4))
    for make, of_torch in ((functions.exponential, torch.exp), (tg.ops.cpp_functions.exponential, torch.exp)):
        (first,) = tg.autograd.grad((make(x) * x).sum(), x, create_graph=True)
        (theirs,) = torch.autograd.grad((of_torch(px) * px).sum(), px, create_graph=True)
        _assert_same(first, theirs)
        _assert_same(tg.autograd.grad(first.sum(), x)[0], torch.autograd.grad(theirs.sum(), px)[0])
    assert tg.autograd.gradcheck(functions.exponential, (x,)) and tg.autograd.gradgradcheck(functions.exponential, (x,))


@pytest.mark.parametrize("materialize", [False, True])
def test_results_may_have_no_gradient_and_be_operands(
    tg: Any, functions: Any, materialize: bool, rng: np.random.Generator
) -> None:
    (x,), (px,) = _leaves(tg, rng, (3, 4))
    for reached in ((0,), (2,), (0, 2)):
        ours, theirs = functions.largest(x * 2, 1, materialize), [*(px * 2).max(1, keepdim=True), px * 2]
        assert [result.requires_grad for result in ours] == [True, False, True]
        assert ours[1].tolist() == theirs[1].tolist()
        sum((k + 1) * ours[k].pow(2).sum() for k in reached).backward()
        sum((k + 1) * theirs[k].pow(2).sum() for k in reached).backward()
        _assert_same_gradients([x], [px])


def test_operands_that_were_modified_get_the_gradient_of_before(tg: Any, functions: Any) -> None:
    x = tg.ones(2, 3, requires_grad=True)
    y = x * 2
    z = functions.increment_(y)
    assert z.tolist() == y.tolist() == [[3.0] * 3] * 2
    (z.pow(2)).sum().backward()
    assert x.grad.tolist() == [[36.0] * 3] * 2  # 2 * 3 by pow, 3 by the function, 2 by the product
    with pytest.raises(errors.InplaceError):
        functions.increment_(x)
        x.tolist()


def test_lists_and_optional_tensors_are_operands(tg: Any, functions: Any, rng: np.random.Generator) -> None:
    (x, y, z), (px, py, pz) = _leaves(tg, rng, (3,), (3,), (3,))
    (functions.summed([x, y.detach()], 3, z) * x).sum().backward()
    (((px + py.detach()) * 3 + pz) * px).sum().backward()
    functions.summed([x, y], 2, None).sum().backward()
    ((px + py) * 2).sum().backward()
    _assert_same_gradients([x, y, z], [px, py, pz])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (0, "zero"), (1, "returned an incorrect number of gradients .expected 2, got 0"),
        (2, "returned a gradient different from None at position 2"), (4, "marked as dirty"), (5, "five"),
    ],
)  # fmt: skip
def test_what_goes_wrong_says_so(tg: Any, functions: Any, how: int, message: str) -> None:
    x = tg.ones(2, 3, requires_grad=True)
    with pytest.raises(errors.TelegradError, match=message):
        functions.wrong(x * 2, how).sum().backward()
        x.grad.tolist()
    y = tg.ones(2, 3, requires_grad=True)
    functions.wrong(y, 6).sum().backward()  # a missing gradient behind the last one
    assert y.grad.tolist() == [[1.0] * 3] * 2


def test_what_was_saved_is_guarded_and_freed(tg: Any, functions: Any) -> None:
    x = tg.ones(4, requires_grad=True)
    y = functions.exponential(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    with pytest.raises(errors.AutogradError, match="a second time"):
        y.sum().backward()
        x.grad.tolist()
    w = tg.ones(2, 4, requires_grad=True)
    operand = tg.ones(3, 4)
    result = functions.linear(operand, w)
    operand.add_(1)
    with pytest.raises(errors.AutogradError, match="modified by an inplace operation"):
        result.sum().backward()
        w.grad.tolist()
    big = tg.ones(1 << 16, requires_grad=True)
    functions.exponential(big).sum().backward()
    before = _allocated(tg)
    for _ in range(5):
        functions.exponential(functions.multiplied(big, 2.0))  # a graph that nobody goes through
        functions.exponential(big).sum().backward()
    assert _allocated(tg) <= before


def _allocated(tg: Any) -> int:
    stats = tg.ones(1)._session.query("memory_stats", "cpu")
    return int(stats["allocated_bytes.all.current"])
