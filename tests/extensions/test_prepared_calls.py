"""Calls of a kind that came before: in C and in Python they return the same, keep the same and drop the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import telegrad
from server.engine.extensions import library
from server.engine.extensions.prepared_call import PreparedCall
from server.engine.value import Value
from server.worker.host import Host
from telegrad import errors
from telegrad._session.thread_modes import DEFAULT
from telegrad_protocol.extension_messages import CallExtension
from tests.support.compilers import needs_calls_in_c

from .conftest import load_functions


def _outcome(tg: Any, extension: Any, rng: random.Random, x: Any, y: Any) -> list[Any]:
    """What a call of a random function gives: elements and flags of its results, or its error."""
    by = rng.choice((2.0, 0.5))
    calls: tuple[Callable[[], Any], ...] = (
        lambda: extension.scale(x, by), lambda: extension.same(x), lambda: extension.floats(x),
        lambda: extension.swap_kept(x), lambda: extension.pieces(x, [1, 1]), lambda: extension.affine(x, y),
        lambda: extension.without_grad(x), lambda: tg.ops.telegrad_tests.both_added(x, y),
    )  # fmt: skip
    try:
        result = rng.choice(calls)()
        parts = result if isinstance(result, (list, tuple)) else [result]
        return [(part.tolist(), part.requires_grad, part.is_contiguous()) for part in parts]
    except RuntimeError as error:
        return [str(error)]


def _outcomes(seed: int) -> list[Any]:
    """What a program gives on a session of its own, which calls functions several times on what is alike."""
    with telegrad.connect(in_process=Host(["cpu"])):
        rng, extension = random.Random(seed), load_functions()
        for name in ("scale", "same", "floats", "swap_kept", "pieces", "affine", "without_grad"):
            getattr(extension, name).waits = False
        telegrad.manual_seed(seed)
        whole = telegrad.randn(6, 4)
        inputs = [telegrad.randn(3, 4), telegrad.randn(3, 4), whole[2:5], telegrad.zeros(0, 4), whole.t()]
        inputs.append(telegrad.ones(3, 4, requires_grad=True))
        extension.drop_kept()
        outcomes: list[Any] = [extension.scale(inputs[0], 2.0).tolist() for _ in range(3)]
        for _ in range(80):
            outcomes += _outcome(telegrad, extension, rng, rng.choice(inputs), rng.choice(inputs))
        extension.drop_kept()
        whole.sum().item()  # which waits for it
        assert not library.runtime().values, "tensors of extensions are held that nobody has"
    return outcomes


@needs_calls_in_c
@pytest.mark.parametrize("part", range(4))
def test_calls_in_c_and_in_python_have_the_same_outcomes(
    kernel_cache: str, monkeypatch: pytest.MonkeyPatch, part: int, seed: int
) -> None:
    made: list[type] = []
    bound = PreparedCall._bound

    def noting(prepared: PreparedCall) -> Any:
        make = bound(prepared)

        def call(values: Any, args: Any) -> Any:
            result = make(values, args)
            made.append(type(result))
            return result

        return make and call

    monkeypatch.setattr(PreparedCall, "_bound", noting)
    expected = _outcomes(seed + part)
    assert {Value, tuple} <= set(made), "C has made results, and has left others to Python"
    made.clear()
    monkeypatch.setattr(PreparedCall, "_bound", lambda prepared: None)
    assert _outcomes(seed + part) == expected
    assert not made


def test_functions_that_fail_without_being_waited_for_hold_nothing(tg: Any, extension: Any) -> None:
    extension.scale.waits = False
    x = tg.ones(4, 4)
    extension.scale(x, 2.0)
    for _ in range(3):
        extension.scale(x, 3.0)
        strided = tg.ones(4, 8)[:, ::2]
        with pytest.raises(errors.ExtensionError, match="x must be contiguous"):
            extension.scale(strided, 2.0).tolist()
    assert not library.runtime().values
    assert extension.scale(x, 2.0).tolist() == [[2.0] * 4] * 4


def test_memory_of_a_result_is_freed_when_the_program_drops_it(tg: Any, extension: Any) -> None:
    extension.scale.waits = False
    x = tg.ones(64, 64)
    session = x._session.transport._session
    allocated = next(iter(session.state.backends.values())).allocator.allocated_bytes
    kept, held = [extension.scale(x, 2.0) for _ in range(3)], []
    for _ in range(3):
        x.sum().item()
        held.append(allocated(session.state.number))
        extension.scale(x, 2.0)
    x.sum().item()
    held.append(allocated(session.state.number))
    assert len(set(held)) == 1, held
    assert [result.sum().item() for result in kept] == [8192.0] * 3
    assert not library.runtime().values


@pytest.mark.parametrize("args", [[], [5], [[]], [None], [[1 << 60]], [{}]])
def test_calls_with_other_arguments_than_their_plans_are_refused(tg: Any, extension: Any, args: list[Any]) -> None:
    """Arguments that differ from those of a call's plan, which telegrad's own client never sends, end in an error."""
    extension.same.waits = False
    x = tg.ones(2)
    extension.same(x)
    ((plan, *_),) = extension.same._plans.values()
    session = x._session
    session.queue(CallExtension(extension.same._overloads[0].number, 0, (), args, plan), DEFAULT)
    with pytest.raises(errors.TelegradError) as refused:
        x.sum().item()
    assert not isinstance(refused.value, errors.InternalError), refused.value
    assert x.sum().item() == 2.0
