"""Sessions that train beside one that a person uses: what each isolation mode costs, and what the person notices.

``python -m benchmarks.load [--device cpu] [--modes shared,session] [--sessions 1,4,16] [--seconds 5] [--save NAME]``.
First come the steps of a single training in `shared` and `tenant` mode over those in a worker of its own, in turn in
one run. Then a row has the steps a second of all trainings together, the round trips of ``(x + 1).sum().item()`` in a
session of its own (median and 99th percentile, alone and beside the trainings), and the memory of the gateway and of
all workers together, shared pages divided among those that share them. Trainings run in at most four processes, which
share the machine with the server: on few cores their rate is the clients', too. Where a mode would need more memory
than the machine has to give, the row is left out and the reason printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from . import models
from .measure import Figure, figure, save, step_seconds
from .models import Setting

TINY = Setting("GPT d32, 2 layers, T16 B4, fp32", 2, 32, 2, 16, 4)
MODES = ("shared", "tenant", "session")
MOST_PROCESSES = 4
STEPS_PER_READ = 5
TRIPS = 200
MOST_LOST = 1.03
"""How much longer a step of the only training may take in a worker that others may share."""
STEPS_PER_ROUND = 20
STARTS = 5
"""How often the servers of a single training are started: two processes of one kind may differ by some percent."""
WORKER_BYTES = 120 << 20
"""Of the host, that a worker process takes at least."""


@contextmanager
def server(device: str, mode: str, sessions: int) -> Iterator[tuple[str, int]]:
    """The address and process of a server of its own."""
    workers = sessions + 2 if mode == "session" else 2
    limits = {"TELEGRAD_MAX_SESSIONS": str(sessions + 1), "TELEGRAD_MAX_WORKERS": str(workers)}
    limits |= dict.fromkeys(
        ("TELEGRAD_MAX_CONNECTIONS", "TELEGRAD_MAX_CONNECTIONS_PER_ADDRESS"), str(4 * sessions + 64)
    )
    environment = os.environ | limits | {"TELEGRAD_ISOLATION": mode, "TELEGRAD_LOG_LEVEL": "ERROR"}
    devices = "cpu" if device == "cpu" else device if ":" in device else f"{device}:0"
    command = [sys.executable, "-m", "server", "--port", "0", "--announce", "--devices", devices]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        try:
            yield started["url"], started["pid"]
        finally:
            process.terminate()


def train(url: str, device: str, count: int) -> None:
    """Be a process that trains in several sessions in turn; a line in begins or ends it, a line out has the rate."""
    import select

    import telegrad as tg

    connections = [tg.connect(url) for _ in range(count)]
    steps = []
    for connection in connections:
        connection.use()
        steps.append(models.gpt(tg, TINY, device.partition(":")[0]))
        steps[-1]().item()
    print("ready", flush=True)
    sys.stdin.readline()
    done, begin = 0, time.perf_counter()
    while not select.select([sys.stdin], [], [], 0)[0]:
        for connection, step in zip(connections, steps):
            connection.use()
            for _ in range(STEPS_PER_READ):
                loss = step()
            loss.item()
            done += STEPS_PER_READ
    print(done / (time.perf_counter() - begin), flush=True)


def measure(device: str, mode: str, sessions: int, seconds: float) -> Figure:
    """The row of one mode and number of trainings."""
    import telegrad as tg

    with server(device, mode, sessions) as (url, pid), tg.connect(url):
        x = tg.ones(4, device=device.partition(":")[0])
        _round_trips(x, TRIPS)
        alone = _round_trips(x, TRIPS)
        command = [sys.executable, "-m", "benchmarks.load", "--train", url, device]
        count = min(sessions, MOST_PROCESSES)
        shares = [sessions // count + (number < sessions % count) for number in range(count)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        trainers = [subprocess.Popen([*command, str(share)], **pipes) for share in shares]
        for trainer in trainers:
            if trainer.stdout.readline() != "ready\n":
                raise RuntimeError("a training did not start; its error stands above")
        for trainer in trainers:
            print(file=trainer.stdin, flush=True)
        trips, begin = [], time.perf_counter()
        while time.perf_counter() - begin < seconds:
            trips += _round_trips(x, 10)
        gateway, workers = _resident_bytes(pid)
        rate = sum(float(trainer.communicate("\n")[0]) for trainer in trainers)
    p50, p99 = _percentile(trips, 50), _percentile(trips, 99)
    usual, base = _percentile(alone, 50), _percentile(alone, 99)
    note = (
        f"round trip {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} (alone {usual * 1e3:.2f}, {base * 1e3:.2f}); "
        f"gateway {gateway / 2**20:.0f} MiB, workers {workers / 2**20:.0f} MiB"
    )
    times = {"p50": p50, "p99": p99, "alone_p50": usual, "alone_p99": base}
    return figure(
        f"{mode}, {sessions} training", "steps/s", [rate], baseline=note, mode=mode, sessions=sessions, **times,
        gateway_bytes=gateway, worker_bytes=workers, load_average=os.getloadavg()[0],
    )  # fmt: skip


def measure_single(device: str, rounds: int) -> list[Figure]:
    """The time of a step in the modes that share workers over that in a worker of its own, where nobody else is."""
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(STARTS):
        _add_times(seconds, device, rounds)
    return [
        figure(
            f"{mode}, a single training over a worker of its own", "ratio",
            [own / alone for own, alone in zip(seconds[mode], seconds["session"], strict=True)], at_most=MOST_LOST,
            load_average=os.getloadavg()[0],
        )
        for mode in MODES if mode != "session"
    ]  # fmt: skip


def _add_times(seconds: dict[str, list[float]], device: str, rounds: int) -> None:
    """Add the times of rounds in each mode, by servers that are started for them."""
    import telegrad as tg

    with ExitStack() as stack:
        trainings = {}
        for mode in MODES:
            url, _ = stack.enter_context(server(device, mode, 1))
            connection = stack.enter_context(tg.connect(url))
            trainings[mode] = connection, models.gpt(tg, TINY, device.partition(":")[0])
            step_seconds(trainings[mode][1], STEPS_PER_ROUND)
        for number in range(rounds):
            for mode in MODES[number % 3 :] + MODES[: number % 3]:
                connection, step = trainings[mode]
                connection.use()
                seconds[mode].append(step_seconds(step, STEPS_PER_ROUND))


def _round_trips(x: Any, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        (x + 1).sum().item()
        seconds.append(time.perf_counter() - begin)
    return seconds


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]


def _resident_bytes(pid: int) -> tuple[int, int]:
    """Memory of the gateway and of its workers, what processes share divided among them."""
    import psutil

    process = psutil.Process(pid)
    workers = [child.memory_full_info().pss for child in process.children(recursive=True)]
    return process.memory_full_info().pss, sum(workers)


def _lacks_memory(mode: str, sessions: int) -> bool:
    """Whether a worker process for each session would take more than three quarters of what the machine has to give."""
    import psutil

    return mode == "session" and sessions * WORKER_BYTES > psutil.virtual_memory().available * 3 // 4


def main() -> None:
    """Measure and print, or be a process that trains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--sessions", default="1,4,16,64,128")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=12, help="of a single training in each mode and start")
    parser.add_argument("--save", default="")
    parser.add_argument("--train", nargs=3, metavar=("URL", "DEVICE", "COUNT"))
    options = parser.parse_args()
    if options.train:
        url, device, count = options.train
        train(url, device, int(count))
        return
    rows = measure_single(options.device, options.rounds)
    for row in rows:
        print(row.row(), flush=True)
    for mode in options.modes.split(","):
        for sessions in map(int, options.sessions.split(",")):
            if _lacks_memory(mode, sessions):
                print(f"{mode}, {sessions} training: left out, since so many processes need more memory than there is")
                continue
            rows.append(measure(options.device, mode, sessions, options.seconds))
            print(rows[-1].row(), flush=True)
            if options.save:
                save(options.save, rows)


if __name__ == "__main__":
    main()
