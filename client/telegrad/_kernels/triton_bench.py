"""Timing of kernels by events of the server, for Triton's autotuner and its ``do_bench``."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.current import current_session
from telegrad._session.devices import current_gpu
from telegrad.cuda.streams import Event
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError

CACHE_BYTES = 256 << 20
"""So much is written between two runs that are timed, so that no operand is left in the GPU's cache."""
_ESTIMATES = 5
_empty: Any = function("empty")
MOST_RUNS = 2000
"""A session may have 65,536 events, and a run takes two."""


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    **ignored: Any,
) -> Any:
    """Return how many milliseconds ``fn`` takes on the GPU: ``triton.testing.do_bench``.

    It runs for about ``warmup`` milliseconds, then for about ``rep``, each time with another tensor in the GPU's cache.
    The answer is the mean, or as ``quantiles`` or ``return_mode`` say. All times travel in one answer.
    """
    session = current_session()
    fn()
    cache = _empty(CACHE_BYTES // 4, dtype=dtypes.int32, device=current_gpu(session, "do_bench"))
    estimate = max(_times(fn, cache, None, _ESTIMATES)) or 1e-3
    for _ in range(min(MOST_RUNS, max(1, int(warmup / estimate)))):
        fn()
    return _summary(
        _times(fn, cache, grad_to_none, min(MOST_RUNS, max(1, int(rep / estimate)))), quantiles, return_mode
    )


def _times(fn: Callable[[], Any], cache: Any, grad_to_none: Sequence[Any] | None, runs: int) -> list[float]:
    session = current_session()
    pairs = []
    for _ in range(runs):
        for tensor in grad_to_none or ():
            tensor.grad = None
        cache.zero_()
        start, end = Event(enable_timing=True), Event(enable_timing=True)
        start.record()
        fn()
        end.record()
        pairs.append((start, end))
    starts, ends = [start._id for start, _ in pairs], [end._id for _, end in pairs]
    return [float(time) for time in session.query("elapsed_times", starts, ends)]


def _summary(times: list[float], quantiles: Sequence[float] | None, return_mode: str) -> Any:
    if quantiles is not None:
        found = [_quantile(sorted(times), quantile) for quantile in quantiles]
        return found[0] if len(found) == 1 else found
    modes: dict[str, Callable[[list[float]], Any]] = {
        "mean": statistics.mean, "median": statistics.median, "min": min, "max": max, "all": list,
    }  # fmt: skip
    if return_mode not in modes:
        raise ArgumentError(f"do_bench: return_mode is one of {', '.join(modes)}, not {return_mode!r}")
    return modes[return_mode](times)


def _quantile(times: list[float], quantile: float) -> float:
    """Return a quantile of sorted times, between two of them by linear interpolation."""
    place = quantile * (len(times) - 1)
    below = int(place)
    above = min(below + 1, len(times) - 1)
    return times[below] + (times[above] - times[below]) * (place - below)
