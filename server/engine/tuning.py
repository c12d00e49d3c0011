"""Tunable operations, as in PyTorch: which of several solutions of a product was the fastest when measured.

Each session has its own results, which no other session sees. Results are lines of text in PyTorch's format,
``GemmTunableOp_float_TN,tn_512_256_1024_ld_...,Solution,milliseconds``. Knows nothing of how a product is computed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from telegrad_protocol.errors import ArgumentError

MOST_RESULTS = 1 << 16
"""Results that one session may keep: they come from clients."""
_CLEARLY = 0.98
"""What part of another's time is clearly less: two measurements of one solution differ by as much."""
LONGEST_MS = 10_000
"""Milliseconds for which one solution may be measured at most: other sessions wait meanwhile."""


class Result(NamedTuple):
    """The solution that was chosen, and the milliseconds that one run took."""

    solution: str
    milliseconds: float


TUNERS: dict[int, Callable[[Any], Tuner]] = {}
"""By the key of a device's backend: what returns a backend's results that are kept on the disk, for all sessions."""


class Tuner:
    """One session's settings of tuning, and its results."""

    def __init__(self) -> None:
        self.results: dict[tuple[str, str], Result] = {}
        self.reset()

    def reset(self) -> None:
        """Give the settings their defaults; results stay."""
        self.tunes = True
        self.max_duration_ms = 30
        self.max_iterations = 100

    def set(self, tunes: bool, max_duration_ms: int, max_iterations: int) -> None:
        """Set whether products without a result are measured, and how long and often each solution is."""
        self.tunes = tunes
        self.max_duration_ms = min(max(max_duration_ms, 0), LONGEST_MS)
        self.max_iterations = max(max_iterations, 0)

    def solution(self, operation: str, parameters: str) -> str | None:
        """The name of the solution that is known to be the fastest, None if there is no result."""
        result = self.results.get((operation, parameters))
        return None if result is None else result.solution

    def note(self, operation: str, parameters: str, result: Result) -> None:
        """Keep a result; raises ArgumentError if there are too many."""
        if len(self.results) >= MOST_RESULTS:
            raise ArgumentError(f"tunable: more than {MOST_RESULTS} results")
        self.results[operation, parameters] = result

    def lines(self) -> list[list[str]]:
        """All results: operation, parameters, solution, milliseconds."""
        return [
            [operation, parameters, result.solution, f"{result.milliseconds:.6g}"]
            for (operation, parameters), result in self.results.items()
        ]

    def load(self, lines: list[list[str]]) -> None:
        """Take over results of products that have none yet."""
        for operation, parameters, solution, milliseconds in lines:
            if (operation, parameters) not in self.results:
                self.note(operation, parameters, Result(solution, _milliseconds(milliseconds)))

    def fastest(self, solutions: Mapping[str, Callable[[int], float]]) -> Result:
        """Measure solutions, each a function that gives the milliseconds of a number of runs, and return the fastest.

        A solution whose first runs take over twice as long as the best so far is not measured further. Among those that
        hardly differ it is the first, which the library prefers.
        """
        best: Result | None = None
        for name, measure in solutions.items():
            measure(1)
            once = statistics.median([measure(1) for _ in range(3)])
            if best is not None and once > 2 * best.milliseconds:
                continue
            runs = self._runs(once)
            result = Result(name, measure(runs) / runs)
            if best is None or result.milliseconds < _CLEARLY * best.milliseconds:
                best = result
        if best is None:
            raise ArgumentError("tunable: there is nothing to choose from")
        return best

    def _runs(self, once: float) -> int:
        """How often to run what takes ``once`` milliseconds; a limit of 0 does not limit, as in PyTorch."""
        by_time = max(int(self.max_duration_ms / max(once, 1e-3)), 1)
        limits = [n for n, limit in ((by_time, self.max_duration_ms), (self.max_iterations,) * 2) if limit]
        return max(min(limits, default=1), 1)


def _milliseconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(f"tunable: expected milliseconds, got {text!r}") from None
