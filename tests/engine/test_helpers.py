"""Threads that help with operations on the host: pieces of Python's and of compiled loops, errors, ends, forks."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from server.engine import compiled
from server.engine.device import cancellation, helpers, threads

HELPERS = 2


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """Let no helper outlive a test."""
    yield
    threads.stop()


def test_pieces_are_computed_at_the_same_time() -> None:
    meeting = threading.Barrier(HELPERS + 1)
    for _ in range(50):
        helpers.run(lambda piece: meeting.wait() and None, HELPERS + 1, HELPERS)


def test_compiled_loops_get_their_arguments(rng: np.random.Generator) -> None:
    rows, loops = compiled.kernels("rows"), compiled.kernels()
    softmax, layer_norm = rows.softmax["f"], rows.layer_norm["f"]
    x, weight, bias = (rng.standard_normal(shape, np.float32) for shape in ((300, 70), 70, 70))
    parts = threads.parts_of(len(x), 7)
    for _ in range(50):
        for logarithm in (False, True):
            expected, result = np.empty_like(x), np.zeros_like(x)
            softmax(x, expected, logarithm)
            helpers.run_loop(softmax, [(x[part], result[part], logarithm) for part in parts], HELPERS)
            np.testing.assert_array_equal(result, expected)
        outs = [[np.zeros_like(x), np.zeros(300, "f"), np.zeros(300, "f")] for _ in range(2)]
        layer_norm(x, weight, bias, 1e-5, *outs[0])
        calls = [(x[part], weight, bias, 1e-5, *[out[part] for out in outs[1]]) for part in parts]
        helpers.run_loop(layer_norm, calls, HELPERS)
        for mine, other in zip(*outs, strict=True):
            np.testing.assert_array_equal(mine, other)
        places = rng.integers(0, 40, 300)
        sums = np.zeros((40, 70), "f")
        ranges = threads.parts_of(40, 5)
        helpers.run_loop(loops.sum_rows, [(x, places, part.start, part.stop, sums) for part in ranges], HELPERS)
        wanted = np.zeros((40, 70))
        np.add.at(wanted, places, x.astype(np.float64))
        np.testing.assert_allclose(sums, wanted, rtol=1e-5, atol=1e-5)


def test_each_piece_is_computed_once_whatever_job_came_before() -> None:
    loops = compiled.kernels()
    parts = threads.parts_of(4000, 9)
    for turn in range(2000):
        x = np.ones(4000, np.float32)
        calls = [0] * 7
        for _ in range(turn % 3):
            helpers.run(lambda piece, calls=calls: calls.__setitem__(piece, calls[piece] + 1), len(calls), HELPERS)  # type: ignore[misc]
        helpers.run_loop(loops.scaled, [(x[part], 2.0, x[part]) for part in parts], HELPERS)
        assert (x == 2).all()
        assert calls == [turn % 3] * len(calls)


def test_helpers_take_pieces_of_compiled_loops() -> None:
    """One thread's share of the processor's time is less than all of it."""
    x = np.ones(1 << 20, np.float32)
    gelu, seen = compiled.kernels("elementwise").gelu["f"], set()
    parts = threads.parts_of(x.size, 64)
    out = np.empty_like(x)
    while not seen - {0.0}:
        before = _seconds_of_helpers()
        helpers.run_loop(gelu, [(x[part], out[part]) for part in parts], HELPERS)
        seen.add(_seconds_of_helpers() - before if before else 0.0)


def _seconds_of_helpers() -> float:
    """The processor time of all helpers."""
    total = 0.0
    for thread in _helpers():
        fields = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()
        total += int(fields[0])
    return total


def _helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("cpu kernels")]


def test_a_helper_whose_processor_is_wanted_sleeps_at_once() -> None:
    """This thread keeps to the helper's processor, on which it is seldom idle."""
    pool, memory = compiled.kernels("pool"), np.zeros(compiled.kernels("pool").WORDS + 8, np.int64)
    state = -(-memory.ctypes.data // 64) * 64
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    thread = threading.Thread(target=pool.serve, args=(state, 0, 1 << 60))  # which inherits the processor
    thread.start()
    try:
        while not memory[(state + pool.ASLEEP - memory.ctypes.data) // 8]:
            sum(range(10_000))
    finally:
        os.sched_setaffinity(0, allowed)
        pool.end(state, 1)
        thread.join()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_threads_take_their_own_pieces_first_and_then_those_of_others() -> None:
    pool, calls, loop = compiled.kernels("pool"), compiled.kernels("calls"), compiled.kernels("rows").row_sums["f"]
    rows, sums = np.ones((10, 4), np.float32), np.zeros(10, np.float32)
    form = calls.form_of(loop)
    records = calls.records(form, [(rows[i : i + 1], sums[i : i + 1]) for i in range(10)])
    memory = np.zeros(pool.WORDS + 8, np.int64)
    state = -(-memory.ctypes.data // 64) * 64
    for _ in range(2):
        pool.publish(state, ctypes.addressof(records), form.size, 10, HELPERS, False)
        for most, own, expected in ((2, 1, "0001100000"), (3, 2, "0001101110"), (4, 2, "1111101111"), (9, 0, "1" * 10)):
            is_left = pool.take(state, most, own)
            assert "".join([str(int(total // 4)) for total in sums]) == expected
            assert is_left == (most < 9)
        assert not pool.work(state, 1)
        sums[:] = 0


def test_helpers_keep_off_the_processor_of_the_first_thread() -> None:
    softmax, x = compiled.kernels("rows").softmax["f"], np.ones((4, 100), np.float32)
    helpers.run_loop(softmax, [(x, np.empty_like(x), False)] * 3, HELPERS)
    allowed = os.sched_getaffinity(0)
    masks = [os.sched_getaffinity(thread.native_id or 0) for thread in _helpers()]
    assert len(masks) == HELPERS
    for mask in masks:
        assert mask < allowed
        assert len(mask) == len(allowed) - 1


def test_pieces_within_pieces_stay_on_their_thread() -> None:
    names: list[set[str]] = [set() for _ in range(6)]

    def task(piece: int) -> None:
        here = threading.current_thread().name
        helpers.run(lambda _: names[piece].add(threading.current_thread().name), 5, HELPERS)
        assert names[piece] == {here}

    helpers.run(task, len(names), HELPERS)
    assert all(names)


def test_a_request_to_end_ends_compiled_pieces_too() -> None:
    x = np.ones((4, 100), np.float32)
    softmax, outs = compiled.kernels("rows").softmax["f"], np.empty((1000, *x.shape), np.float32)

    def end() -> None:
        raise KeyboardInterrupt

    cancellation.request(end)
    with pytest.raises(KeyboardInterrupt):
        helpers.run_loop(softmax, [(x, out, False) for out in outs], HELPERS)
    helpers.run_loop(softmax, [(x, out, False) for out in outs[:3]], HELPERS)
    np.testing.assert_allclose(outs[:3], 0.01, rtol=1e-6)


PROGRAM = """
import os, sys
import numpy as np
from server.engine import compiled
from server.engine.device import helpers

softmax, loops = compiled.kernels("rows").softmax["f"], compiled.kernels()
x = np.ones((4, 100), np.float32)
def work():
    out = np.empty((50, 4, 100), np.float32)
    helpers.run_loop(softmax, [(x, piece, False) for piece in out], 2)
    helpers.run(lambda piece: None, 50, 2)
    return float(out.sum())
assert abs(work() - 200) < 1e-2
child = os.fork()
if not child:
    assert abs(work() - 200) < 1e-2
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
work()
print("ended")
"""


def test_processes_fork_and_end_while_helpers_are_awake() -> None:
    environment = {**os.environ, compiled.SETTING: "wait"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_loops_run_without_the_pools_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    loops, kernels, x = compiled.kernels(), compiled.kernels, np.ones(4000, np.float32)
    monkeypatch.setattr(compiled, "kernels", lambda name="loops": None if name == "pool" else kernels(name))
    helpers.run_loop(loops.scaled, [(x[part], 2.0, x[part]) for part in threads.parts_of(4000, 9)], HELPERS)
    assert (x == 2).all()


def test_without_compiled_loops_helpers_help_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "kernels", lambda name="loops": None)
        test_pieces_are_computed_at_the_same_time()
    test_pieces_are_computed_at_the_same_time()
