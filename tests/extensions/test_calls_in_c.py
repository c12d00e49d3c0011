"""What a client sends for calls of extensions that are like earlier ones: the same from C and from Python."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import telegrad
from server.worker.host import Host
from telegrad._session.session import ClientSession
from telegrad._tensor.tensor import Tensor
from telegrad.utils.cpp_extension import _functions
from telegrad_protocol.extension_messages import CallExtension
from tests.support.compilers import needs_calls_in_c

from .conftest import load_functions

NAMES = ("scale", "same", "floats", "pieces", "affine", "require_matrix", "typed", "increment_")
_TAG = CallExtension.__struct_config__.tag
pytestmark = needs_calls_in_c


def _described(result: Any) -> Any:
    """All that calls have written into handles."""
    if isinstance(result, (list, tuple)):
        return type(result), [_described(one) for one in result]
    if not isinstance(result, Tensor):
        return type(result), result
    node, base = result._node, result._base
    edges = [] if node is None else [getattr(parent, "name", "leaf") for parent in node.parents]
    return (
        result._id, result._meta, result._requires_grad, edges, getattr(node, "name", None), result._is_inference,
        None if base is None else base._id, sorted(vars(result)),
    )  # fmt: skip


class _Program:
    """Random calls in one session, with the instructions that they have queued and what they have returned."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.extension = load_functions()
        for name in NAMES:
            getattr(self.extension, name).waits = False
        own = type("Own", (telegrad.Tensor,), {})
        self.inputs = [
            telegrad.ones(3, 4), telegrad.zeros(2, 4), telegrad.ones(3, 4, requires_grad=True),
            telegrad.ones(6, 4)[2:5], telegrad.ones(3, 4).as_subclass(own), telegrad.nn.Parameter(telegrad.ones(2, 4)),
            telegrad.ones(4),
        ]  # fmt: skip
        self.seen: list[Any] = []

    def step(self) -> None:
        """Make one call, whose result lives on or dies, under a random mode."""
        rng, extension = self.rng, self.extension
        x, y, by = rng.choice(self.inputs), rng.choice(self.inputs), rng.choice((2.0, 0.0, -0.0, 3, True, float("nan")))
        calls: tuple[Callable[[], Any], ...] = (
            lambda: extension.scale(x, by), lambda: extension.scale(x, by=by), lambda: extension.same(x),
            lambda: extension.floats(x), lambda: extension.pieces(x, [1, 1]), lambda: extension.affine(x, y),
            lambda: extension.affine(x, y, None), lambda: extension.require_matrix(x), lambda: extension.scale(x),
            lambda: extension.scale("text", by), lambda: extension.increment_(x.detach()),
            lambda: extension.typed(x, telegrad.float64),
        )  # fmt: skip
        mode = rng.choice((telegrad.enable_grad, telegrad.no_grad, telegrad.inference_mode))
        with mode():
            try:
                result = rng.choice(calls)()
                self.seen.append(_described(result))
                if rng.random() < 0.05:
                    telegrad.ones(1).item()
            except (RuntimeError, TypeError) as error:
                self.seen.append((type(error), str(error)))


def _outcome(seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any]]:
    """What a program of random calls queues, and what it sees; tensors that an error holds die when Python likes."""
    queued: list[Any] = []
    with telegrad.connect(in_process=Host(["cpu"])), monkeypatch.context() as patch:
        program = _Program(seed)
        transport = program.inputs[0]._session.transport
        send = transport.send_batch

        def take(body: Any) -> None:
            queued.extend(one[:-1] for one in msgspec.msgpack.decode(body) if one[0] == _TAG)
            send(body)

        patch.setattr(transport, "send_batch", take)
        for _ in range(300):
            program.step()
        telegrad.ones(1).item()
    return queued, program.seen


@pytest.mark.parametrize("part", range(2))
def test_instructions_and_results_are_the_same_from_c_and_from_python(
    kernel_cache: str, monkeypatch: pytest.MonkeyPatch, part: int, seed: int
) -> None:
    made: list[bool] = []
    in_c = _functions.call_extension
    assert in_c is not None

    def noting(known: Any, args: Any) -> Any:
        result = in_c(known, args)
        made.append(result is not _functions.ABSENT)
        return result

    monkeypatch.setattr(_functions, "call_extension", noting)
    from_c = _outcome(seed + part, monkeypatch)
    assert sum(made) > 20, "C has made calls"
    assert sum(made) < len(made), "and has left others to Python"
    monkeypatch.setattr(_functions, "call_extension", lambda known, args: _functions.ABSENT)
    from_python = _outcome(seed + part, monkeypatch)
    assert repr(from_c) == repr(from_python)  # in which one NaN is like another


def test_calls_in_c_keep_no_references(kernel_cache: str, tg: Any) -> None:
    extension = load_functions()
    x, by = tg.ones(3, 4), 2.5
    extension.scale.waits = extension.affine.waits = False
    calls: list[Callable[[], Any]] = [
        lambda: extension.scale(x, by), lambda: extension.affine(x, x, None), lambda: extension.require_matrix(x),
        lambda: extension.scale(x, "text"), lambda: extension.scale(x),
    ]  # fmt: skip

    def counts() -> list[int]:
        gc.collect()
        kept = [x, by, x._meta, extension.scale, extension.scale._known, extension.scale._overloads[0]]
        return [sys.getrefcount(one) for one in kept]

    def run(times: int) -> None:
        for call in calls:
            for _ in range(times):
                with contextlib.suppress(TypeError):
                    call()
        tg.ones(1).item()

    run(20)
    before = counts()
    run(200)
    assert counts() == before


def test_a_call_in_a_closed_session_says_so(kernel_cache: str) -> None:
    with telegrad.connect(in_process=Host(["cpu"])):
        extension = load_functions()
        extension.scale.waits = False
        x = telegrad.ones(3)
        extension.scale(x, 2.0)
        assert isinstance(x._session, ClientSession)
    with pytest.raises(telegrad.errors.TelegradError):
        extension.scale(x, 2.0)
