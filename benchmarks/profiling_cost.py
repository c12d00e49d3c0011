"""What a profile costs an operation, in pairs of loops of small ones: ``benchmarks.profiling`` shows the figures.

A loop under a profile stands between two without one, whose mean is taken off, so that what else the machine does
meanwhile weighs on both. Loops are short, and there are many.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from telegrad._session.current import current_session
from telegrad._session.session import ClientSession
from telegrad.profiler._log import ClientLog

from .measure import Figure, figure

CALLS = 1000
ROUNDS = 60
LIMIT = 64 << 20
Loop = Callable[[], float]


def cost_figures(tg: Any, device: str, clock: Callable[[], float] = time.perf_counter) -> list[Figure]:
    """Microseconds that a small operation takes longer under a profile, client and worker together."""
    loop = _loop(tg, device, clock)
    off, on, more = _pairs(loop, lambda: _profiled(tg, loop))
    return [
        figure("add 64x64: an operation without a profile", "us", off),
        figure("add 64x64: an operation under a profile", "us", on),
        figure("add 64x64: the difference", "us", more, at_most=2.0),
    ]


def part_figures(tg: Any) -> list[Figure]:
    """Microseconds of processor time that each end adds, in a session whose worker is a part of this process."""
    loop, session = _loop(tg, "cpu", time.thread_time), current_session()
    parts = {"the client": _client_part, "the worker": _worker_part}
    figures = []
    for name, part in parts.items():
        _, _, more = _pairs(loop, lambda part=part: part(session, loop))  # type: ignore[misc]
        figures.append(figure(f"add 64x64 on the CPU: what {name} adds", "us", more))
    return figures


def _loop(tg: Any, device: str, clock: Callable[[], float]) -> Loop:
    a, b = tg.randn(64, 64, device=device), tg.randn(64, 64, device=device)

    def loop() -> float:
        tg.cuda.synchronize()
        begin = clock()
        for _ in range(CALLS):
            a + b
        tg.cuda.synchronize()
        return (clock() - begin) / CALLS * 1e6

    for _ in range(5):
        loop()
    return loop


def _pairs(plain: Loop, noted: Loop) -> tuple[list[float], list[float], list[float]]:
    """Return times without a profile, with one, and the differences."""
    noted()
    off, on = [plain()], []
    for _ in range(ROUNDS):
        on.append(noted())
        off.append(plain())
    return off, on, [time - (before + after) / 2 for time, before, after in zip(on, off, off[1:], strict=False)]


def _profiled(tg: Any, loop: Loop) -> float:
    with tg.profiler.profile():
        loop()  # first calls under a profile make their plans anew
        return loop()


def _client_part(session: ClientSession, loop: Loop) -> float:
    log = ClientLog(session, with_stack=False)
    log.start()
    try:
        return loop()
    finally:
        log.stop()


def _worker_part(session: ClientSession, loop: Loop) -> float:
    session.query("start_profile", False, True, LIMIT)
    try:
        return loop()
    finally:
        session.free(session.query("stop_profile"))
