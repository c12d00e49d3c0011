"""Threads that share one operation's work on large operands: pieces of it are taken in turn until none is left.

What a piece writes does not depend on the thread that runs it. Code that runs in ``helpers`` must not touch values,
sessions or allocators.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from server.engine import blas_threads
from server.engine.device import helpers
from telegrad_protocol.native import processors

Task = Callable[[int], None]
LEAST_BYTES = 1 << 19
"""Bytes of operands and results from which on threads pay for memory-bound work: waking one takes some 30 us."""
LEAST_SHARE = 1 << 18
"""The same of what a thread takes at a time, at least."""
SHARES_PER_THREAD = 3
"""So that a thread that is held up, since other processes use the processors too, holds up less."""
VECTOR = 64
"""A multiple of the elements that compiled loops compute at a time."""
LEAST_PRODUCTS = 1 << 22
"""Multiply-adds that a thread takes at a time, at least; they pay from four times as many on."""
_LEAST_SHARE_PRODUCTS = 1 << 20
"""The same where pieces are parts of one compiled loop, and nothing else."""
_MOST_PRODUCTS = 1 << 27
"""Multiply-adds of a piece, at most: some milliseconds, after which it is seen whether work is to end."""


most = math.inf
"""A bound besides those that `available` finds; that of the session whose turn it is."""


def bound(number: float) -> None:
    """Set that bound, for BLAS too."""
    global most
    most = blas_threads.most = number


def count() -> int:
    """How many threads an operation may use."""
    return int(min(available(), most))


_MOST = 64
"""More threads do not pay for one operation."""


@cache
def available() -> int:
    """How many threads the environment, the processor set and the control group's quota allow."""
    named = [os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")]
    limits = [int(value) for value in named if value.isdecimal() and int(value) > 0]
    return max(1, min([processors.available(), *limits[:1], _MOST]))


def run(task: Task, pieces: int) -> None:
    """Call ``task`` with the numbers of all pieces, in this thread and others, with one thread of BLAS for each."""
    others = min(count(), pieces) - 1
    if others < 1:
        helpers.run(task, pieces, 0)
        return
    with blas_threads.one_thread():
        helpers.run(task, pieces, others)


def run_loop(loop: Any, calls: Sequence[tuple[Any, ...]], calls_blas: bool = False) -> None:
    """Call a compiled loop with each of several tuples of arguments, in this thread and others."""
    others = min(count(), len(calls)) - 1
    if calls_blas and others > 0:
        with blas_threads.one_thread():
            helpers.run_loop(loop, calls, others)
    else:
        helpers.run_loop(loop, calls, others)


def run_units(loop: Any, shares: Sequence[slice], given: Sequence[Any], scratch: Any = ()) -> None:
    """Call a compiled loop with the bounds of each of some slices of its units and the same arguments after them.

    The last argument is a part of ``scratch`` for each slice, if there is some.
    """
    helpers.run_units(loop, shares, given, scratch, min(count(), len(shares)) - 1)


stop = helpers.stop


def shares_of(length: int, nbytes: int, multiple: int = 1) -> Sequence[slice]:
    """Slices of a dimension for threads to take in turn; one slice where there is little work, or one thread.

    How many there are depends on the number of threads: for work of which each element is computed by itself. All but
    the last are a multiple of so many elements long: loops compute in vectors, and what is left over in another way.
    """
    number = count()
    if number == 1 or nbytes < LEAST_BYTES or length < 2 * multiple:
        return [slice(0, length)]
    units = -(-length // multiple)
    return _shares(length, units, multiple, max(1, min(units, nbytes // LEAST_SHARE, SHARES_PER_THREAD * number)))


@lru_cache(maxsize=1024)
def _shares(length: int, units: int, multiple: int, number: int) -> tuple[slice, ...]:
    """So many slices of a dimension of so many units."""
    parts = parts_of(units, number)
    return tuple([slice(part.start * multiple, min(part.stop * multiple, length)) for part in parts])


def shares_of_products(units: int, products: int) -> Sequence[slice]:
    """Slices of the units of a job of so many multiply-adds, of which each is computed by itself."""
    number = min(SHARES_PER_THREAD * count(), products // _LEAST_SHARE_PRODUCTS) if count() > 1 else 1
    return parts_of(units, min(units, max(1, number, products // _MOST_PRODUCTS)))


def run_vectors(loop: Any, *arrays: Any) -> None:
    """Call a compiled loop with vectors of the same elements of row-major arrays, of which it takes each by itself."""
    first = arrays[0]
    vectors = [array.reshape(-1) for array in arrays]
    shares = shares_of(first.size, first.nbytes * len(arrays), VECTOR)
    if len(shares) == 1:
        loop(*vectors)
    else:
        run_loop(loop, [tuple([vector[share] for vector in vectors]) for share in shares])


def pieces_of(length: int, nbytes: int, piece_bytes: int) -> Sequence[slice]:
    """Slices of a dimension of this length, of about ``piece_bytes`` each, the same for any number of threads."""
    return parts_of(length, max(1, min(length, nbytes // piece_bytes)))


@lru_cache(maxsize=1024)
def parts_of(length: int, number: int) -> tuple[slice, ...]:
    """So many slices of a dimension, of about the same size."""
    edges = [length * part // number for part in range(number + 1)]
    return tuple([slice(begin, end) for begin, end in pairwise(edges)])
