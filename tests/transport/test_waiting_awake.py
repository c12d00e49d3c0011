"""Clients and workers wait awake where answers and requests come soon, and asleep where that was in vain (0129)."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import telegrad as tg
from server import native
from telegrad._native import binding
from telegrad_protocol.native import place, processors

from ..support.compilers import needs_calls_in_c
from .waiting import wait_until

worker: Any = native.load()
needs_worker_in_c = pytest.mark.skipif(worker is None, reason="the worker's C is not compiled here")
MOST_READS = 100_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    here, there = os.pipe()
    yield here, there
    os.close(here)
    os.close(there)


def wait_for_a_byte(pipe: tuple[int, int]) -> tuple[int, int, int]:
    """Wait where something is there already, which is a short wait, and return what was seen of waits then."""
    os.write(pipe[1], b"x")
    worker.wait_awake(pipe[0], -1)
    assert os.read(pipe[0], 9) == b"x"
    told: tuple[int, int, int] = worker.waits_awake()
    return told


def be_awake(pipe: tuple[int, int]) -> int:
    """Make short waits until one was awake, so that the next is; return how many waits were."""
    looks = worker.waits_awake()[0]
    for _ in range(MOST_READS):
        told = wait_for_a_byte(pipe)
        if told[0] > looks:
            return told[0]
    raise AssertionError("no wait was awake")


def wait_in_vain(pipe: tuple[int, int]) -> None:
    """Wait for what comes once the waiting thread sleeps."""
    waiting = threading.Thread(target=worker.wait_awake, args=(pipe[0], -1))
    waiting.start()
    state = Path(f"/proc/self/task/{waiting.native_id}/stat")
    wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "S", "it sleeps")
    os.write(pipe[1], b"x")
    waiting.join()
    os.read(pipe[0], 9)


@needs_worker_in_c
def test_short_waits_are_followed_by_waits_awake_and_those_in_vain_by_sleep(pipe: tuple[int, int]) -> None:
    vainly = worker.waits_awake()[1]
    for _ in range(MOST_READS):
        be_awake(pipe)
        wait_in_vain(pipe)
        looks, now, asleep = worker.waits_awake()
        if now > vainly:
            break
    assert asleep > 0
    for _ in range(MOST_READS):
        told = wait_for_a_byte(pipe)
        assert told[0] == looks, "short waits are asleep for a while after one in vain"
        if told[2] == 0:
            break
    assert be_awake(pipe) > looks


@needs_worker_in_c
def test_a_signal_that_comes_while_the_wait_is_awake_is_handled_before_it_sleeps(pipe: tuple[int, int]) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: os.write(pipe[1], b"s") and None)
    try:
        for microseconds in range(5, 205, 2):
            be_awake(pipe)
            signal.setitimer(signal.ITIMER_REAL, microseconds * 1e-6)
            got = b""
            while not got:  # without its handler nothing would ever come
                worker.wait_awake(pipe[0], -1)
                os.set_blocking(pipe[0], False)
                with contextlib.suppress(BlockingIOError):
                    got = os.read(pipe[0], 9)
                os.set_blocking(pipe[0], True)
            assert got == b"s"
    finally:
        signal.signal(signal.SIGALRM, before)


@needs_worker_in_c
def test_what_is_no_descriptor_is_refused() -> None:
    for wrong in (-1, "file", None):
        with pytest.raises((TypeError, ValueError)):
            worker.wait_awake(wrong, -1)
    with pytest.raises(TypeError):
        worker.wait_awake(0)


@needs_worker_in_c
def test_a_wait_ends_with_its_time(pipe: tuple[int, int]) -> None:
    be_awake(pipe)
    for milliseconds in (0, 1, 1):
        worker.wait_awake(pipe[0], milliseconds)
    assert wait_for_a_byte(pipe)


@needs_calls_in_c
@pytest.mark.skipif(not processors.can_wait_awake(), reason="there is one processor")
def test_a_client_that_reads_one_value_after_the_other_waits_awake() -> None:
    with tg.connect(devices="cpu"):
        value = tg.ones(())
        looks = binding.native.waits_awake()[0]
        for _ in range(MOST_READS):
            assert value.item() == 1.0
            if binding.native.waits_awake()[0] > looks:
                break
        assert binding.native.waits_awake()[0] > looks


@pytest.mark.parametrize(
    ("content", "expected"), [("max 100000\n", []), ("150000 100000\n", [2]), ("50000 100000\n", [1])]
)
def test_the_quota_of_the_control_group_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, expected: list[int]
) -> None:
    (tmp_path / "cpu.max").write_text(content)
    monkeypatch.setattr(processors, "QUOTAS", (str(tmp_path / "missing"), str(tmp_path / "cpu.max")))
    assert processors.quota() == expected
    assert processors.available() <= min([len(os.sched_getaffinity(0)), *expected])


@pytest.mark.parametrize(
    ("processors_here", "quota", "expected"),
    [(1, [], False), (2, [], True), (8, [2], False), (8, [3], True), (1, [3], False)],
)
def test_nobody_waits_awake_on_the_only_processor_or_within_a_small_quota(
    monkeypatch: pytest.MonkeyPatch, processors_here: int, quota: list[int], expected: bool
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors_here)))
    monkeypatch.setattr(processors, "quota", lambda: quota)
    assert processors.can_wait_awake() is expected


def test_machine_code_depends_on_the_text_that_modules_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "own" / "module.c"
    source.parent.mkdir()
    source.write_text("int one;")
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(place, "HEADERS", shared)
    before = place.library(source)
    (shared / "awake.h").write_text("int two;")
    assert place.library(source) != before
