"""Calls in C and in Python do the same: what is sent, what results are, what is raised, and what is left behind."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest

from telegrad._native import SOURCE
from telegrad._native import binding as native
from telegrad._ops import call as python_call
from telegrad._ops import functions
from telegrad._ops.call_plan import cache_info
from telegrad._session.thread_modes import DEFAULT
from telegrad._tensor.autograd_graph import OperationNode
from telegrad_protocol import messages
from telegrad_protocol.native import place

from ..support.compilers import needs_calls_in_c
from .random_calls import run_program
from .recording_host import RecordingHost
from .recording_host import recording as recording
from .usual_calls import TURNS, usual_calls

pytestmark = needs_calls_in_c


def test_it_is_compiled_where_there_is_a_compiler() -> None:
    library = place.library(SOURCE)
    failure = library.with_name("failed") if library is not None else None
    assert native.native is not None, failure.read_text() if failure is not None and failure.exists() else "no library"
    assert native.call is not python_call.call


def test_random_calls_send_and_give_the_same(recording: RecordingHost, seed: int) -> None:
    run_program(recording, python_call.call, seed)  # what is cached changes who finds an error
    expected, found = (run_program(recording, call, seed) for call in (python_call.call, native.call))
    assert found[1] == expected[1]
    assert found[0] == expected[0]


def test_batches_are_full_at_the_same_calls(recording: RecordingHost, monkeypatch: pytest.MonkeyPatch) -> None:
    import telegrad as tg

    with tg.connect(in_process=recording) as connection:
        x, sizes = tg.ones(2), []
        for call in (python_call.call, native.call):
            monkeypatch.setitem(vars(functions), "call", call)
            connection.session.synchronize()
            recording.session.sizes.clear()
            for _ in range(1000):
                x + x
            sizes.append(recording.session.sizes.copy())
    assert len(sizes[0]) > 5
    assert sizes[1][1:] == sizes[0][1:]  # the first ones have lines that are new


def test_calls_leave_no_references(recording: RecordingHost) -> None:
    import telegrad as tg

    with tg.connect(in_process=recording) as connection:
        calls, session = usual_calls(tg), connection.session
        shared = (None, True, False, 0, (), session, tg.ones(2, 3)._meta, tg.Tensor, OperationNode, tg.float32, DEFAULT)

        def count() -> list[int]:
            session.synchronize()
            recording.session.sent.clear()
            gc.collect()
            return [sys.getallocatedblocks(), *map(sys.getrefcount, shared)]

        for name, call in calls.items():
            for _ in range(60):
                call()
            before = count()
            for _ in range(TURNS):
                call()
            grown = [now - then for now, then in zip(count(), before, strict=True)]
            assert all(abs(one) < TURNS / 4 for one in grown), (name, grown)


def test_usual_calls_are_done_in_c(tg: Any) -> None:
    in_python = {
        "a changed base",
        "refused",
        "a list beside an operand",
        "lists that give lists",
        "several",
        "a shape",
        "recorded in place",
        "shared in place",
    }
    done: set[str] = set()
    for name, call in usual_calls(tg).items():
        call()

        def note(frame: Any, event: str, argument: Any, name: str = name) -> None:
            if event == "call" and frame.f_code is python_call.call.__code__:
                done.add(name)

        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(None)
    assert done == in_python


def test_lines_that_a_session_forgets_are_introduced_again(recording: RecordingHost) -> None:
    import telegrad as tg

    with tg.connect(in_process=recording) as connection:
        x, session = tg.ones(2), connection.session
        introduced = []
        for _ in range(2):
            for _ in range(40):  # more than Python takes to specialise an instruction
                x + x
            session.synchronize()
            introduced.append([one.line for one in recording.session.sent if isinstance(one, messages.Site)])
            recording.session.sent.clear()
            session.sites.forget()
    assert introduced[1]
    assert set(introduced[1]) <= set(introduced[0])


def test_calls_of_threads_in_turn_have_the_modes_of_their_thread(tg: Any) -> None:
    leaf, turns, threads = tg.ones(2, requires_grad=True), 30, 3
    barrier = threading.Barrier(threads, timeout=60)
    recorded: dict[int, list[bool]] = {}

    def run(number: int) -> None:
        found = recorded[number] = []
        with tg.set_grad_enabled(number != 1):
            for _ in range(turns):
                barrier.wait()
                found.append((leaf * 2).requires_grad)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    assert recorded == {number: [number != 1] * turns for number in range(threads)}


def test_more_calls_than_are_remembered_compute_with_their_own_numbers(tg: Any, rng: np.random.Generator) -> None:
    x = tg.ones(1)
    numbers = [
        *rng.standard_normal(700).tolist(),
        *rng.integers(-1000, 1000, 700).tolist(),
        0,
        0.0,
        -0.0,
        True,
        1 << 40,
    ]
    numbers += [numbers[place] for place in rng.permutation(len(numbers))]  # they take each other's places
    found = tg.cat([x * number for number in numbers]).numpy()
    expected = np.array([float(number) for number in numbers])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_lists_of_parts_need_no_plan_for_each_combination(tg: Any, rng: np.random.Generator) -> None:
    parts = list(tg.arange(8.0))
    tg.stack(parts[:6])
    before, found = cache_info().plans, []
    combinations = [rng.integers(0, 8, 6).tolist() for _ in range(12)]
    for places in combinations:
        found.append(tg.stack([parts[place] for place in places]))
    assert cache_info().plans == before
    assert [one.tolist() for one in found] == combinations


def test_types_of_values_are_the_same_from_c_and_from_python(tg: Any) -> None:
    values = (tg.ones(2), 1, 2.5, None, "text", True, [1], (), tg.Tensor, type)
    for count in range(len(values) + 1):
        for names in ({}, {"dim": 1, "keepdim": True}):
            taken: Any = (values[:count], names) if names else (values[:count],)
            assert native.types_of(*taken) == native.types_of_in_python(*taken)
    for wrong in ((), ([],), ((), []), ((), {}, {})):
        with pytest.raises(TypeError, match="types_of: expected"):
            native.types_of(*wrong)
