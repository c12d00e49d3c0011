"""What a profile notes of calls in C is what it notes of calls in Python, and leaves nothing behind."""

from __future__ import annotations

import gc
import sys
import threading
import time
from typing import Any

import pytest

from telegrad._native import binding as native
from telegrad._ops import call as python_call
from telegrad._ops.call_plan import PLANS
from telegrad.profiler._log import _id_of, _noting, _noting_with_stacks, told

from ..support.compilers import needs_calls_in_c
from . import random_calls
from .random_calls import PROGRAMS, run_program
from .recording_host import RecordingHost
from .recording_host import recording as recording
from .usual_calls import TURNS, usual_calls

pytestmark = needs_calls_in_c


def _is_of_a_program(line: str) -> bool:
    """Whether a line of a stack is of the programs, and not of the test that runs them."""
    return random_calls.__name__.rpartition(".")[2] in line


def _told(noted: list[Any]) -> list[Any]:
    """What was noted of calls, but for times, with the lines of their stacks."""
    fields = iter(noted)
    rows = zip(*[fields] * 6, strict=True)
    return [
        (pattern.op.name, thread, id > 0, [line for line in told(stack or ()) if _is_of_a_program(line)])
        for pattern, begin, end, thread, id, stack in rows
        if begin <= end
    ]


@pytest.mark.parametrize("with_stacks", [False, True])
def test_a_profile_has_the_same_of_calls_in_c_and_in_python(
    recording: RecordingHost, seed: int, with_stacks: bool
) -> None:
    noted: list[Any] = []
    noting = (_noting_with_stacks if with_stacks else _noting)(python_call.call, noted)
    run_program(recording, python_call.call, seed)
    run_program(recording, noting, seed)
    assert native.native.begin_notes(1 << 20, with_stacks, _id_of)
    try:
        assert not native.native.begin_notes(1 << 20, with_stacks, _id_of), "one profile at a time"
        run_program(recording, native.call, seed)
    finally:
        in_c = native.native.end_notes()
    found, expected = _told(in_c), _told(noted)
    assert len(in_c) > 6 * PROGRAMS and len(in_c) == 6 * len(found)
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    assert [row[3] for row in found] == [row[3] for row in expected]
    assert any([row[3] for row in found]) is with_stacks
    assert native.native.end_notes() == [], "what was noted is given out once"


def test_what_is_noted_of_a_call_is_its_result_and_its_time(tg: Any) -> None:
    x = tg.ones(2, 3)
    assert native.native.begin_notes(10, False, _id_of)
    before = time.monotonic_ns()
    results = x + 1, x.split(1)[0], x.mul_(2)
    noted = native.native.end_notes()
    assert noted[4::6] == [result._id for result in results]
    assert sorted(noted[1::6] + noted[2::6]) == [at for times in zip(noted[1::6], noted[2::6]) for at in times]
    assert before <= noted[1] and noted[-4] <= time.monotonic_ns()
    assert {*noted[3::6]} == {threading.get_ident()} and {*noted[5::6]} == {None}


def test_notes_of_calls_leave_no_references_and_are_not_more_than_wanted(recording: RecordingHost) -> None:
    import telegrad as tg

    with tg.connect(in_process=recording) as connection:
        calls, session = usual_calls(tg), connection.session
        pattern = next(iter(PLANS))[0]

        def count() -> list[int]:
            session.synchronize()
            recording.session.sent.clear()
            gc.collect()
            return [sys.getallocatedblocks(), sys.getrefcount(pattern), sys.getrefcount(usual_calls.__code__)]

        def noted(most: int) -> int:
            assert native.native.begin_notes(most, True, _id_of)
            for _ in range(TURNS):
                for call in calls.values():
                    call()
            return len(native.native.end_notes()) // 6

        noted(1 << 20)
        before = count()
        assert noted(1 << 20) > TURNS * len(calls)
        grown = [now - then for now, then in zip(count(), before, strict=True)]
        assert all(abs(one) < TURNS / 4 for one in grown), grown
        assert noted(7) == 7 and noted(0) == 0
