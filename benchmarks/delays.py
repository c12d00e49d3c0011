"""Steps through a slow network, compiled and eager: ``python -m benchmarks.delays [--save NAME]``.

A real client and a real gateway have a proxy between them that adds 1, 30 or 150 ms to round trips; steps read nothing.
A step's time is the difference between many steps and half as many, each with one read at the end, so that the read
itself is not counted. Delays take turns, on sessions that are open all the time; figures are ratios to the time through
a proxy that adds nothing, in the same round.

Time in which the worker's thread waited for a processor is taken off by the system's account, so that the machine need
not be idle. Beside the ratios stands for how long of a step the worker slept for want of work, as it does where a delay
shows. What the proxy itself costs, and what a slow network drops or reorders, they do not show.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.end_to_end.server_process import ServerProcess
from tests.transport.fault_proxy import FaultProxy

from .measure import Figure, figure, save

DELAYS = (1, 30, 150)
"""Milliseconds that are added to a round trip."""
WAYS = ("eager", "compiled")
STEPS = 100
ROUNDS = 9
BATCH_BYTES = 128 * 64 * 4 + 128 * 8
_WARM = 60
Step = Callable[[], Any]


class Times(NamedTuple):
    """Seconds that passed, but for those in which the worker waited for a processor, and those in which it slept."""

    passed: float
    asleep: float

    @classmethod
    def now(cls, worker: int) -> Times:
        """The clock, without what the worker's thread has waited, and without what it has waited or run."""
        ran, waited, _ = map(int, Path(f"/proc/{worker}/task/{worker}/schedstat").read_text().split())
        at = time.perf_counter() - waited / 1e9
        return cls(at, at - ran / 1e9)


class Sample(NamedTuple):
    """Times of twice ``STEPS`` steps and of ``STEPS``, and the bytes that a step has sent besides its batch."""

    twice: Times
    once: Times
    nbytes: float


Measure = Callable[[str], Sample]


def _training(tg: Any, compiled: bool) -> Step:
    """An MLP's step of AdamW on a new batch of 128 rows from the host."""
    rng = np.random.default_rng(0)
    nn = tg.nn
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = tg.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = rng.standard_normal((128, 64), np.float32), rng.integers(0, 10, 128)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    chosen = tg.compile(step) if compiled else step
    return lambda: chosen(tg.from_numpy(x), tg.from_numpy(y))


def _times(step: Step, count: int, worker: int) -> Times:
    begin = Times.now(worker)
    for _ in range(count):
        loss = step()
    loss.item()
    end = Times.now(worker)
    return Times(end.passed - begin.passed, end.asleep - begin.asleep)


@contextlib.contextmanager
def _connected(server: ServerProcess, delay: int) -> Iterator[Measure]:
    """Yield what measures eager or compiled steps through a delay in milliseconds."""
    import telegrad as tg
    from telegrad._session.current import using

    with contextlib.ExitStack() as stack:
        port = stack.enter_context(FaultProxy(server.port, delay=delay / 2e3)).port
        session = stack.enter_context(tg.connect(f"http://127.0.0.1:{port}")).session
        steps = {way: _training(tg, way == "compiled") for way in WAYS}

        def measure(way: str, steps_of_half: int = STEPS) -> Sample:
            with using(session):
                before = tg.wire_stats()
                twice, once = [_times(steps[way], count * steps_of_half, server.worker.pid) for count in (2, 1)]
                sent = tg.wire_stats().bytes_sent - before.bytes_sent
            return Sample(twice, once, sent / (3 * steps_of_half) - BATCH_BYTES)

        for way in WAYS:
            measure(way, _WARM)
        yield measure


def _per_step(samples: list[Sample]) -> list[Times]:
    """The times of one of many steps in milliseconds, without that of the read at the end, round by round."""
    return [
        Times(*[(twice - once) / STEPS * 1e3 for twice, once in zip(one.twice, one.once, strict=True)])
        for one in samples
    ]


def _samples() -> dict[tuple[str, int], list[Sample]]:
    """What was measured of each way through each delay, round by round."""
    samples: dict[tuple[str, int], list[Sample]] = {(way, ms): [] for way in WAYS for ms in (0, *DELAYS)}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ServerProcess())
        measures = {delay: stack.enter_context(_connected(server, delay)) for delay in (0, *DELAYS)}
        for _ in range(ROUNDS):
            for (way, delay), measured in samples.items():
                measured.append(measures[delay](way))
    return samples


def _measure() -> list[Figure]:
    samples, figures = _samples(), []
    times = {key: _per_step(measured) for key, measured in samples.items()}
    for way in WAYS:
        for delay in DELAYS:
            pairs = list(zip(times[way, delay], times[way, 0], strict=True))
            note = f"{statistics.median([far.passed for far, _ in pairs]):.3g} ms a step"
            ratios = [far.passed / near.passed for far, near in pairs]
            name = f"{way} step, {delay} ms of delay, over none"
            figures.append(figure(name, "x", ratios, at_most=1.1, baseline=note))
        for delay in (0, *DELAYS):
            asleep = [one.asleep for one in times[way, delay]]
            figures.append(figure(f"{way} step, {delay} ms of delay: the worker sleeps", "ms", asleep))
        sizes = [one.nbytes for delay in (0, *DELAYS) for one in samples[way, delay]]
        most = 200.0 if way == "compiled" else None
        figures.append(figure(f"{way} step, bytes besides the batch", "bytes", sizes, at_most=most))
    return figures


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delays", description=__doc__)
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    figures = _measure()
    for one in figures:
        print(one.row())
    if options.save:
        save(options.save, figures, device="cpu")
    return 0


if __name__ == "__main__":
    sys.exit(main())
