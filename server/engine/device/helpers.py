"""Threads that help one thread with its work, and wait for the next job in between: shortly awake, then asleep.

With compiled loops they wait, and take pieces of compiled loops, without Python's lock; see ``engine.compiled.pool``.
What PyTorch's threads do, too, is to stay awake for a while after a job: to wake one that sleeps takes longer than many
operations do. Meanwhile they let other threads of their processor run, and sleep at once where one wants it. They keep
off the processor of the thread that they help, where the system may otherwise put them, to have both wait for each
other.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import numpy as np

from server.engine import compiled
from server.engine.device import cancellation

_AWAKE = 3e-4
"""Seconds that a helper stays awake after its last job, at most."""
_AT_A_TIME = 32
"""Pieces that the first thread takes before it looks whether it is to end."""


def _find_processor() -> Callable[[], int]:
    """The function that tells the processor on which the calling thread runs; always -1 where the system has none."""
    if hasattr(os, "sched_setaffinity"):
        with suppress(AttributeError):
            return ctypes.PyDLL(None).sched_getcpu
    return lambda: -1


_processor = _find_processor()


class Job:
    """The pieces of one operation that Python computes; a thread that comes late finds nothing to do."""

    __slots__ = ("active", "closed", "done", "error", "lock", "pieces", "task")

    def __init__(self, task: Callable[[int], None], pieces: int) -> None:
        self.task: Callable[[int], None] | None = task
        self.pieces = iter(range(pieces))
        self.lock = threading.Lock()
        self.done = threading.Lock()
        self.done.acquire()
        self.active = 0
        self.closed = False
        self.error: BaseException | None = None

    def help(self) -> None:
        """Run pieces until none is left; do nothing if that is so already."""
        with self.lock:
            task = self.task
            if task is None:
                return
            self.active += 1
        try:
            for piece in self.pieces:
                task(piece)
        except BaseException as error:  # the thread that waits raises it
            self.error = error
            self.stop()
        task = None
        with self.lock:
            self.active -= 1
            if self.closed and not self.active:
                self.done.release()

    def stop(self) -> None:
        """Leave the pieces that nobody has begun."""
        for _ in self.pieces:
            pass

    def finish(self) -> None:
        """Wait for the threads that are at work; those that come later find nothing to do."""
        with self.lock:
            self.closed, self.task = True, None
            is_busy = self.active > 0
        if is_busy:
            self.done.acquire()


class _Pool:
    """The helpers, what they and ``pool`` share, and the last job of Python's."""

    def __init__(self) -> None:
        self.busy = threading.Lock()
        self.threads: list[threading.Thread] = []
        self.wakes: list[SimpleQueue[bool]] = []
        """For each helper: True wakes it, False ends it."""
        self.native: Any = None
        self.calls: Any = None
        self.job: Job | None = None
        self.waits = 0
        self._memory = np.zeros(0, np.int64)
        self.state = 0
        self._processor = -1

    def start(self, helpers: int) -> None:
        """Have so many threads, and compiled loops if there are any by now."""
        if self.native is None:
            self._load()
        while len(self.threads) < helpers:
            wake: SimpleQueue[bool] = SimpleQueue()
            name = f"cpu kernels {len(self.threads) + 1}"
            thread = threading.Thread(target=self._serve, args=(len(self.threads), wake), name=name, daemon=True)
            self.threads.append(thread)
            self.wakes.append(wake)
            thread.start()
            self._processor = -1

    def _load(self) -> None:
        native, calls = compiled.kernels("pool"), compiled.kernels("calls")
        if native is None or calls is None:
            return
        self._memory = np.zeros(native.WORDS + 8, np.int64)
        self.state = -(-self._memory.ctypes.data // 64) * 64  # where a cache line begins
        self.waits = int(_AWAKE / min([_seconds_of(native.wait) for _ in range(100)])) + 1
        self.native, self.calls = native, calls
        for wake in self.wakes:
            wake.put(True)

    def publish(self, helpers: int, records: int, stride: int, pieces: int, is_python: bool) -> None:
        """Open a job for so many helpers, and wake those of them that sleep."""
        if self.native is None:
            for wake in self.wakes[:helpers]:
                wake.put(True)
            return
        self._keep_off()
        asleep = self.native.publish(self.state, records, stride, pieces, helpers, is_python)
        helper = 0
        while asleep:
            if asleep & 1:
                self.wakes[helper].put(True)
            asleep, helper = asleep >> 1, helper + 1

    def _keep_off(self) -> None:
        """Keep helpers off the processor that this thread runs on."""
        here = _processor()
        if here == self._processor:
            return
        self._processor = here
        others = os.sched_getaffinity(0) - {here}
        with suppress(OSError):
            for thread in self.threads if others else ():
                os.sched_setaffinity(thread.native_id or 0, others)

    def _serve(self, helper: int, wake: SimpleQueue[bool]) -> None:
        np.seterr(all="ignore")  # a setting of each thread
        while True:
            native = self.native
            why = native.serve(self.state, helper, self.waits) if native is not None else 0
            if native is not None and why == native.ENDS:
                return
            if (native is None or why == native.SLEEPS) and not wake.get():
                return
            job = self.job
            if job is not None:
                job.help()
            del job

    def end(self) -> None:
        """End the threads."""
        if self.native is not None:
            self.native.end(self.state, len(self.threads))
        for wake in self.wakes:
            wake.put(False)
        for thread in self.threads:
            thread.join()


def _seconds_of(function: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


_pool = _Pool()


def run(task: Callable[[int], None], pieces: int, helpers: int) -> None:
    """Call ``task`` with the numbers of all pieces, in this thread and so many helpers."""
    pool = _pool
    if helpers < 1 or not pool.busy.acquire(blocking=False):
        for piece in range(pieces):
            _look(task, piece)
        return
    try:
        pool.start(helpers)
        job = pool.job = Job(task, pieces)
        pool.publish(helpers, 0, 0, 0, True)
        try:
            for piece in job.pieces:
                _look(task, piece)
        except BaseException:
            job.stop()
            raise
        finally:
            pool.job = None
            job.finish()
    finally:
        pool.busy.release()
    if job.error is not None:
        raise job.error


def _look(task: Callable[[int], None], piece: int) -> None:
    if cancellation.requested:
        cancellation.stop()
    task(piece)


def run_loop(loop: Any, calls: Sequence[tuple[Any, ...]], helpers: int) -> None:
    """Call a compiled loop with each of several tuples of arguments, in this thread and so many helpers."""
    pool = _pool
    if helpers < 1 or not pool.busy.acquire(blocking=False):
        _call_all(loop, calls)
        return
    try:
        pool.start(helpers)
        if pool.native is None:
            _call_all(loop, calls)
            return
        form = pool.calls.form_of(loop)
        _work(pool, form, pool.calls.records(form, calls), len(calls), helpers)
    finally:
        pool.busy.release()


def run_units(loop: Any, shares: Sequence[slice], given: Sequence[Any], scratch: Any, helpers: int) -> None:
    """The same for calls that differ in the units that they do, and in their scratch memory if there is some."""
    pool = _pool
    if helpers < 1 or not pool.busy.acquire(blocking=False):
        _call_all(loop, unit_calls(shares, given, scratch))
        return
    try:
        pool.start(helpers)
        if pool.native is None:
            _call_all(loop, unit_calls(shares, given, scratch))
            return
        form = pool.calls.form_of(loop)
        _work(pool, form, pool.calls.unit_records(form, shares, given, scratch), len(shares), helpers)
    finally:
        pool.busy.release()


def unit_calls(shares: Sequence[slice], given: Sequence[Any], scratch: Any) -> list[tuple[Any, ...]]:
    """The arguments of each of those calls."""
    return [(s.start, s.stop, *given, *scratch[number : number + 1]) for number, s in enumerate(shares)]


def _work(pool: _Pool, form: Any, records: Any, pieces: int, helpers: int) -> None:
    """Have helpers do pieces of compiled loops, and do those that they leave."""
    pool.publish(helpers, ctypes.addressof(records), form.size, pieces, False)
    try:
        is_left = True
        while is_left:
            if cancellation.requested:
                cancellation.stop()
            is_left = pool.native.work(pool.state, _AT_A_TIME)
    except BaseException:
        pool.native.close(pool.state)
        raise


def _call_all(loop: Any, calls: Sequence[tuple[Any, ...]]) -> None:
    for arguments in calls:
        if cancellation.requested:
            cancellation.stop()
        loop(*arguments)


def stop() -> None:
    """End the threads; the next operation that wants them starts new ones."""
    global _pool
    _pool.end()
    _pool = _Pool()


def _forget() -> None:
    """In a forked process, start anew: threads are not inherited."""
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_forget)
atexit.register(stop)
