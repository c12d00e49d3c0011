"""Timing code as ``timeit`` does, but by what the server has done: a time ends when the devices have finished."""

from __future__ import annotations

import enum
import sys
import textwrap
import timeit
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

from telegrad._functions.process_settings import get_num_threads, set_num_threads
from telegrad._session.current import current_session
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError

from .measurement import Measurement, TaskSpec

_BLOCK_SECONDS: Final = 1e-3
"""A run shorter than this would be told wrong by the clock, and by the wait for the server."""
_MOST_RUNS: Final = 10_000_000


class Language(enum.Enum):
    """What code is written in."""

    PYTHON = 0
    CPP = 1


def timer() -> float:
    """Wait until the server has done everything that was submitted; return the time in seconds, from any beginning."""
    session = current_session()
    for device in session.devices:
        session.synchronize(device.name)
    return perf_counter()


class Timer:
    """Times a statement, which sees ``globals`` and what ``setup`` has made.

    A time has the wait for the server in it, once a run: take `blocked_autorange`, whose runs are long enough. There
    is no code in C++ (NotSupportedError).
    """

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None, label: str | None = None, sub_label: str | None = None,
        description: str | None = None, env: str | None = None, num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:  # fmt: skip
        if not isinstance(stmt, str):
            raise ArgumentTypeError(f"Timer: stmt must be a text, not {type(stmt).__name__}")
        _check_language(language, global_setup)
        stmt, setup = (textwrap.dedent(code).strip() or "pass" for code in (stmt, setup))
        self._globals = {**(globals or {}), "torch": (globals or {}).get("torch", sys.modules["telegrad"])}
        self._timer = timeit.Timer(stmt, setup, timer, self._globals)
        self._task_spec = TaskSpec(stmt, setup, "", label, sub_label, description, env, num_threads)

    def collect_callgrind(self, number: int = 100, **options: Any) -> Any:
        """Raise NotSupportedError: instructions could be counted of the client alone, not of the server's work."""
        raise NotSupportedError(
            "Timer: callgrind would count the client's instructions, and the server does the work; use "
            "blocked_autorange, or torch.profiler"
        )

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """Execute the statement so often in one run, after a hundredth of that for warming up."""
        with _Threads(self._task_spec.num_threads):
            self._timer.timeit(max(number // 100, 2))
            return Measurement(number, [self._timer.timeit(number)], self._task_spec)

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Make runs for ``min_run_time`` seconds, each long enough for its time to mean something.

        ``callback`` gets the number of executions and the seconds of each run.
        """
        with _Threads(self._task_spec.num_threads):
            number = self._block_size(min_run_time)
            return Measurement(number, self._runs(number, min_run_time, callback), self._task_spec)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:  # fmt: skip
        """Make runs until the range of their middle half is below a share of the median, or time is over."""
        with _Threads(self._task_spec.num_threads):
            number, times = self._block_size(0.05), []
            begin = perf_counter()
            while True:
                times += self._runs(number, min_run_time, callback)
                found = Measurement(number, times, self._task_spec)
                if (len(times) > 3 and found.meets_confidence(threshold)) or perf_counter() - begin > max_run_time:
                    return found

    def _runs(self, number: int, seconds: float, callback: Callable[[int, float], Any] | None) -> list[float]:
        times: list[float] = []
        while sum(times) < seconds:
            times.append(self._timer.timeit(number))
            if callback is not None:
                callback(number, times[-1])
        return times

    def _block_size(self, min_run_time: float) -> int:
        """How many executions a run needs so that asking for the time is a thousandth of it, and no more than that."""
        overhead = min(self._timer.timeit(0) for _ in range(5))
        number = 1
        while number < _MOST_RUNS:
            seconds = self._timer.timeit(number)
            if overhead <= seconds * 1e-2 and seconds >= min(min_run_time / 1000, _BLOCK_SECONDS):
                break
            if seconds > min_run_time:
                break
            number *= 10
        return number


class _Threads:
    """Has a block be told another number of threads."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __enter__(self) -> None:
        self._before = get_num_threads()
        set_num_threads(self._count)

    def __exit__(self, *error: object) -> None:
        set_num_threads(self._before)


def _check_language(language: Language | str, global_setup: str) -> None:
    name = language.name if isinstance(language, Language) else str(language)
    if name.lower() in ("cpp", "c++"):
        raise NotSupportedError("Timer: code in C++ cannot be timed; time the operator that it is registered as")
    if name.lower() not in ("python", "py"):
        raise ArgumentError(f"Invalid language `{language}`. Timer: language must be 'python'")
    if global_setup:
        raise ArgumentError("Timer: global_setup is for code in C++; use setup")
