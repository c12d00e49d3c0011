"""A call that was remembered runs as one that was not: whatever differs between two calls of one line is told apart."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.engine.operators import OPERATORS
from server.engine.replay import remembered
from server.session.call_cache import CALLERS
from server.session.state import Absent
from telegrad_protocol import dtypes
from telegrad_protocol.messages import Call, Free, Mode, SetRequiresGrad
from telegrad_protocol.ops import TABLE

from .driver import F32, ONES, Talk, call, fails

Values = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def trio(talk: Talk) -> Talk:
    """A session with two matrices of floats (1, 2), one of integers (3), and a transposed view (4)."""
    talk.upload(1, Values)
    talk.upload(2, ONES)
    talk.upload(3, Values.astype(np.int64))
    talk.send(call("t", 4, 1))
    return talk


def _forget(name: str) -> None:
    CALLERS[TABLE[name].index].clear_caches()


def _meta(talk: Talk, id: int) -> tuple[Any, ...]:
    value = talk.session.state.value(id)
    return value.dtype.name, value.shape, value.meta.strides


def test_a_call_that_comes_again_is_looked_up(trio: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    _forget("add")
    trio.send(call("add", 5, 1, 2), call("add", 6, 1, 2))
    monkeypatch.setattr("server.engine.dispatcher.signature_of", lambda *_: pytest.fail("dispatched anew"))
    assert trio.send(call("add", 7, 2, 1)) == []
    np.testing.assert_array_equal(trio.read(7), Values + 1)


def test_lists_of_tensors_that_come_again_are_looked_up(trio: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    _forget("cat")
    trio.send(call("cat", 5, [1, 2], 0), call("cat", 5, [1, 2], 0))
    trio.send(call("cat", 6, [1, 3], 0), call("cat", 6, [4], 1))  # other operands of the same classes
    assert (_meta(trio, 6)[1], _meta(trio, 5)[1]) == ((3, 2), (4, 3))
    monkeypatch.setattr("server.engine.dispatcher.signature_of", lambda *_: pytest.fail("dispatched anew"))
    assert trio.send(call("cat", 7, [2, 1], 0)) == []
    np.testing.assert_array_equal(trio.read(7), np.concatenate([ONES, Values]))


@pytest.mark.parametrize("items", [[1.0, 2], [True, 2], [1, None], [], [1, 99], [1, "2"], [[1], 2]])
def test_lists_of_anything_else_are_refused_after_good_ones(trio: Talk, items: list[Any]) -> None:
    _forget("cat")
    trio.send(call("cat", 5, [1, 2], 0), call("cat", 5, [1, 2], 0))
    (failure,) = trio.send(call("cat", 6, items, 0))
    assert failure.code in {"ProtocolError", "UnknownIdError", "ArgumentError", "ShapeError"}, failure


@pytest.mark.parametrize("name", ["add", "mul"])
def test_equal_numbers_of_different_types_are_told_apart(trio: Talk, name: str) -> None:
    for _ in range(3):
        for number, dtype in ((1, "int64"), (True, "int64"), (1.0, "float32"), (1, "int64")):
            trio.send(call(name, 5, 3, [number]))
            assert _meta(trio, 5)[0] == dtype


def test_the_sign_of_a_zero_is_told_apart(trio: Talk) -> None:
    for _ in range(3):
        for zero, sign in ((0.0, False), (-0.0, True), (0.0, False)):
            trio.send(call("mul", 5, 2, [zero]), call("hardtanh", 6, 2, zero, zero))
            assert np.signbit(trio.read(5)).all() == sign
            assert np.signbit(trio.read(6)).all() == sign


def test_a_scalar_attribute_is_told_apart_by_its_type(trio: Talk) -> None:
    for _ in range(3):
        for fill, dtype in ((1, "int64"), (1.0, "float32"), (True, "bool"), (0, "int64"), (0.0, "float32")):
            trio.send(call("full", 5, [2], fill))
            assert _meta(trio, 5)[0] == dtype


def test_sizes_and_dimensions_are_told_apart(trio: Talk) -> None:
    for _ in range(3):
        for size in ([3, 2], [6], [1, 6]):
            trio.send(call("reshape", 5, 1, size), call("sum", 6, 1, [len(size) - 1]))
            assert _meta(trio, 5)[1] == tuple(size)
            np.testing.assert_array_equal(trio.read(6), Values.sum(len(size) - 1))
        for dims in ((0, 1), (1, 0), (0, 0)):
            trio.send(call("transpose", 5, 1, *dims))
            assert _meta(trio, 5)[1] == ((2, 3) if dims == (0, 0) else (3, 2))


@pytest.mark.parametrize(
    ("name", "raw"),
    [("neg", [1]), ("add", [1, 1, 1]), ("where", [5, 1, 1]), ("lerp", [1, 1, [0.5]]), ("addcmul", [1, 1, 1, 1])],
)
def test_other_tensors_in_any_place_are_told_apart(trio: Talk, name: str, raw: list[Any]) -> None:
    trio.upload(5, Values > 2)
    trio.upload(6, Values.astype(np.float64))
    trio.upload(7, np.ones((4, 1, 1), np.float32))
    trio.upload(8, Values[1:].T.copy().T)
    op = TABLE[name]
    places = [place for place in op.tensor_positions if raw[place].__class__ is int]
    calls = [[*raw[:place], other, *raw[place + 1 :]] for place in places for other in (6, 7, 8, 5, 1)]

    def found(before: Callable[[str], None]) -> list[Any]:
        results = []
        for each in calls:
            before(name)
            failed = trio.send(Call(op.index, 0, (9,), each))
            results.append([reply.message for reply in failed] or (_meta(trio, 9), trio.read(9).tobytes()))
            if failed:
                trio.resume()
        return results

    expected = found(_forget)
    assert [found(lambda _: None) for _ in range(2)] == [expected] * 2


def test_gradients_are_recorded_where_they_are_wanted_and_on(trio: Talk) -> None:
    def records() -> bool:
        trio.send(call("add", 9, 1, 2), call("linear", 10, 1, 2, None))
        found = [trio.session.state.value(id).autograd for id in (9, 10)]
        assert len({each is not None for each in found}) == 1
        return found[0] is not None

    for _ in range(3):
        assert not records()
        trio.send(SetRequiresGrad(2, True))
        assert records()
        trio.send(Mode("grad", False))
        assert not records()
        trio.send(Mode("grad", True), Mode("inference", True))
        assert not records()
        trio.send(Mode("inference", False))
        assert records()
        trio.send(SetRequiresGrad(2, False))


@pytest.mark.parametrize(
    ("name", "operands", "rest"),
    [("neg", [1], []), ("add", [1, 2], [1]), ("linear", [1, 2, 5], []), ("lerp", [1, 2], [[0.5]])],
)
def test_a_gradient_of_any_operand_is_recorded(trio: Talk, name: str, operands: list[int], rest: list[Any]) -> None:
    trio.upload(5, np.ones(2, np.float32))
    instruction = Call(TABLE[name].index, 0, (9,), [*operands, *rest])
    for _ in range(2):
        trio.send(instruction)
        assert trio.session.state.value(9).autograd is None
        for wanted in operands:
            trio.send(SetRequiresGrad(wanted, True), instruction, SetRequiresGrad(wanted, False))
            node = trio.session.state.value(9).autograd.grad_fn  # type: ignore[union-attr]
            recorded = [edge is not None for edge in node.edges]  # type: ignore[union-attr]
            assert recorded[: len(operands)] == [each == wanted for each in operands]


def test_autocast_and_the_default_dtype_are_seen(trio: Talk) -> None:
    for _ in range(3):
        for mode, dtype in (([True, [["cpu", dtypes.bfloat16.code]]], "bfloat16"), (None, "float32")):
            trio.send(Mode("autocast", mode), call("mm", 9, 1, 4))
            assert _meta(trio, 9)[0] == dtype
        for default in (dtypes.float64, dtypes.float32):
            trio.send(Mode("default_dtype", default.code), call("div", 9, 3, 3), call("div", 10, 3, [2]))
            assert _meta(trio, 9)[0] == _meta(trio, 10)[0] == default.name


def test_in_place_calls_are_refused_and_counted_as_ever(trio: Talk) -> None:
    for _ in range(3):
        version = trio.session.state.value(2).storage.version
        trio.send(call("add_", (), 2, 1), call("add_", (), 2, 1))
        assert trio.session.state.value(2).storage.version == version + 2
        trio.send(SetRequiresGrad(2, True))
        assert fails(trio, call("add_", (), 2, 1)).code == "InplaceError"
        trio.resume()
        trio.send(SetRequiresGrad(2, False))


def test_what_is_not_there_is_refused_as_ever(trio: Talk) -> None:
    for _ in range(3):
        assert trio.send(call("add", 5, 1, 2)) == []
        assert fails(trio, call("add", 5, 1, 99)).code == "UnknownIdError"
        trio.resume()
        assert fails(trio, call("mm", 50, 1, 1)).code == "ShapeError"
        trio.resume()
        assert isinstance(trio.session.state.values[50], Absent)
        assert fails(trio, call("add", 5, 50, 2)).code == "NotComputedError"
        trio.resume()
        trio.send(Free([50]))
        for wrong in ([1, True, 1], [1, 2.0, 1], [1, "2", 1], [1, 2], [1, 2, 1, 1], [1, 2, [1]], [[1], [2], 1]):
            assert fails(trio, Call(TABLE["add"].index, 0, (5,), wrong)).code in ("ProtocolError", "ArgumentTypeError")
            trio.resume()


def test_a_trace_shows_calls_that_were_remembered(trio: Talk) -> None:
    for _ in range(2):
        trio.send(call("add", 5, 1, 2))
    trio.send(Mode("trace", True), call("add", 5, 1, 2))
    assert [line for line in trio.session.state.context.trace or () if line.startswith("[call] op=add")]


def test_what_is_remembered_of_calls_is_bounded(trio: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    _forget("add")
    monkeypatch.setattr(remembered, "CAPACITY", 8)
    most = 0
    for alpha in range(30):
        trio.send(call("add", 5, 1, 2, alpha))
        most = max(most, *OPERATORS["add"].cache_sizes().values())
        np.testing.assert_array_equal(trio.read(5), Values + alpha)
    assert 1 < most <= 8


NUMBERS = [0, 1, True, False, 0.0, -0.0, 1.0, 2, -1.5]
TENSORS = st.sampled_from([1, 2, 3, 4, 5, 6])
CALLS = st.one_of(
    st.builds(lambda a, b, n: ("add", [a, b, n]), TENSORS, TENSORS, st.sampled_from(NUMBERS)),
    st.builds(lambda a, n: ("mul", [a, [n]]), TENSORS, st.sampled_from(NUMBERS)),
    st.builds(lambda a, n: ("add_", [a, [n], 1]), TENSORS, st.sampled_from(NUMBERS)),
    st.builds(lambda a, b: ("mul_", [a, b]), TENSORS, TENSORS),
    st.builds(lambda a, b, c: ("where", [a, b, c]), TENSORS, TENSORS, TENSORS),
    st.builds(lambda a, n, m: ("hardtanh", [a, n, m]), TENSORS, st.sampled_from(NUMBERS), st.sampled_from(NUMBERS)),
    st.builds(lambda a, d, e: ("transpose", [a, d, e]), TENSORS, st.integers(-1, 2), st.integers(-1, 2)),
    st.builds(lambda a, s: ("reshape", [a, s]), TENSORS, st.sampled_from([[6], [3, 2], [-1], [2, 3], [2, 2]])),
    st.builds(lambda a, n: ("full_like", [a, n, None, None]), TENSORS, st.sampled_from(NUMBERS)),
    st.builds(lambda a, b: ("matmul", [a, b]), TENSORS, TENSORS),
    st.builds(lambda a, b: ("linear", [a, b, None]), TENSORS, TENSORS),
)
MODES = st.sampled_from(
    [Mode("grad", True), Mode("grad", False), Mode("default_dtype", dtypes.float64.code), SetRequiresGrad(2, True),
     Mode("default_dtype", F32), Mode("autocast", [True, [["cpu", dtypes.bfloat16.code]]]), Mode("autocast", None),
     SetRequiresGrad(1, True), SetRequiresGrad(2, False), Mode("inference", True), Mode("inference", False)]
)  # fmt: skip


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.one_of(CALLS, MODES), min_size=4, max_size=20))
def test_any_calls_end_as_those_that_are_not_remembered(open_talk: Callable[..., Talk], steps: list[Any]) -> None:
    _run(open_talk(), steps * 2, lambda _: None)  # so that all there is to remember is
    assert _run(open_talk(), steps * 2, lambda _: None) == _run(open_talk(), steps * 2, _forget)


def _run(talk: Talk, steps: list[Any], before: Callable[[str], None]) -> list[Any]:
    """What each step has left behind, or how it failed."""
    talk.upload(1, Values)
    talk.upload(2, ONES)
    talk.upload(3, Values.astype(np.int64))
    talk.upload(5, np.array([[True, False, True]] * 2))
    talk.send(call("t", 4, 1), call("mul", 6, 2, [0.0]))
    found = []
    for step, out in zip(steps, itertools.count(7)):
        if not isinstance(step, tuple):
            if talk.send(step):
                talk.resume()
            continue
        name, raw = step
        before(name)
        replies = talk.send(Call(TABLE[name].index, 0, () if TABLE[name].mutates else (out,), raw))
        found.append((step, [(each.code, each.message) for each in replies], talk.contents()))
        if replies:
            talk.resume()
    talk.session.close()
    return found
