"""``cond`` and ``while_loop``: eager and in compiled functions."""

from __future__ import annotations

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
    with pytest.raises(ValueError, match="one element, got one of shape"):
        tg.cond(tg.ones(2) > 0, lambda: 1, lambda: 2)
    with pytest.raises(TypeError, match="expected a bool or a tensor as predicate, not str"):
        tg.cond("yes", lambda: 1, lambda: 2)
    with pytest.raises(TypeError, match="tuple or list of operands"):
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
