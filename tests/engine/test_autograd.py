"""The backward pass: accumulation, freeing, second derivatives, captures, gradient layout, modes, memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from server.engine import context
from server.engine import functional as F
from server.engine.autograd.gradients import retain_grad
from server.engine.autograd.inplace import requires_grad
from server.engine.backward import backward, grad
from telegrad_protocol.errors import AutogradError, ShapeError

from ..ops.adapters import EngineAdapter
from ..ops.harness import Comparison


def _leaf(adapter: EngineAdapter, *numbers: float) -> Any:
    return adapter.tensor(torch.tensor(numbers), True)


def _grad_of(adapter: EngineAdapter, leaf: Any) -> Any:
    return adapter.numpy(leaf.autograd.grad).tolist()


def test_gradients_accumulate_in_place(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 1.0, 2.0)
    backward([F.sum(F.mul(leaf, leaf))], [None])
    first = leaf.autograd.grad
    backward([F.sum(F.mul(leaf, 3.0))], [None])
    assert leaf.autograd.grad is first
    assert _grad_of(adapter, leaf) == [5.0, 7.0]


def test_uses_of_one_value_add_up(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 2.0)
    shared = F.mul(leaf, 3.0)
    backward([F.sum(F.add(F.mul(shared, shared), F.add(shared, leaf)))], [None])
    assert _grad_of(adapter, leaf) == [2 * 3 * 6.0 + 3.0 + 1.0]


def test_saved_values_are_freed_by_the_first_pass(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 1.0, 2.0)
    total = F.sum(F.mul(leaf, leaf))
    backward([total], [None], retain_graph=True)
    backward([total], [None])
    with pytest.raises(AutogradError, match="second time"):
        backward([total], [None])
    assert _grad_of(adapter, leaf) == [4.0, 8.0]


def test_a_graph_that_saved_nothing_runs_again(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 1.0, 2.0)
    total = F.sum(F.add(leaf, 1.0))
    backward([total], [None])
    backward([total], [None])
    assert _grad_of(adapter, leaf) == [2.0, 2.0]


def test_shared_parts_of_two_graphs_are_freed_with_the_first(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 1.0)
    shared = F.exp(leaf)
    one, other = F.sum(F.mul(shared, 2.0)), F.sum(F.mul(shared, 3.0))
    backward([one], [None])
    with pytest.raises(AutogradError, match="second time"):
        backward([other], [None])


def test_derivatives_of_derivatives(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 2.0, -1.0)
    cube = F.mul(F.mul(leaf, leaf), leaf)
    (first,) = grad([F.sum(cube)], [None], [leaf], create_graph=True, retain_graph=True)
    (second,) = grad([F.sum(first)], [None], [leaf], create_graph=True, retain_graph=True)
    (third,) = grad([F.sum(second)], [None], [leaf])
    assert adapter.numpy(first).tolist() == [12.0, 3.0]
    assert adapter.numpy(second).tolist() == [12.0, -6.0]
    assert adapter.numpy(third).tolist() == [6.0, 6.0]
    assert not requires_grad(third)


def test_gradients_with_a_graph_accumulate_out_of_place(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 2.0)
    backward([F.sum(F.mul(leaf, leaf))], [None], create_graph=True)
    first = leaf.autograd.grad
    assert requires_grad(first)
    backward([F.sum(F.mul(leaf, leaf))], [None], create_graph=True)
    assert leaf.autograd.grad is not first
    assert _grad_of(adapter, leaf) == [8.0]
    leaf.autograd.grad = first = None  # what create_graph leaves behind is a cycle, in PyTorch too


def test_only_the_chosen_inputs_get_gradients(adapter: EngineAdapter) -> None:
    one, other = _leaf(adapter, 2.0), _leaf(adapter, 3.0)
    middle = F.mul(one, other)
    backward([F.sum(F.mul(middle, middle))], [None], inputs=[one, middle])
    assert _grad_of(adapter, one) == [36.0]
    assert _grad_of(adapter, middle) == [12.0]
    assert other.autograd.grad is None


def test_gradients_are_returned_and_not_accumulated(adapter: EngineAdapter) -> None:
    leaf, unused = _leaf(adapter, 2.0), _leaf(adapter, 3.0)
    total = F.sum(F.mul(leaf, leaf))
    grads = grad([total], [None], [leaf, unused, total], allow_unused=True, retain_graph=True)
    assert adapter.numpy(grads[0]).tolist() == [4.0]
    assert grads[1] is None
    assert adapter.numpy(grads[2]).tolist() == 1.0
    assert leaf.autograd.grad is None
    with pytest.raises(AutogradError, match="allow_unused"):
        grad([total], [None], [unused])


def test_results_keep_their_gradient_when_asked(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 2.0)
    middle = F.mul(leaf, 3.0)
    retain_grad(middle)
    backward([F.sum(F.mul(middle, middle))], [None])
    assert _grad_of(adapter, middle) == [12.0]


def test_the_callers_gradient_is_neither_taken_nor_changed(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 1.0, 2.0)
    seed = adapter.tensor(torch.tensor([1.0, 1.0]))
    result = F.add(leaf, 1.0)
    backward([result], [seed], retain_graph=True)
    assert leaf.autograd.grad.storage is not seed.storage
    backward([result], [seed])
    assert adapter.numpy(seed).tolist() == [1.0, 1.0]
    assert _grad_of(adapter, leaf) == [2.0, 2.0]


@pytest.mark.parametrize("given", ["one", "computed", "own"])
def test_two_leaves_never_share_a_gradient(adapter: EngineAdapter, given: str) -> None:
    """Whether the gradient that both get is expanded, has just been computed, or is the caller's."""
    one, other = _leaf(adapter, 1.0), _leaf(adapter, 2.0)
    total = F.add(one, other)
    result = {"one": F.sum(total), "computed": F.relu(total), "own": total}[given]
    backward([result], [None if given == "one" else adapter.tensor(torch.tensor([1.0]), False)])
    assert one.autograd.grad.storage is not other.autograd.grad.storage
    one.autograd.grad.add_(1.0)
    assert _grad_of(adapter, other) == [1.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 3).t(), lambda: torch.randn(3, 8)[:, ::2], lambda: torch.randn(3, 1).expand(3, 4),
        lambda: torch.randn(4).expand(3, 4), lambda: torch.randn(20)[5:17].view(3, 4), lambda: torch.randn(2, 3, 4)[1],
    ],
)  # fmt: skip
def test_gradients_lie_as_pytorch_lays_them(adapter: EngineAdapter, make: Any) -> None:
    torch.manual_seed(0)
    leaf = make().detach().requires_grad_()
    factor = torch.randn(4, 3).t()
    mine = adapter.tensor(leaf, True)
    (leaf * factor).sum().backward()
    backward([F.sum(F.mul(mine, adapter.tensor(factor)))], [None])
    assert leaf.grad is not None
    Comparison(adapter).compare(mine.autograd.grad, leaf.grad)


def test_nothing_is_recorded_without_gradients(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 1.0)
    with context.grad_mode(False):
        assert not requires_grad(F.mul(leaf, 2.0))
        with context.grad_mode(True):
            assert requires_grad(F.mul(leaf, 2.0))
    adapter.context.set_inference(True)
    try:
        result = F.mul(leaf, 2.0)
        assert not requires_grad(result)
        result.add_(1.0)
        leaf.add_(1.0)
    finally:
        adapter.context.set_inference(False)
    assert requires_grad(F.mul(leaf, result))
    assert adapter.numpy(leaf).tolist() == [2.0]


def test_inference_mode_takes_the_autograd_key_out_of_dispatch(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 1.0)
    adapter.context.trace = trace = []
    F.mul(leaf, 2.0)
    adapter.context.set_inference(True)
    F.mul(leaf, 2.0)
    adapter.context.set_inference(False)
    adapter.context.trace = None
    assert [("Autograd" in line) for line in trace] == [True, False, False]


def test_wrong_starts_are_refused(adapter: EngineAdapter) -> None:
    leaf, plain = _leaf(adapter, 1.0, 2.0), adapter.tensor(torch.ones(2))
    with pytest.raises(AutogradError, match=r"only for scalar outputs, not for float32\[2\]"):
        backward([F.mul(leaf, 2.0)], [None])
    with pytest.raises(AutogradError, match="does not require grad"):
        backward([F.sum(plain)], [None])
    with pytest.raises(ShapeError, match="does not have the shape"):
        backward([F.mul(leaf, 2.0)], [adapter.tensor(torch.ones(3))])
    with pytest.raises(AutogradError, match="does not require grad"):
        grad([F.sum(leaf)], [None], [plain])


def test_results_into_given_tensors_are_not_differentiable(adapter: EngineAdapter) -> None:
    leaf, target = _leaf(adapter, 1.0), adapter.tensor(torch.zeros(1))
    from server.engine.dispatcher import call
    from server.engine.operators import OPERATORS

    with pytest.raises(AutogradError, match=r"functions with out=\.\.\. arguments don't support"):
        call(OPERATORS["mul.out"], (leaf, 2.0), {"out": target})


def test_a_deep_graph_needs_no_deep_stack(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 1.0)
    value = leaf
    for _ in range(20_000):
        value = F.add(value, 0.0)
    backward([F.sum(value)], [None])
    assert _grad_of(adapter, leaf) == [1.0]
    del value


def test_several_roots_in_one_pass(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 3.0)
    middle = F.mul(leaf, leaf)
    backward([F.sum(middle), F.mul(middle, 2.0)], [None, adapter.tensor(torch.ones(1))])
    assert _grad_of(adapter, leaf) == [18.0]


def test_results_whose_shape_the_data_decides_are_differentiable(adapter: EngineAdapter) -> None:
    leaf = _leaf(adapter, 1.0, 2.0, 3.0)
    chosen = F.masked_select(leaf, F.gt(leaf, 1.5))
    backward([F.sum(F.mul(chosen, chosen))], [None])
    assert _grad_of(adapter, leaf) == [0.0, 4.0, 6.0]
