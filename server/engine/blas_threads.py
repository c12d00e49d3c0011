"""How many threads the host's BLAS uses: one for small work, all for large.

BLAS lets its threads spin for some 30 ms after their last work, which takes the core that gateway and client need on a
machine with few of them. A process that has neighbours calls `share_cores`, from when on only operations on much memory
wake those threads. See docs/decisions/0013.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from threadpoolctl import ThreadpoolController

LARGE = 2 << 20
"""From this many bytes of operands and results on, all threads pay: a product of two square matrices of 400."""
_shared: list[tuple[Any, int]] = []
"""The BLAS libraries of a process that shares its cores, with the number of threads of each."""


def share_cores() -> None:
    """Use one thread from here on, but for large work."""
    if not _shared:
        found = ThreadpoolController().select(user_api="blas").lib_controllers
        _shared.extend([(each, each.num_threads) for each in found if each.num_threads > 1])
        _set(alone=True)


def on_all_threads(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``run``, with all of BLAS's threads."""

    def threaded(args: Any) -> Any:
        if not _shared:
            return run(args)
        _set(alone=False)
        try:
            return run(args)
        finally:
            _set(alone=True)

    return threaded


def _set(alone: bool) -> None:
    for library, threads in _shared:
        library.set_num_threads(1 if alone else threads)
