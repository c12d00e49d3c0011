"""How many threads the host's BLAS uses: one for small work, all for large.

BLAS lets its threads spin for some 30 ms after their last work, which takes the core that gateway and client need on a
machine with few cores. A process that shares its machine with them calls `share_cores`; after that only operations on
at least ``LARGE`` bytes wake those threads. See docs/decisions/0013.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

from .array_library.host_libraries import mkl, when_scipy_is_loaded

LARGE = 2 << 20
"""Bytes of operands and results from which on several threads are faster: a product of two matrices of 400 x 400."""
_shared: list[tuple[Any, int]] = []
"""The BLAS libraries of a process that called `share_cores`, with the number of threads that each had."""


def share_cores() -> None:
    """Use one thread from here on, except for large work."""
    if not _shared:
        mkl()  # which is loaded before libraries are listed
        _take_libraries()


@when_scipy_is_loaded
def _share_more() -> None:
    if _shared:
        _take_libraries()


def _take_libraries() -> None:
    """Hold the BLAS libraries to one thread that were loaded since this was last done."""
    known = {library.filepath for library, _ in _shared}
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    _shared.extend([(lib, lib.num_threads) for lib in libraries if lib.filepath not in known and lib.num_threads > 1])
    _set(_is_alone)


def on_all_threads(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``run``, with all of BLAS's threads."""

    def threaded(args: Any) -> Any:
        if not _shared or most <= 1:
            return run(args)
        _set(alone=False)
        try:
            return run(args)
        finally:
            _set(alone=True)

    return threaded


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold BLAS to the thread that calls it, inside of `on_all_threads` too."""
    if _is_alone:
        yield
        return
    _set(alone=True)
    try:
        yield
    finally:
        _set(alone=False)


_is_alone = True
most = math.inf
"""A bound for all of BLAS's threads, besides how many it has."""


def _set(alone: bool) -> None:
    global _is_alone
    _is_alone = alone
    for library, threads in _shared:
        library.set_num_threads(1 if alone else int(min(threads, most)))
