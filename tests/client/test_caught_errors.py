"""Errors that only the server finds are raised at their call, where the program would catch them there."""

from __future__ import annotations

import contextlib
import unittest
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from telegrad._session.catching.clauses import Clause


def round_trips(tg: Any, run: Callable[[], Any]) -> int:
    """Return how often the program has waited for the server in ``run``."""
    before = tg.wire_stats().round_trips
    run()
    return int(tg.wire_stats().round_trips - before)


def out_of_range(tg: Any) -> Any:
    return tg.arange(3.0)[tg.tensor([5])]


def singular(tg: Any) -> Any:
    return tg.linalg.inv(tg.zeros(2, 2))


def kinds(tg: Any) -> tuple[type[Exception], ...]:
    return KeyError, tg.linalg.LinAlgError


def second_pass(tg: Any) -> None:
    loss = tg.ones(2, requires_grad=True).exp().sum()
    loss.backward()
    loss.backward()


LATE = [
    out_of_range,
    singular,
    second_pass,
    lambda tg: tg.nn.functional.cross_entropy(tg.zeros(2, 3), tg.tensor([0, 3])),
    lambda tg: tg.zeros(3).scatter_(0, tg.tensor([5]), 1.0),
    lambda tg: tg.tensor([1]) // tg.tensor([0]),
    lambda tg: tg.empty(1 << 50),
    lambda tg: tg.quantile(tg.ones(3), tg.tensor([1.5])),
    lambda tg: tg.nn.functional.binary_cross_entropy(tg.full((1,), 0.5), tg.full((1,), 1.5)),
    lambda tg: tg.distributions.Normal(tg.zeros(1), -tg.ones(1)),
    lambda tg: tg.distributions.Uniform(tg.ones(1), tg.zeros(1)),
    lambda tg: tg.distributions.Bernoulli(tg.ones(1)).log_prob(tg.full((1,), 2.0)),
    lambda tg: (tg.ones(4, requires_grad=True) * 2).chunk(2)[0][:1].add_(1),
]


@pytest.mark.parametrize("fails", LATE)
def test_a_clause_catches_what_its_block_has_called(tg: Any, fails: Callable[[Any], Any]) -> None:
    caught = False
    try:
        fails(tg)
    except RuntimeError:
        caught = True
    assert caught


def test_the_clause_that_names_the_error_catches_it(tg: Any) -> None:
    """An inner clause for another error, blocks, ``finally`` and a function between leave it to the outer clause."""
    passed: list[str] = []

    def middle() -> None:
        try:
            try:
                with tg.no_grad():
                    singular(tg)
            except (KeyError, OSError):
                passed.append("another error")
        finally:
            passed.append("finally")

    try:
        middle()
    except kinds(tg):
        passed.append("caught")
    assert passed == ["finally", "caught"]


def test_blocks_that_expect_errors_get_them(tg: Any) -> None:
    case, reached = unittest.TestCase(), False
    with contextlib.suppress(RuntimeError):
        singular(tg)
        reached = True
    with case.assertRaises(IndexError):
        out_of_range(tg)
        reached = True
    case.assertRaises(RuntimeError, lambda: second_pass(tg))
    with pytest.raises(IndexError):
        out_of_range(tg)
        reached = True
    assert not reached


def test_a_pass_that_reaches_no_input_changes_nothing(tg: Any) -> None:
    weight = tg.ones(2, requires_grad=True)
    loss, other = weight.exp().sum(), tg.ones(1, requires_grad=True)
    assert tg.autograd.grad(loss, other, allow_unused=True) == (None,)
    loss.backward(inputs=[other])
    assert weight.grad is None
    loss.backward()  # nothing was freed


def test_a_complex_result_needs_a_gradient_to_start_from(tg: Any) -> None:
    weight = tg.ones(2, dtype=tg.complex64, requires_grad=True)
    with pytest.raises(RuntimeError, match="only for real scalar outputs"):
        weight.sum().backward()
    weight.sum().backward(tg.ones((), dtype=tg.complex64))
    assert weight.grad.tolist() == [1.0, 1.0]


def test_callbacks_are_called_when_a_pass_has_accumulated(tg: Any) -> None:
    weight, seen = tg.ones(2, requires_grad=True), []
    engine = tg.autograd.Variable._execution_engine
    result = weight * 2
    result.register_hook(lambda _: engine.queue_callback(lambda: seen.append(weight.grad.tolist())))
    result.sum().backward()
    assert seen == [[2.0, 2.0]]
    with pytest.raises(RuntimeError, match="during backward pass"):
        engine.queue_callback(seen.clear)


def test_a_callback_at_the_end_of_a_pass_may_ask_for_another(tg: Any) -> None:
    weight, seen = tg.ones(2, requires_grad=True), []
    engine = tg.autograd.Variable._execution_engine

    def first() -> None:
        seen.append("first")
        engine.queue_callback(lambda: seen.append("second"))

    result = weight * 2
    result.register_hook(lambda _: engine.queue_callback(first))
    result.sum().backward()
    assert seen == ["first", "second"]
    with pytest.raises(RuntimeError, match="during backward pass"):
        engine.queue_callback(seen.clear)


def test_swapped_tensors_are_what_the_other_was(tg: Any) -> None:
    first, second = tg.nn.Parameter(tg.ones(2)), tg.nn.Parameter(tg.full((3,), 2.0))
    first.mark = "first"
    (first * 3).sum().backward()
    tg.utils.swap_tensors(first, second)
    assert (first.tolist(), first.grad, second.mark, second.grad.tolist()) == ([2.0] * 3, None, "first", [3.0, 3.0])
    (first * 5).sum().backward()
    (second * 2).sum().backward()
    assert (first.grad.tolist(), second.grad.tolist()) == ([5.0] * 3, [5.0, 5.0])
    view = second.detach()[:1]
    with pytest.raises(RuntimeError, match="views"):
        tg.utils.swap_tensors(view._base, first)
    base, view = tg.ones(2), None
    part = base[:1]
    tg.utils.swap_tensors(part, first)
    first.mul_(7)
    assert base.tolist() == [7.0, 1.0] and first._base is base and part._base is None
    part = first = None
    tg.utils.swap_tensors(base, second)
    assert (base.shape, second.tolist()) == ((2,), [7.0, 1.0])


class Forgiving:
    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, _: Any) -> bool:
        return kind is not None and issubclass(kind, RuntimeError)

    @contextlib.contextmanager
    def forgiving(self) -> Iterator[None]:
        with contextlib.suppress(RuntimeError):
            yield


FORGIVING = Forgiving()


def test_looking_for_clauses_keeps_nothing_alive(tg: Any) -> None:
    """Python keeps what it has shown of a frame's variables."""

    def work() -> Any:
        value = tg.ones(2)
        gone = weakref.ref(value)
        with contextlib.suppress(RuntimeError):
            tg.arange(3.0)[tg.tensor([1])]
        del value
        return gone()

    assert work() is None


def test_blocks_of_the_program_that_end_errors_get_them(tg: Any) -> None:
    reached = False
    with FORGIVING:
        out_of_range(tg)
        reached = True
    with Forgiving():
        out_of_range(tg)
        reached = True
    with FORGIVING.forgiving():
        singular(tg)
        reached = True
    assert not reached


def test_a_case_of_unittest_fails_by_its_own_work(tg: Any) -> None:
    class Case(unittest.TestCase):
        def runTest(self) -> None:
            out_of_range(tg)

    outcome = Case().run()
    assert outcome is not None
    assert len(outcome.errors) == 1


def test_the_program_goes_on_where_no_clause_would_catch_the_error(tg: Any) -> None:
    index, matrix = tg.tensor([1]), tg.eye(2)

    def work() -> None:
        try:
            tg.arange(3.0)[index]
        except (KeyError, KeyboardInterrupt):
            raise
        with contextlib.suppress(KeyError):
            tg.arange(3.0)[index]
        with tg.no_grad():
            tg.linalg.inv(matrix)

    assert round_trips(tg, work) == 0


def test_a_clause_that_never_catches_anything_is_waited_for_no_more(tg: Any) -> None:
    index, matrix = tg.tensor([1]), tg.eye(2)

    def work(run: Callable[[], Any], times: int) -> None:
        try:
            for _ in range(times):
                run()
        except RuntimeError:
            return

    times = Clause.PATIENCE + 8
    assert round_trips(tg, lambda: work(lambda: tg.arange(3.0)[index], times)) == Clause.PATIENCE
    assert round_trips(tg, lambda: work(lambda: tg.linalg.inv(matrix), times)) == times  # as on PyTorch's GPUs


def test_one_value_is_written_where_elements_share_memory(tg: Any) -> None:
    """Whatever else is written there is refused, assignments too, as by PyTorch."""
    rows = tg.ones(1, 3).expand(2, 3)
    assert rows.fill_(2.0).tolist() == [[2.0] * 3] * 2
    assert rows.zero_().tolist() == [[0.0] * 3] * 2
    for write in (lambda: rows.add_(1), lambda: rows.__setitem__(slice(None), 5.0), lambda: rows.copy_(tg.ones(3))):
        with pytest.raises(RuntimeError, match="single memory location"):
            write()
    with pytest.raises(RuntimeError, match="returns multiple views"):
        (tg.ones(4, requires_grad=True) * 2).unbind()[0].add_(1)


class _Errors:
    """Names errors, of which one cannot be had."""

    @property
    def missing(self) -> type[Exception]:
        """Raise what no clause expects."""
        raise OSError("no such error")


errors = _Errors()


def test_a_clause_whose_error_cannot_be_had_disturbs_no_call(tg: Any) -> None:
    """Python asks for the error where one is raised, and not before."""
    try:
        found = tg.arange(3)[tg.tensor([2])].tolist()
    except errors.missing:
        found = []
    assert found == [2]
