"""What a worker's process is told so that it is fast."""

from __future__ import annotations

import resource

from server.ipc.worker_environment import on_one_stack

CALLS = 400
DEPTHS = range(250)


def _inner(a: int, b: int) -> int:
    return a + b


def _outer(a: int, b: int) -> int:
    return _inner(a, b) + _inner(b, a)


def _faults_at(depth: int) -> int:
    """Pages that a loop of calls takes anew, below so many frames."""
    if depth:
        return _faults_at(depth - 1)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for number in range(CALLS):
        _outer(number, number)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def _worst() -> int:
    return max([_faults_at(depth) for depth in DEPTHS])


def test_no_depth_of_calls_takes_fresh_memory_at_every_turn() -> None:
    assert on_one_stack(_worst) < CALLS / 4
    assert on_one_stack(lambda: "what it returns") == "what it returns"
