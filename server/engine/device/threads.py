"""Threads that share one operation's work on large operands: pieces of it are taken in turn until none is left.

What a piece writes does not depend on the thread that runs it. Threads are daemons that sleep between operations. Code
that runs in them must not touch values, sessions or allocators.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from queue import SimpleQueue

import numpy as np

from server.engine import blas_threads
from server.engine.device import cancellation

Task = Callable[[int], None]
LEAST_BYTES = 1 << 19
"""Bytes of operands and results from which on threads pay for memory-bound work: waking one takes some 30 us."""
LEAST_PRODUCTS = 1 << 23
"""Multiply-adds from which on threads pay for a product of matrices."""


most = math.inf
"""A bound besides those that `available` finds; that of the session whose turn it is."""


def bound(number: float) -> None:
    """Set that bound, for BLAS too."""
    global most
    most = blas_threads.most = number


def count() -> int:
    """How many threads an operation may use."""
    return int(min(available(), most))


@cache
def available() -> int:
    """How many threads the environment, the processor set and the control group's quota allow."""
    named = [os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")]
    limits = [int(value) for value in named if value.isdecimal() and int(value) > 0]
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([available, *limits[:1], *quota()]))


QUOTAS = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")


def quota() -> list[int]:
    """The processors that the control group's quota is worth, rounded up; nothing where there is no quota."""
    for path in QUOTAS:
        try:
            with open(path) as file:
                quota, *period = file.read().split()
        except (OSError, ValueError):
            continue
        if quota.isdecimal():
            return [max(1, -(-int(quota) // int(period[0] if period else 100_000)))]
    return []


class _Job:
    """The pieces of one operation, and how many threads besides the first are at work on them."""

    __slots__ = ("active", "closed", "done", "error", "lock", "pieces", "task")

    def __init__(self, task: Task, pieces: int) -> None:
        self.task: Task | None = task
        self.pieces: Iterator[int] = iter(range(pieces))
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


_jobs: SimpleQueue[_Job | None] = SimpleQueue()
_helpers: list[threading.Thread] = []


def run(task: Task, pieces: int) -> None:
    """Call ``task`` with the numbers of all pieces, in this thread and others, with one thread of BLAS for each."""
    helpers = min(count(), pieces) - 1
    if helpers < 1:
        for piece in range(pieces):
            _look(task, piece)
        return
    if len(_helpers) < helpers:
        _start(helpers)
    job = _Job(task, pieces)
    with blas_threads.one_thread():
        for _ in range(helpers):
            _jobs.put(job)
        try:
            for piece in job.pieces:
                _look(task, piece)
        except BaseException:
            job.stop()
            raise
        finally:
            job.finish()
    if job.error is not None:
        raise job.error


def _look(task: Task, piece: int) -> None:
    if cancellation.requested:
        cancellation.stop()
    task(piece)


def _start(helpers: int) -> None:
    while len(_helpers) < helpers:
        thread = threading.Thread(target=_serve, name=f"cpu kernels {len(_helpers) + 1}", daemon=True)
        _helpers.append(thread)
        thread.start()


def _serve() -> None:
    np.seterr(all="ignore")  # a setting of each thread
    while (job := _jobs.get()) is not None:
        job.help()
        del job


def stop() -> None:
    """End the threads; the next operation that wants them starts new ones."""
    for _ in _helpers:
        _jobs.put(None)
    for thread in _helpers:
        thread.join()
    _helpers.clear()


def _forget() -> None:
    """In a forked process, start anew: threads are not inherited."""
    global _jobs
    _jobs = SimpleQueue()
    _helpers.clear()


os.register_at_fork(after_in_child=_forget)


def pieces_of(length: int, nbytes: int, piece_bytes: int) -> list[slice]:
    """Slices of a dimension of this length, of about ``piece_bytes`` each, the same for any number of threads."""
    return parts_of(length, max(1, min(length, nbytes // piece_bytes)))


def parts_of(length: int, number: int) -> list[slice]:
    """So many slices of a dimension, of about the same size."""
    edges = [length * part // number for part in range(number + 1)]
    return [slice(begin, end) for begin, end in pairwise(edges)]
