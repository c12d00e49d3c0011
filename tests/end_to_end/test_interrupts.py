"""Ctrl-C at any moment leaves the session usable, and loses or repeats nothing."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest


@contextmanager
def interrupts(seed: int, longest: float) -> Iterator[list[int]]:
    """Interrupts ``_repeat`` in the main thread again and again, at random moments within the block.

    What ends the block is left alone: an interrupt on its way there would let the interrupts go on behind it.
    """
    draw = random.Random(seed)
    stop, sent = threading.Event(), [0]

    def handle(number: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not _repeat.__code__:
            frame = frame.f_back
        if frame is not None:
            raise KeyboardInterrupt

    def interrupt() -> None:
        while not stop.wait(draw.uniform(0.0005, longest)):
            sent[0] += 1
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, handle)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGINT, before)


def _repeat(seconds: float, step: Any) -> int:
    """Call ``step`` for a while; how often it was interrupted."""
    interrupted = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            step()
        except KeyboardInterrupt:
            interrupted += 1
    return interrupted


def _survive(action: Any) -> Any:
    while True:
        try:
            return action()
        except KeyboardInterrupt:
            continue


def test_reads_can_be_interrupted(tg: Any, seed: int) -> None:
    small, large = tg.arange(10), tg.arange(400_000)
    expected = np.arange(400_000)

    def step() -> None:
        assert small.tolist() == list(range(10))
        np.testing.assert_array_equal(large.numpy(), expected)

    try:
        with interrupts(seed, 0.02):
            assert _repeat(2.0, step) > 10
    except KeyboardInterrupt:
        pass
    step()
    assert small._session.is_idle


def test_uploads_can_be_interrupted(tg: Any, seed: int) -> None:
    data = np.random.default_rng(seed).standard_normal(1_000_000)
    try:
        with interrupts(seed, 0.03):
            assert _repeat(2.0, lambda: tg.from_numpy(data)) > 10
    except KeyboardInterrupt:
        pass
    np.testing.assert_array_equal(tg.from_numpy(data).numpy(), data)
    allocated = _survive(lambda: tg.cuda.memory_allocated())
    assert allocated <= data.nbytes * 2


def test_no_operation_is_lost_or_repeated(unbounded_tg: Any, seed: int) -> None:
    """What was queued before an interrupt that the program handles runs exactly once, whatever it came into."""
    tg = unbounded_tg
    counter = tg.zeros(1, dtype=tg.int64)
    session = counter._session
    before = session.operations
    try:
        with interrupts(seed, 0.002):
            assert _repeat(3.0, lambda: counter.add_(1)) > 100
    except KeyboardInterrupt:
        pass
    submitted = session.operations - before
    assert counter.item() in range(submitted, submitted + 1 + submitted // 1000)


def test_an_interrupted_program_goes_on(tg: Any, seed: int) -> None:
    x = tg.ones(100, requires_grad=True)

    def step() -> None:
        (x * 2).sum().backward()
        x.grad = None
        nonzero = (tg.arange(10) > 4).nonzero()
        assert nonzero.shape == (5, 1)

    try:
        with interrupts(seed, 0.01):
            assert _repeat(2.0, step) > 10
    except KeyboardInterrupt:
        pass
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 100


@pytest.fixture(autouse=True)
def _quiet_hooks() -> Iterator[None]:
    """An interrupt inside of a finalizer is reported by Python and goes nowhere; it is not an error here."""
    import sys

    previous, sys.unraisablehook = sys.unraisablehook, lambda _: None
    yield
    sys.unraisablehook = previous
