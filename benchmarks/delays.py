"""Steps through a slow network, compiled and eager: ``python -m benchmarks.delays [--save NAME]``.

A real client and a real gateway have a proxy between them that adds 1, 30 or 150 ms to round trips; steps read nothing.
A step's time is the difference between many steps and half as many, each with one read at the end, so that the read
itself is not counted. Delays take turns; figures are ratios to the time without the proxy, of the fastest of several
rounds, for which the machine has to be idle. Their spread is that of the same figures without one of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import Any

import numpy as np

from tests.end_to_end.server_process import ServerProcess
from tests.transport.fault_proxy import FaultProxy

from .measure import Figure, figure, save

MILLISECONDS = (1, 30, 150)
STEPS = 300
ROUNDS = 7
_WARM = 60
Step = Callable[[], Any]


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


def _seconds(step: Step, count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        loss = step()
    loss.item()
    return time.perf_counter() - begin


@contextlib.contextmanager
def _connected(server: ServerProcess, delay: int) -> Iterator[dict[str, float]]:
    """Yield the seconds of eager and compiled steps through a delay in milliseconds, and the bytes of a step."""
    import telegrad as tg

    with contextlib.ExitStack() as stack:
        port = server.port
        if delay:
            port = stack.enter_context(FaultProxy(server.port, delay=delay / 2e3)).port
        stack.enter_context(tg.connect(f"http://127.0.0.1:{port}"))
        measured = {}
        for way in ("eager", "compiled"):
            step = _training(tg, way == "compiled")
            _seconds(step, _WARM)
            before = tg.wire_stats()
            measured[f"{way} twice"], measured[way] = _seconds(step, 2 * STEPS), _seconds(step, STEPS)
            after = tg.wire_stats()
            batch = 128 * 64 * 4 + 128 * 8
            measured[f"{way} bytes"] = (after.bytes_sent - before.bytes_sent) / (3 * STEPS) - batch
            measured[f"{way} trips"] = after.round_trips - before.round_trips
        yield measured


def _step_seconds(samples: list[dict[str, float]], way: str, rounds: Iterable[int] = range(ROUNDS)) -> float:
    """The time of one of many steps in the fastest of some rounds, without that of the read at the end."""
    chosen = [samples[number] for number in rounds]
    return (min([one[f"{way} twice"] for one in chosen]) - min([one[way] for one in chosen])) / STEPS


def _measure() -> list[Figure]:
    samples: dict[int, list[dict[str, float]]] = {delay: [] for delay in (0, *MILLISECONDS)}
    with ServerProcess() as server:
        for _ in range(ROUNDS):
            for delay, measured in samples.items():
                with _connected(server, delay) as one:
                    measured.append(one)
    figures = []
    for way in ("eager", "compiled"):
        for delay in MILLISECONDS:
            seconds = _step_seconds(samples[delay], way)
            rounds = [range(ROUNDS), *combinations(range(ROUNDS), ROUNDS - 1)]
            ratios = [
                _step_seconds(samples[delay], way, some) / _step_seconds(samples[0], way, some) for some in rounds
            ]
            note = f"{seconds * 1e3:.3g} ms a step"
            name = f"{way} step, {delay} ms of delay, over none"
            figures.append(figure(name, "x", ratios, at_most=1.1, baseline=note))
        sizes = [one[f"{way} bytes"] for measured in samples.values() for one in measured]
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
