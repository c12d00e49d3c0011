"""``cond`` and ``while_loop``: eager and in compiled functions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest


@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_predicate_chooses(tg: Any, is_compiled: bool) -> None:
    def function(x: Any, limit: Any) -> Any:
        return tg.cond(x.sum() > limit, lambda a, b: a + b, lambda a, b: a - b, (x, x * 2))

    function = tg.compile(function) if is_compiled else function
    for limit in (1.0, 5.0, 1.0, 5.0, 1.0):
        assert function(tg.ones(2), limit).tolist() == ([3.0, 3.0] if limit == 1.0 else [-1.0, -1.0])
    assert tg.cond(False, lambda: 1, lambda: 2) == 2


def test_gradients_flow_through_what_was_chosen(tg: Any) -> None:
    x = tg.tensor([2.0], requires_grad=True)
    tg.cond(x > 1, lambda a: a * a, lambda a: a, [x]).backward()
    assert x.grad.item() == 4.0


def _gradients_of_choices(lib: Any, is_compiled: bool) -> list[Any]:
    """Return gradients of operands and of what closures hold, for either choice; ``None`` where there is none."""
    weights = [lib.tensor([1.0, float("inf")], requires_grad=True) for _ in range(4)]
    holder, layer = SimpleNamespace(kept=[weights[1]]), lib.nn.Linear(2, 2)

    def chosen(x: Any, y: Any) -> Any:
        return x * weights[0] * 2, x.sum()

    def other(x: Any, y: Any) -> Any:
        return layer(x + holder.kept[0] - y), lib.ones(())

    def function(x: Any, y: Any) -> Any:
        return lib.cond(x[0] > 0, chosen, other, (x, y))

    called, gradients = lib.compile(function, backend="eager") if is_compiled else function, []
    for first in (1.0, -1.0, 2.0, -2.0):
        operands = [lib.tensor([first, 2.0], requires_grad=True), weights[2].detach().clone().requires_grad_()]
        leaves = [*operands, *weights, *layer.parameters()]
        for leaf in leaves:
            leaf.grad = None
        made, total = called(*operands)
        gradients.append(total.requires_grad)
        made.nan_to_num().sum().backward()
        gradients += [leaf.grad if leaf.grad is None else leaf.grad.shape for leaf in leaves]
        gradients += [bool((leaf.grad == 0).all()) for leaf in leaves if leaf.grad is not None]
    return gradients


@pytest.mark.parametrize("is_compiled", [False, True])
def test_what_was_not_used_has_zeros_for_a_gradient_as_in_pytorch(tg: Any, is_compiled: bool) -> None:
    torch = pytest.importorskip("torch")
    assert _gradients_of_choices(tg, is_compiled) == _gradients_of_choices(torch, False)


def test_a_function_is_mapped_over_slices_of_a_tree(tg: Any) -> None:
    from telegrad._programs.private.higher_order import map as mapped

    xs = {"a": tg.arange(6.0).view(3, 2).requires_grad_(), "b": tg.arange(3.0)}
    both, (sums,) = mapped(lambda x, y: (x["a"] * y, [x["b"] + x["a"].sum()]), xs, tg.tensor([2.0, 3.0]))
    assert both.tolist() == [[0.0, 3.0], [4.0, 9.0], [8.0, 15.0]] and sums.tolist() == [1.0, 6.0, 11.0]
    both.sum().backward()
    assert xs["a"].grad.tolist() == [[2.0, 3.0]] * 3


def test_a_loop_goes_on_while_it_is_told_to(tg: Any) -> None:
    count, total = tg.while_loop(
        lambda n, total: n < 5, lambda n, total: (n + 1, total + n), (tg.tensor(0), tg.tensor(0.0))
    )
    assert (count.item(), total.item()) == (5, 10.0)
    assert tg.while_loop(lambda n: n > 0, lambda n: n - 1, (0,)) == (0,)


def test_what_they_are_given_is_checked(tg: Any) -> None:
    with pytest.raises(ValueError, match="bool or single-element tensor, but got one of shape"):
        tg.cond(tg.ones(2) > 0, lambda: 1, lambda: 2)
    with pytest.raises(RuntimeError, match="Expected pred to be bool or tensor, but got yes"):
        tg.cond("yes", lambda: 1, lambda: 2)
    with pytest.raises(RuntimeError, match="Expect operands to be a tuple"):
        tg.cond(True, lambda: 1, lambda: 2, tg.ones(1))
    with pytest.raises(ValueError, match="takes 1 values and has returned 2"):
        tg.while_loop(lambda n: True, lambda n: (n, n), (tg.ones(1),))


@pytest.mark.parametrize(
    "other",
    [lambda a: a.sum(), lambda a: a.long(), lambda a: (a, a), lambda a: 1.0],
    ids=["shape", "type", "two", "no tensor"],
)
def test_a_program_selects_only_of_what_is_alike(tg: Any, other: Any) -> None:
    class Choice(tg.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return tg.cond(x.sum() > 0, lambda a: a * 2, other, (x,))

    with pytest.raises(tg.errors.ArgumentError, match="cond: true_fn returns"):
        tg.export.export(Choice(), (tg.ones(3),))


def _refused(lib: Any) -> list[tuple[str, Exception | None]]:
    """Return what each of some wrong calls of the operators raises, by the argument that is wrong."""
    prefix = "torch" if lib.__name__ == "torch" else "telegrad"
    if prefix == "torch":
        from torch._higher_order_ops.associative_scan import associative_scan
        from torch._higher_order_ops.map import map as mapped
        from torch._higher_order_ops.scan import scan
    else:
        from telegrad._programs.private.higher_order import associative_scan, scan
        from telegrad._programs.private.higher_order import map as mapped
    x, first = lib.arange(12.0).view(4, 3), lib.zeros(3)

    def both(a: Any, b: Any) -> Any:
        return a + b, a * b

    def generic(function: Any, xs: Any, dim: int = 0, **options: Any) -> Any:
        return associative_scan(function, xs, dim, **{"combine_mode": "generic", **options})

    calls = {
        "scan of no function": lambda: scan(3, first, x),
        "scan from nothing": lambda: scan(both, [], x),
        "scan of no slices": lambda: scan(both, first, lib.ones(0, 3)),
        "scan of a dimension": lambda: scan(both, first, x, dim=5),
        "scan in a direction": lambda: scan(both, first, x, reverse=3),
        "scan with another carry": lambda: scan(lambda c, s: ((c + s).sum(), s * 2), first, x),
        "scan with one result": lambda: scan(lambda c, s: c + s, first, x),
        "associative scan of no function": lambda: generic(3, x),
        "associative scan of a dimension": lambda: generic(lambda a, b: a + b, x, 7),
        "associative scan in a direction": lambda: generic(lambda a, b: a + b, x, reverse=1),
        "associative scan in a mode": lambda: generic(lambda a, b: a + b, x, combine_mode="odd"),
        "associative scan of no slices": lambda: generic(lambda a, b: a + b, lib.ones(0, 3)),
        "map of no slices": lambda: mapped(lambda a: a + 1, lib.ones(0, 2)),
        "map of a number": lambda: mapped(lambda a: a + 1, 3),
        "map of two lengths": lambda: mapped(lambda a: a[0] + a[1], [lib.ones(2, 2), lib.ones(3, 2)]),
        "map to numbers": lambda: mapped(lambda a: 3, lib.ones(2)),
        "cond of no function": lambda: lib.cond(lib.tensor(True), 3, lambda a: a, (x,)),
        "cond of numbers": lambda: lib.cond(lib.tensor(True), lambda a: x + a, lambda a: x - a, (1.5,)),
        "cond of a word": lambda: lib.cond("yes", lambda a: a + 1, lambda a: a - 1, (x,)),
        "a loop without a function": lambda: lib.while_loop(3, lambda a: (a,), (x,)),
        "a loop that changes types": lambda: lib.while_loop(lambda a: a.sum() < 99, lambda a: (a.double() + 1,), (x,)),
        "a loop that changes shapes": lambda: lib.while_loop(lambda a: a.sum() < 99, lambda a: (a[1:] + 9,), (x,)),
    }
    raised = []
    for name, call in calls.items():
        try:
            call()
            raised.append((name, None))
        except Exception as error:
            raised.append((name, error))
    return raised


def test_what_operators_refuse_is_what_pytorch_refuses(tg: Any) -> None:
    torch = pytest.importorskip("torch")
    for (name, ours), (_, theirs) in zip(_refused(tg), _refused(torch), strict=True):
        assert ours is not None and theirs is not None, name
        builtin = next(kind for kind in type(theirs).__mro__ if kind.__module__ == "builtins")
        assert isinstance(ours, builtin), (name, ours, theirs)
        if not type(theirs).__module__.startswith("torch"):  # what its tracer says is about its tracer
            said = str(theirs).split("that only consists")[0].split(" Got shapes")[0]
            assert said in str(ours), (name, ours, theirs)


def test_a_loop_returns_the_sequence_that_it_was_given(tg: Any) -> None:
    assert tg.while_loop(lambda n: n > 0, lambda n: n - 1, [2]) == [0]


@pytest.mark.parametrize("is_compiled", [False, True])
def test_each_element_of_a_batch_has_its_own_predicate(tg: Any, is_compiled: bool) -> None:
    def one(pred: Any, x: Any) -> Any:
        return tg.cond(pred, lambda a: {"y": a * 2}, lambda a: {"y": a - 1}, (x,))["y"]

    function = tg.vmap(one)
    function = tg.compile(function) if is_compiled else function
    for _ in range(4):
        x = tg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        made = function(tg.tensor([True, False]), x)
        made.sum().backward()
        assert made.tolist() == [[2.0, 4.0], [2.0, 3.0]] and x.grad.tolist() == [[2.0, 2.0], [1.0, 1.0]]


@pytest.mark.parametrize("reverse", [False, True])
def test_outputs_of_a_scan_lie_along_its_dimension(tg: Any, reverse: bool) -> None:
    torch = pytest.importorskip("torch")
    from torch._higher_order_ops.scan import scan as theirs

    from telegrad._programs.private.higher_order import scan as ours

    def combine(carry: Any, part: Any) -> Any:
        return carry * 2 + part.sum(), (part * carry, part.sum())

    for dim in (0, 1, -1):
        made, wanted = [
            scan(combine, lib.tensor(1.0), lib.arange(24.0).view(4, 3, 2), dim=dim, reverse=reverse)
            for lib, scan in ((tg, ours), (torch, theirs))
        ]
        assert made[0].item() == wanted[0].item()
        for one, other in zip(made[1], wanted[1], strict=True):
            assert one.tolist() == other.tolist() and one.stride() == other.stride()


def test_foreach_map_goes_through_lists_as_pytorch_does(tg: Any) -> None:
    torch = pytest.importorskip("torch")
    from torch._higher_order_ops.foreach_map import foreach_map as theirs

    from telegrad._programs.private.higher_order import foreach_map as ours

    def results(lib: Any, foreach_map: Any) -> list[Any]:
        lists = [lib.arange(2.0), lib.ones(3)], (lib.ones(2), lib.full((3,), 2.0))
        made = [
            *foreach_map(lib.add, *lists, alpha=2), *foreach_map(lib.lerp, *lists, 0.25),
            *foreach_map(lib.mul, 3, lists[0]), *foreach_map(lib.add, lists[0], lists[1][:1]),
            foreach_map(lib.add, lib.ones(1), 2),
        ]  # fmt: skip
        return [one.tolist() for one in made]

    assert results(tg, ours) == results(torch, theirs) and ours(tg.neg, []) == theirs(torch.neg, []) == []
