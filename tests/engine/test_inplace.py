"""In-place operations, views, and what they do to history: against PyTorch, by hand and by random programs."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from server.engine import context
from server.engine import functional as F
from server.engine.autograd.inplace import requires_grad
from server.engine.backward import backward
from server.engine.value import AutogradMeta
from telegrad_protocol.errors import AutogradError, InplaceError, TelegradError

from ..ops.adapters import EngineAdapter
from ..ops.harness import Comparison
from ..support.draws import drawn


class Theirs:
    """PyTorch under the names of the engine's functions."""

    def __getattr__(self, name: str) -> Any:
        aten = {"slice": torch.ops.aten.slice.Tensor, "select": torch.select, "alias": torch.ops.aten.alias.default}
        if name in aten:
            return aten[name]
        return getattr(torch, name, None) or (lambda tensor, *args: getattr(tensor, name)(*args))


T = Theirs()


def _check(adapter: EngineAdapter, program: Any, *leaves: torch.Tensor) -> None:
    """Gradients of the sum of squares of what ``program`` gives agree with PyTorch's."""
    leaves = tuple(leaf.detach().requires_grad_() for leaf in leaves)
    mine = [adapter.tensor(leaf, True) for leaf in leaves]
    expected = program(T, *leaves)
    result = program(F, *mine)
    Comparison(adapter).compare(result, expected)
    wanted = torch.autograd.grad((expected * expected).sum(), leaves, allow_unused=True)
    got = adapter.grad([F.sum(F.mul(result, result))], [None], mine, False)
    Comparison(adapter)._compare_gradients(got, wanted, "gradient")


def _modify_slice(f: Any, x: Any, w: Any) -> Any:
    y = f.mul(x, 2.0)
    f.slice(y, 0, 1, 3).mul_(w)
    return y


def _read_sibling(f: Any, x: Any, w: Any) -> Any:
    y = f.mul(x, 2.0)
    sibling = f.slice(y, 0, 0, 2)
    f.slice(y, 0, 1, 3).mul_(w)
    return f.mul(sibling, 3.0)


def _chain_of_views(f: Any, x: Any, w: Any) -> Any:
    y = f.mul(x, 2.0)
    f.select(f.transpose(f.slice(y, 0, 1, 4), 0, 1), 0, 2).mul_(f.select(w, 0, 0))
    return f.add(y, f.transpose(f.transpose(y, 0, 1), 0, 1))


def _overlapping_slices(f: Any, x: Any, w: Any) -> Any:
    y = f.mul(x, 2.0)
    first, second = f.slice(y, 0, 0, 3), f.slice(y, 0, 1, 4)
    first.mul_(w)
    second.add_(w)
    first.add_(f.slice(f.mul(second, 1.0), 0, 0, 3))
    return f.add(y, f.mul(y, 2.0))


def _into_constant(f: Any, x: Any, w: Any) -> Any:
    y = f.zeros(4, 5)
    f.select(y, 0, 1).copy_(w)
    f.slice(y, 0, 2, 4).copy_(f.slice(x, 0, 0, 2))
    return y


def _whole_after_view(f: Any, x: Any, w: Any) -> Any:
    y = f.mul(x, 2.0)
    view = f.view(y, -1)
    y.mul_(w)
    view.add_(1.0)
    y.exp_()
    return f.add(f.view(view, 4, 5), y)


def _base_read_before(f: Any, x: Any, w: Any) -> Any:
    y = f.mul(x, 2.0)
    early = f.add(y, 1.0)
    f.select(y, 1, 0).mul_(3.0)
    return f.mul(early, f.mul(y, w))


def _saved_result(f: Any, x: Any, w: Any) -> Any:
    y = f.mul(x, 0.5)
    f.slice(y, 1, 0, 2).exp_()
    return f.mul(y, w)


def _fill_part(f: Any, x: Any, w: Any) -> Any:
    y = f.mul(x, w)
    f.diagonal(y).fill_(2.0)
    f.select(y, 0, 0).zero_()
    return y


def _expanded(f: Any, x: Any, w: Any) -> Any:
    y = f.mul(w, 2.0)
    wide = f.broadcast_to(y, (4, 5))
    y.mul_(3.0)
    return f.mul(wide, x)


def _index_put(f: Any, x: Any, w: Any) -> Any:
    y = f.mul(x, 2.0)
    f.slice(y, 0, 1, 4).index_add_(0, f.arange(2), f.slice(f.mul(x, w), 0, 0, 2))
    return y


@pytest.mark.parametrize(
    "program",
    [
        _modify_slice, _read_sibling, _chain_of_views, _overlapping_slices, _into_constant, _whole_after_view,
        _base_read_before, _saved_result, _fill_part, _expanded, _index_put,
    ],
)  # fmt: skip
def test_history_is_rebased(adapter: EngineAdapter, program: Any) -> None:
    torch.manual_seed(0)
    _check(adapter, program, torch.randn(4, 5), torch.randn(5))


def test_leaves_that_require_grad_are_not_modified(adapter: EngineAdapter) -> None:
    leaf = adapter.tensor(torch.ones(3), True)
    with pytest.raises(InplaceError, match="mul_: a leaf"):
        leaf.mul_(2.0)
    with pytest.raises(InplaceError, match="a view of a leaf"):
        F.select(leaf, 0, 1).mul_(2.0)
    with context.grad_mode(False):
        leaf.mul_(2.0)
        F.select(leaf, 0, 1).mul_(2.0)
    assert adapter.numpy(leaf).tolist() == [2.0, 4.0, 2.0]
    assert leaf.autograd.grad_fn is None


def test_leaves_that_are_views_are_not_modified(adapter: EngineAdapter) -> None:
    leaf = F.view(adapter.tensor(torch.ones(4)), (2, 2))
    leaf.autograd = AutogradMeta(requires_grad=True)
    for target in (leaf, F.select(leaf, 0, 1)):
        with pytest.raises(InplaceError, match="leaf Variable that requires grad"):
            target.mul_(2.0)


def test_plain_tensors_take_on_history_by_modification(adapter: EngineAdapter) -> None:
    plain, leaf = adapter.tensor(torch.ones(3)), adapter.tensor(torch.ones(3), True)
    plain.mul_(leaf)
    assert requires_grad(plain)


def test_values_saved_for_backward_are_guarded_by_their_version(adapter: EngineAdapter) -> None:
    leaf, other = adapter.tensor(torch.ones(3), True), adapter.tensor(torch.ones(3))
    product = F.mul(leaf, other)
    other.add_(1.0)
    with pytest.raises(
        AutogradError, match=r"modified by an inplace operation: float32\[3\].*version 1; expected version 0"
    ):
        backward([F.sum(product)], [None])
    exponential = F.exp(leaf)
    exponential.add_(1.0)
    with pytest.raises(AutogradError, match="output 0 of ExpBackward0"):
        backward([F.sum(exponential)], [None])


def test_detached_views_share_memory_and_version_but_no_history(adapter: EngineAdapter) -> None:
    leaf = adapter.tensor(torch.ones(3), True)
    result = F.mul(leaf, leaf)
    apart = F.detach(leaf)
    assert apart.storage is leaf.storage
    apart.add_(1.0)
    assert not requires_grad(apart)
    with pytest.raises(AutogradError, match="version 1"):
        backward([F.sum(result)], [None])


def test_a_detached_tensor_keeps_out_of_its_origins_later_history(adapter: EngineAdapter) -> None:
    leaf = adapter.tensor(torch.ones(3), True)
    result = F.mul(leaf, 2.0)
    apart = F.detach(result)
    result.mul_(leaf)
    assert not requires_grad(apart)
    assert adapter.numpy(apart).tolist() == [2.0, 2.0, 2.0]


def test_views_made_without_gradients_are_not_modified_with_them(adapter: EngineAdapter) -> None:
    leaf = adapter.tensor(torch.ones(3, 2), True)
    result = F.mul(leaf, 2.0)
    with context.grad_mode(False):
        view = F.select(result, 0, 0)
    with pytest.raises(InplaceError, match="gradients disabled"):
        view.mul_(leaf.select(0, 0))
    result.mul_(2.0)
    with pytest.raises(AutogradError, match="make the view anew"):
        F.mul(view, 2.0)


def test_one_of_several_views_is_not_modified(adapter: EngineAdapter) -> None:
    leaf = adapter.tensor(torch.ones(4), True)
    part = F.split(F.mul(leaf, 2.0), 2)[0]
    with pytest.raises(InplaceError, match="gives several"):
        part.mul_(2.0)
    with context.grad_mode(False):
        part.mul_(2.0)


def test_elements_that_share_memory_are_not_modified(adapter: EngineAdapter) -> None:
    with pytest.raises(InplaceError, match="share memory"):
        F.expand(adapter.tensor(torch.ones(1)), 3).mul_(2.0)


def test_operations_without_derivative_cut_the_history_of_what_they_overwrite(adapter: EngineAdapter) -> None:
    leaf = adapter.tensor(torch.tensor([-1.0, 2.0, 3.0]), True)
    result = F.mul(leaf, 2.0)
    F.slice(result, 0, 1, 2).logical_not_()
    backward([F.sum(result)], [None])
    assert adapter.numpy(leaf.autograd.grad).tolist() == [2.0, 0.0, 2.0]


def test_retained_gradients_follow_the_modified_value(adapter: EngineAdapter) -> None:
    from server.engine.autograd.gradients import retain_grad

    leaf = adapter.tensor(torch.ones(2), True)
    result = F.mul(leaf, 2.0)
    retain_grad(result)
    result.mul_(5.0)
    backward([F.sum(F.mul(result, 3.0))], [None])
    assert adapter.numpy(result.autograd.grad).tolist() == [3.0, 3.0]
    assert adapter.numpy(leaf.autograd.grad).tolist() == [30.0, 30.0]


def test_a_forward_pass_that_is_never_run_backwards_leaves_nothing(adapter: EngineAdapter) -> None:
    leaf = adapter.tensor(torch.ones(4, 4), True)
    result = F.mul(leaf, 2.0)
    view = F.select(result, 0, 0)
    product = F.mul(view, view)
    view.add_(product)
    result.mul_(F.exp(result))
    F.slice(result, 0, 1, 3).add_(F.mul(F.slice(result, 0, 0, 2), 2.0))


class Program:
    """A random program of views, in-place and ordinary operations, the same for PyTorch and for the engine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.steps: list[str] = []

    def run(self, theirs: list[torch.Tensor], ours: list[Any], steps: int) -> None:
        for _ in range(steps):
            step = self.random.choice(
                [self._view, self._view, self._ordinary, self._modify, self._modify, self._assign, self._cut]
            )
            step(theirs, ours)
            for tensor in theirs:
                _ = tensor.grad_fn  # PyTorch brings a stale view's history up to date only when it is asked for

    def _pick(self, theirs: list[torch.Tensor]) -> int:
        return self.random.randrange(len(theirs))

    def _view(self, theirs: list[torch.Tensor], ours: list[Any]) -> None:
        at = self._pick(theirs)
        tensor = theirs[at]
        if not tensor.ndim:
            return
        dim = self.random.randrange(tensor.ndim)
        size = tensor.shape[dim]
        start = self.random.randrange(size)
        name, args = self.random.choice(
            [
                ("select", (dim, start)), ("slice", (dim, start, self.random.randint(start + 1, size))),
                ("transpose", (dim, 0)), ("unsqueeze", (dim,)), ("slice", (dim, 0, size, 2)), ("alias", ()),
                ("flatten", ()), ("diagonal", ()), ("unfold", (dim, 1, 1)), ("detach", ()), ("reshape", ((-1,),)),
            ]
        )  # fmt: skip
        if name == "diagonal" and tensor.ndim < 2:
            return
        self._both(name, theirs, ours, at, args)

    def _ordinary(self, theirs: list[torch.Tensor], ours: list[Any]) -> None:
        name, args = self.random.choice([("mul", (0.5,)), ("sin", ()), ("add", (1.0,)), ("neg", ()), ("tanh", ())])
        self._both(name, theirs, ours, self._pick(theirs), args)

    def _modify(self, theirs: list[torch.Tensor], ours: list[Any]) -> None:
        name, args = self.random.choice(
            [("mul_", (0.5,)), ("sin_", ()), ("add_", (1.0,)), ("zero_", ()), ("tanh_", ()), ("neg_", ())]
        )
        self._both(name, theirs, ours, self._pick(theirs), args, keep=False)

    def _assign(self, theirs: list[torch.Tensor], ours: list[Any]) -> None:
        target = self._pick(theirs)
        fitting = [i for i, t in enumerate(theirs) if t.shape == theirs[target].shape and _apart(t, theirs[target])]
        if fitting:
            source = self.random.choice(fitting)
            name = self.random.choice(["copy_", "mul_", "add_", "sub_"])
            self._both(name, theirs, ours, target, (), keep=False, other=source)

    def _cut(self, theirs: list[torch.Tensor], ours: list[Any]) -> None:
        """Modify without gradients."""
        at = self._pick(theirs)
        self.steps.append(f"no_grad: {at}.mul_(0.5)")
        with torch.no_grad():
            theirs[at].mul_(0.5)
        with context.grad_mode(False):
            F.mul_(ours[at], 0.5)

    def _both(
        self, name: str, theirs: list[torch.Tensor], ours: list[Any], at: int, args: tuple[Any, ...], *,
        keep: bool = True,
        other: int | None = None,
    ) -> None:  # fmt: skip
        self.steps.append(f"{len(theirs)} = {at}.{name}{args} {'' if other is None else other}")
        mine = (ours[at], *args) if other is None else (ours[at], ours[other])
        reference = (theirs[at], *args) if other is None else (theirs[at], theirs[other])
        try:
            expected = getattr(T, name)(*reference)
        except RuntimeError:
            with pytest.raises(TelegradError):
                getattr(F, name)(*mine)
            return
        result = getattr(F, name)(*mine)
        if keep:
            theirs.append(expected)
            ours.append(result)


def _apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()


@pytest.mark.parametrize("seed", drawn([pytest.param(n, id=str(n)) for n in range(400)], 40))
def test_random_programs_agree_with_pytorch(adapter: EngineAdapter, seed: int) -> None:
    torch.manual_seed(seed)
    leaves = [torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)]
    theirs = [leaves[0] * 1.0, leaves[1] * 1.0, torch.randn(3, 4), torch.randn(3, 4).t()]
    mine = [adapter.tensor(leaf, True) for leaf in leaves]
    ours = [F.mul(mine[0], 1.0), F.mul(mine[1], 1.0), adapter.tensor(theirs[2]), adapter.tensor(theirs[3])]
    program = Program(seed)
    try:
        program.run(theirs, ours, 20)
        _compare_states(adapter, theirs, ours)
        _compare_gradients(adapter, leaves, mine, theirs, ours)
    except (AssertionError, pytest.fail.Exception) as error:
        raise AssertionError("\n".join([f"seed {seed}", *program.steps, str(error)])) from None


def _compare_states(adapter: EngineAdapter, theirs: list[torch.Tensor], ours: list[Any]) -> None:
    for number, (expected, result) in enumerate(zip(theirs, ours, strict=True)):
        Comparison(adapter).compare(result, expected.detach())
        assert requires_grad(result) == expected.requires_grad, (
            f"value {number}: requires_grad is {expected.requires_grad} in PyTorch"
        )


def _compare_gradients(
    adapter: EngineAdapter, leaves: list[torch.Tensor], mine: list[Any], theirs: list[Any], ours: list[Any]
) -> None:
    """Every value's gradient; where PyTorch refuses, because a saved value was modified, so do we."""
    for expected, result in zip(theirs, ours, strict=True):
        if not expected.requires_grad:
            continue
        weights = torch.randn(expected.shape)
        try:
            wanted = torch.autograd.grad(expected, leaves, weights, allow_unused=True, retain_graph=True)
        except RuntimeError:
            with pytest.raises(AutogradError):
                adapter.grad([result], [adapter.tensor(weights)], mine, False)
            continue
        got = adapter.grad([result], [adapter.tensor(weights)], mine, False)
        Comparison(adapter)._compare_gradients(got, wanted, "gradient")
